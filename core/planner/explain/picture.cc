#include "core/planner/explain/picture.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/text.h"
#include "core/planner/explain/bars.h"
#include "core/planner/problem/machine.h"
#include "core/planner/problem/names.h"
#include "core/planner/problem/units.h"

namespace embla::planner {
namespace {

constexpr double kWidth = 1000;
constexpr double kLeft = 64, kRight = 24;
constexpr double kInner = kWidth - kLeft - kRight;
constexpr std::size_t kHoverMax = 2048;

constexpr char kStyle[] = R"(<style>
svg{font-family:Inter,"Segoe UI","DejaVu Sans",Helvetica,Arial,sans-serif;font-size:12px}
.page{fill:#ffffff}.ink{fill:#1c2430}.soft{fill:#66717f}.head{font-size:20px;font-weight:600}
.panel{font-size:14px;font-weight:600}.small{font-size:10.5px}.room{fill:#e9edf2}
.grid{stroke:#d5dbe3;stroke-width:1;fill:none}.bound{stroke:#1c2430;stroke-width:1.4;
stroke-dasharray:5 4;fill:none}.p0{fill:#3d6fb4}.p1{fill:#8fb8e8}.p2{fill:#e07b39}
.p3{fill:#f4bd86}.p4{fill:#9a6fb0}.net{fill:#4b9c8e}.mem{fill:#4b9c8e}.full{fill:#c98a1b}
.hot{fill:#d0243c}.hotline{stroke:#d0243c;stroke-width:1.6;fill:none}.hit{fill:#000000;opacity:0}
.hit:hover{opacity:0.12}
@media (prefers-color-scheme:dark){.page{fill:#12161c}.ink{fill:#e8edf3}.soft{fill:#98a4b3}
.room{fill:#232a34}.grid{stroke:#2c3540}.bound{stroke:#e8edf3}.p0{fill:#5b8fd8}.p1{fill:#a9cbf2}
.p2{fill:#ea8d4c}.p3{fill:#f6cb9f}.p4{fill:#b48bc9}.net{fill:#62b8a8}.mem{fill:#62b8a8}
.full{fill:#dfa53a}.hot{fill:#ff5a6e}.hotline{stroke:#ff5a6e}.hit{fill:#ffffff}}
</style>
)";

std::string Escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // XML allows no other control characters.
        out += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? '?' : c;
    }
  }
  return out;
}

// Largest of 1, 2, 2.5, 5 x 10^k that gives at least `least` steps to `top`.
double NiceStep(double top, int least) {
  if (!(top > 0)) return 1;
  const double raw = top / least;
  const double decade = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {5.0, 2.5, 2.0}) {
    if (factor * decade <= raw) return factor * decade;
  }
  return decade;
}

class Picture {
 public:
  Picture(const Problem& problem, const Solution& solution, const Explanation& explanation)
      : problem_(problem),
        solution_(solution),
        explanation_(explanation),
        machine_(MachineOf(problem)),
        bars_(machine_, kLeft, kInner) {
    AddParts();
  }

  std::string Draw() {
    DrawHead();
    DrawLoads();
    DrawMemory();
    DrawHosts();
    DrawFoot();
    return absl::StrCat(
        absl::StrFormat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" "
                        "width=\"%g\" height=\"%g\" role=\"img\">\n",
                        kWidth, y_, kWidth, y_),
        kStyle, absl::StrFormat("<rect class=\"page\" width=\"%g\" height=\"%g\"/>\n", kWidth, y_),
        body_, "</svg>\n");
  }

 private:
  // Parts of every device's load, in ms.
  void AddParts() {
    parts_.assign(machine_.devices(), {});
    std::array<double, kCostParts> everywhere{};
    const auto add = [](const Price& price, double factor, std::array<double, kCostParts>* parts) {
      for (std::size_t p = 0; p < kCostParts; ++p) (*parts)[p] += price.parts_ms[p] * factor;
    };
    for (std::size_t t = 0; t < problem_.tables.size(); ++t) {
      const Choice& choice = solution_.choices[t];
      const Price& price = explanation_.tables[t].price;
      if (choice.placement == Placement::kEverywhere) {
        const absl::StatusOr<std::vector<std::uint32_t>> devices =
            AllowedDevices(problem_, problem_.tables[t].rules);
        if (!devices.ok() || devices->size() == machine_.devices()) {
          add(price, 1, &everywhere);
        } else {
          for (const std::uint32_t d : *devices) add(price, 1, &parts_[d]);
        }
      }
      for (const std::uint32_t target : choice.targets) {
        if (choice.placement == Placement::kShards) {
          add(price, 1, &parts_[target]);
          continue;
        }
        for (std::uint32_t d = machine_.host_begin[target]; d < machine_.host_begin[target + 1];
             ++d) {
          add(price, 1, &parts_[d]);
        }
      }
    }
    for (std::uint32_t d = 0; d < machine_.devices(); ++d) {
      const double slowdown =
          static_cast<double>(machine_.slowdown[d]) / static_cast<double>(kSlowdownOne);
      for (std::size_t p = 0; p < kCostParts; ++p) {
        parts_[d][p] = (parts_[d][p] + everywhere[p]) * slowdown;
      }
    }
  }

  void Text(double x, double y, const std::string& classes, const std::string& text,
            const char* anchor = "start") {
    absl::StrAppend(&body_, absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" "
                                            "text-anchor=\"%s\">%s</text>\n",
                                            x, y, classes, anchor, Escape(text)));
  }
  static void AddRect(std::string* path, double x, double y, double width, double height) {
    if (height < 0.01) return;
    absl::StrAppend(path,
                    absl::StrFormat("M%.2f %.2fh%.2fv%.2fh-%.2fz", x, y, width, height, width));
  }
  void Path(const std::string& classes, const std::string& path) {
    if (path.empty()) return;
    absl::StrAppend(&body_, "<path class=\"", classes, "\" d=\"", path, "\"/>\n");
  }

  void DrawHead() {
    const std::size_t hosts = machine_.hosts();
    Text(kLeft, 38, "ink head",
         absl::StrFormat("%d table%s on %d device%s of %d host%s", problem_.tables.size(),
                         problem_.tables.size() == 1 ? "" : "s", machine_.devices(),
                         machine_.devices() == 1 ? "" : "s", hosts, hosts == 1 ? "" : "s"));
    const double load = MsFromTicks(solution_.max_load);
    const double bound = MsFromTicks(solution_.lower_bound);
    const double gap = bound > 0 ? 100 * (load / bound - 1) : 0;
    Text(kLeft, 60, "soft",
         absl::StrFormat("max load %s   \xc2\xb7   no plan is below %s   \xc2\xb7   gap %.3f %%   "
                         "\xc2\xb7   max / mean %.3f   \xc2\xb7   cost model %s",
                         MsText(load), MsText(bound), gap, explanation_.imbalance,
                         NameOf(problem_.cost)));
    y_ = 92;
  }

  // Title, and a legend to its right.
  void PanelTitle(const std::string& title,
                  const std::vector<std::pair<std::string, std::string>>& legend) {
    Text(kLeft, y_, "ink panel", title);
    double x = kWidth - kRight;
    for (auto it = legend.rbegin(); it != legend.rend(); ++it) {
      x -= 6.4 * static_cast<double>(it->second.size()) + 6;
      Text(x, y_, "soft small", it->second);
      absl::StrAppend(&body_,
                      absl::StrFormat("<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"9\" "
                                      "height=\"9\" rx=\"2\"/>\n",
                                      it->first, x - 13, y_ - 8.5));
      x -= 26;
    }
    y_ += 34;
  }

  double RowHeight() const { return bars_.rows() == 1 ? 190 : bars_.rows() <= 3 ? 90 : 54; }
  double RowStep() const { return RowHeight() + (bars_.rows() == 1 ? 46 : 36); }
  double Base(int row) const { return y_ + row * RowStep() + RowHeight(); }

  // Lines and numbers behind the bars.
  void Axis(double top, const char* unit) {
    const double step = NiceStep(top, bars_.rows() <= 3 ? 4 : 2);
    for (int row = 0; row < bars_.rows(); ++row) {
      std::string lines;
      for (double value = 0; value <= top * 1.001; value += step) {
        const double y = Base(row) - value / top * RowHeight();
        absl::StrAppend(&lines, absl::StrFormat("M%.1f %.1fh%.1f", kLeft - 4, y, kInner + 4));
        Text(kLeft - 9, y + 3.5, "soft small",
             absl::StrFormat("%g%s", value, value == 0 ? unit : ""), "end");
      }
      Path("grid", lines);
    }
  }

  // Names of hosts, and of devices where there is room.
  void Names() {
    for (std::uint32_t h = 0; h < machine_.hosts(); ++h) {
      const std::uint32_t first = machine_.host_begin[h];
      const std::uint32_t last = machine_.host_begin[h + 1] - 1;
      const double left = bars_.x(first);
      const double right = bars_.x(last) + bars_.width();
      const double base = Base(bars_.row(first));
      const bool numbers = bars_.rows() == 1 && bars_.width() >= 14;
      for (std::uint32_t d = first; numbers && d <= last; ++d) {
        Text(bars_.x(d) + bars_.width() / 2, base + 15, "soft small", absl::StrCat(d - first),
             "middle");
      }
      const std::string& name = problem_.topology.hosts[h].name;
      const bool fits = 6.2 * static_cast<double>(name.size()) < right - left + 6;
      const bool starts_row = h == 0 || bars_.row(first) != bars_.row(first - 1);
      if (fits || starts_row) {
        Text(fits ? (left + right) / 2 : left, base + (numbers ? 31 : 14), "soft small", name,
             fits ? "middle" : "start");
      }
    }
  }

  // Invisible bars that show numbers under the pointer.
  void Hover() {
    if (machine_.devices() > kHoverMax) return;
    for (std::uint32_t d = 0; d < machine_.devices(); ++d) {
      const DeviceUse& use = solution_.devices[d];
      absl::StrAppend(
          &body_,
          absl::StrFormat("<rect class=\"hit\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" "
                          "height=\"%.1f\"><title>%s: %s, %s of %s</title></rect>\n",
                          bars_.x(d), Base(bars_.row(d)) - RowHeight(), bars_.width(), RowHeight(),
                          Escape(DeviceName(problem_, machine_, d)), MsText(MsFromTicks(use.load)),
                          BytesText(static_cast<double>(use.bytes)),
                          BytesText(static_cast<double>(machine_.capacity[d]))));
    }
  }

  void DrawLoads() {
    static constexpr std::string_view kWords[] = {"forward compute", "forward comms",
                                                  "backward compute", "backward comms", "prefetch"};
    std::vector<std::pair<std::string, std::string>> legend;
    for (std::size_t p = 0; p < kCostParts; ++p) {
      const bool used = std::any_of(parts_.begin(), parts_.end(),
                                    [p](const auto& parts) { return parts[p] > 0; });
      if (used) legend.emplace_back(absl::StrCat("p", p), kWords[p]);
    }
    PanelTitle("Load of each device, ms per step", legend);
    // If networks are the limit, devices are shown on their own scale, without the bound.
    const bool of_devices = !explanation_.critical_is_network;
    Ticks longest = of_devices ? solution_.max_load : 0;
    for (const DeviceUse& use : solution_.devices) longest = std::max(longest, use.load);
    const double top = longest > 0 ? MsFromTicks(longest) * 1.08 : 1;
    Axis(top, " ms");
    DrawParts(top);
    if (of_devices) DrawBound(top);
    if (of_devices) MarkHottest(top);
    Names();
    Hover();
    y_ += bars_.rows() * RowStep() + 14;
  }

  void DrawParts(double top) {
    std::array<std::string, kCostParts> paths;
    for (std::uint32_t d = 0; d < machine_.devices(); ++d) {
      double sum = 0;
      for (const double part : parts_[d]) sum += part;
      // The parts are scaled to the exact load, from which rounding sets them a little apart.
      const double scale = sum > 0 ? MsFromTicks(solution_.devices[d].load) / sum : 0;
      double y = Base(bars_.row(d));
      for (std::size_t p = 0; p < kCostParts; ++p) {
        const double height = parts_[d][p] * scale / top * RowHeight();
        y -= height;
        AddRect(&paths[p], bars_.x(d), y, bars_.width(), height);
      }
    }
    for (std::size_t p = 0; p < kCostParts; ++p) Path(absl::StrCat("p", p), paths[p]);
  }

  void DrawBound(double top) {
    const double height = MsFromTicks(solution_.lower_bound) / top * RowHeight();
    std::string lines;
    for (int row = 0; row < bars_.rows(); ++row) {
      absl::StrAppend(
          &lines, absl::StrFormat("M%.1f %.2fh%.1f", kLeft - 4, Base(row) - height, kInner + 4));
    }
    Path("bound", lines);
  }

  // A triangle over the hottest device's bar and its name.
  void MarkHottest(double top) {
    const std::uint32_t d = explanation_.critical;
    const double x = bars_.x(d) + bars_.width() / 2;
    const double y = Base(bars_.row(d)) - MsFromTicks(solution_.max_load) / top * RowHeight() - 3;
    Path("hot", absl::StrFormat("M%.2f %.2fl-5 -8h10z", x, y));
    const double half = std::max(4.0, bars_.width() + 3) / 2;
    Path("hotline", absl::StrFormat("M%.2f %.2fh%.2fv%.2fh-%.2fz", x - half, y + 2, 2 * half,
                                    Base(bars_.row(d)) - y - 1, 2 * half));
    const bool to_left = x > kWidth * 0.6;
    Text(x + (to_left ? -9 : 9), y - 2, "hot small",
         absl::StrCat("hottest: ", DeviceName(problem_, machine_, d), ", ",
                      MsText(MsFromTicks(solution_.max_load))),
         to_left ? "end" : "start");
  }

  void DrawMemory() {
    double top = 0;
    for (const std::int64_t bytes : machine_.capacity) {
      top = std::max(top, static_cast<double>(bytes) / kBytesPerGiB);
    }
    if (top <= 0) top = 1;
    PanelTitle("Device memory for tables, GiB",
               {{"mem", "used"}, {"full", "over 95 % used"}, {"room", "free"}});
    Axis(top, " GiB");
    std::string room, used, full;
    for (std::uint32_t d = 0; d < machine_.devices(); ++d) {
      const double base = Base(bars_.row(d));
      const double capacity = static_cast<double>(machine_.capacity[d]);
      const double bytes = static_cast<double>(solution_.devices[d].bytes);
      const double scale = RowHeight() / (top * kBytesPerGiB);
      AddRect(&room, bars_.x(d), base - capacity * scale, bars_.width(), capacity * scale);
      AddRect(bytes > 0.95 * capacity ? &full : &used, bars_.x(d), base - bytes * scale,
              bars_.width(), bytes * scale);
    }
    Path("room", room);
    Path("mem", used);
    Path("full", full);
    Names();
    Hover();
    y_ += bars_.rows() * RowStep() + 14;
  }

  // Memory, SSD and network of hosts, where the plan uses them: one line of bars per quantity.
  void DrawHosts() {
    HostLine("Host memory", 1);
    HostLine("Host SSD", 2);
    Ticks network = 0;
    for (const HostUse& use : solution_.hosts) network = std::max(network, use.network_load);
    if (network == 0) return;
    std::vector<double> share;
    for (const HostUse& use : solution_.hosts) {
      share.push_back(MsFromTicks(use.network_load) / MsFromTicks(solution_.max_load));
    }
    const bool hottest = explanation_.critical_is_network;
    HostBars(absl::StrCat("Network of each host, up to ", MsText(MsFromTicks(network)),
                          hottest ? ": the limit of this plan" : ""),
             hottest ? "hot" : "net", share);
  }

  void HostLine(const std::string& title, std::size_t tier) {
    double used = 0, capacity = 0;
    std::vector<double> share;
    for (std::uint32_t h = 0; h < machine_.hosts(); ++h) {
      const auto bytes = static_cast<double>(solution_.hosts[h].bytes[tier]);
      const auto room = static_cast<double>(machine_.host_capacity[h][tier]);
      used += bytes;
      capacity += room;
      share.push_back(bytes / std::max(1.0, room));
    }
    if (used <= 0) return;
    HostBars(absl::StrCat(title, " of each host, ", BytesText(used), " of ", BytesText(capacity),
                          " used"),
             "mem", share);
  }

  void HostBars(const std::string& title, const std::string& color,
                const std::vector<double>& share) {
    constexpr double kHeight = 46;
    PanelTitle(title, {});
    y_ -= 14;
    const double step = std::min(120.0, kInner / static_cast<double>(share.size()));
    std::string room, used;
    for (std::size_t h = 0; h < share.size(); ++h) {
      const double x = kLeft + step * static_cast<double>(h);
      AddRect(&room, x, y_, step * 0.88, kHeight);
      const double height = std::min(1.0, share[h]) * kHeight;
      AddRect(&used, x, y_ + kHeight - height, step * 0.88, height);
      const std::string& name = problem_.topology.hosts[h].name;
      if (6.2 * static_cast<double>(name.size()) < step) {
        Text(x + step * 0.44, y_ + kHeight + 14, "soft small", name, "middle");
      }
    }
    Path("room", room);
    Path(color, used);
    y_ += kHeight + 46;
  }

  void DrawFoot() {
    std::string prices;
    for (std::size_t r = 0; r < kTiers; ++r) {
      if (explanation_.ms_per_gib[r] <= 0) continue;
      absl::StrAppend(&prices, prices.empty() ? "One" : "; one", " more GiB of ",
                      ToAbsl(NameOf(static_cast<Tier>(r))), " memory anywhere is worth up to ",
                      MsText(explanation_.ms_per_gib[r]));
    }
    if (prices.empty()) prices = "Memory is no limit here: more of it would not lower the bound";
    Text(kLeft, y_ - 6, "soft small",
         absl::StrCat(explanation_.critical_is_network ? "" : "Dashed: the proven bound. ", prices,
                      "."));
    y_ += 14;
  }

  const Problem& problem_;
  const Solution& solution_;
  const Explanation& explanation_;
  const Machine machine_;
  const Bars bars_;
  std::vector<std::array<double, kCostParts>> parts_;  // By device.
  std::string body_;
  double y_ = 0;  // Next free line.
};

}  // namespace

std::string PictureOf(const Problem& canonical, const Solution& solution,
                      const Explanation& explanation) {
  return Picture(canonical, solution, explanation).Draw();
}

}  // namespace embla::planner
