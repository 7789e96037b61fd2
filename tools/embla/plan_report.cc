#include "tools/embla/plan_report.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/text.h"
#include "core/plan/names.h"
#include "core/planner/problem/machine.h"
#include "core/planner/problem/names.h"
#include "tools/embla/text_table.h"

namespace embla::cli {
namespace {

using planner::Explanation;
using planner::Machine;
using planner::MsFromTicks;
using planner::Planned;
using planner::Solution;

constexpr std::size_t kDevicesShown = 64;
constexpr std::size_t kTablesShown = 25;
constexpr int kBarWidth = 24;
// Tables stay within 100 columns; -o json has whole names.
constexpr std::size_t kNameColumns = 24;

std::string Ms(double ms) { return absl::StrFormat("%.4g ms", ms); }

std::string Count(std::size_t n, const char* what) {
  return absl::StrCat(n, " ", what, n == 1 ? "" : "s");
}

std::string Summary(const Planned& planned, const Machine& machine, const Explanation& e,
                    const ReportOptions& options) {
  const Solution& s = planned.solution;
  const double load = MsFromTicks(s.max_load), bound = MsFromTicks(s.lower_bound);
  const std::string critical = e.critical_is_network
                                   ? "network of " + planned.problem.topology.hosts[e.critical].name
                                   : planner::DeviceName(planned.problem, machine, e.critical);
  std::string proof = options.checked ? "certificate checked" : "";
  if (s.search_bound > s.certificate.bound) {
    absl::StrAppend(&proof, proof.empty() ? "" : "; ", "by exhaustive search, certified ",
                    Ms(MsFromTicks(s.certificate.bound)));
  }
  TextTable text({"", ">", ""});
  text.Add({"max load", Ms(load), absl::StrCat("hottest: ", critical)});
  text.Add({"lower bound", Ms(bound), proof});
  text.Add({"gap", absl::StrFormat("%.3f %%", bound > 0 ? 100 * (load / bound - 1) : 0.0),
            "no plan can be better by more"});
  text.Add({"max / mean", absl::StrFormat("%.3f", e.imbalance), ""});
  text.Add({"solved in", Ms(options.solve_ms), absl::StrCat(s.operations, " operations")});
  std::string title =
      absl::StrCat(Count(planned.problem.tables.size(), "table"), " on ",
                   Count(machine.hosts(), "host"), ", ", Count(machine.devices(), "device"),
                   "; cost model ", ToAbsl(planner::NameOf(planned.problem.cost)), "; plan ",
                   planner::PlanHash(planned.problem, s).substr(0, 16), "\n");
  if (planned.replicas > 1) {
    absl::StrAppend(&title, planned.replicas, " replica groups; what follows is one of them\n");
  }
  std::string body = text.Render("  ");
  body.erase(0, body.find('\n') + 1);  // The table has no titles.
  return title + body;
}

std::string BoundLines(const Solution& s, const Explanation& e) {
  std::string text = absl::StrCat("\nbound\n  on average: least work ", Ms(e.bound_work_ms));
  if (e.bound_memory_credit_ms > 0) {
    absl::StrAppend(&text, " + price of the bytes used ", Ms(e.bound_memory_charge_ms),
                    "\n    - price of all memory ", Ms(e.bound_memory_credit_ms), " = ",
                    Ms(e.average_bound_ms));
  }
  absl::StrAppend(&text, "\n");
  const double certified = MsFromTicks(s.certificate.bound);
  const bool confined = std::count(s.certificate.weight.begin(), s.certificate.weight.end(), 0) > 0;
  if (confined) {
    absl::StrAppend(&text, "  certified ", Ms(certified),
                    ": what tables need that rules confine to some devices\n");
  } else if (certified > 1.0005 * e.average_bound_ms) {
    absl::StrAppend(&text, "  certified ", Ms(certified),
                    ": below it longer shards are out, and without them the rest needs more\n");
  }
  if (s.search_bound > s.certificate.bound) {
    absl::StrAppend(&text, "  exhaustive search found no plan below ",
                    Ms(MsFromTicks(s.search_bound)), "\n");
  }
  if (!e.longest_shard_table.empty()) {
    absl::StrAppend(&text, "  longest shard that no cut avoids: ", Ms(e.longest_shard_ms),
                    " of table ", e.longest_shard_table, "\n");
  }
  bool any = false;
  for (std::size_t r = 0; r < planner::kTiers; ++r) {
    if (e.ms_per_gib[r] <= 0) continue;
    any = true;
    absl::StrAppend(&text, "  one more GiB of ",
                    ToAbsl(planner::NameOf(static_cast<planner::Tier>(r))),
                    " memory takes at most ", Ms(e.ms_per_gib[r]), " off the average\n");
  }
  if (!any) absl::StrAppend(&text, "  memory is no limit: more of it would not help\n");
  return text;
}

std::string TopLines(const Planned& planned, const Explanation& e) {
  std::string text = "\nlongest on the hottest device\n";
  TextTable table({"table", ">shards", ">ms", ">share"});
  const double load = MsFromTicks(std::max<planner::Ticks>(1, planned.solution.max_load));
  for (const planner::TopShard& shard : e.top) {
    const double ms = MsFromTicks(shard.load);
    table.Add({Shortened(planned.problem.tables[shard.table].name, kNameColumns),
               absl::StrCat(shard.shards), absl::StrFormat("%.4g", ms),
               absl::StrFormat("%.1f %%", 100 * ms / load)});
  }
  return e.top.empty() ? "" : text + table.Render("  ");
}

// Devices to show, in order; the hottest ones when there are too many.
std::vector<std::uint32_t> ShownDevices(const Solution& solution) {
  std::vector<std::uint32_t> shown(solution.devices.size());
  std::iota(shown.begin(), shown.end(), 0u);
  if (shown.size() <= kDevicesShown) return shown;
  std::stable_sort(shown.begin(), shown.end(), [&](std::uint32_t a, std::uint32_t b) {
    return solution.devices[a].load > solution.devices[b].load;
  });
  shown.resize(kDevicesShown);
  return shown;
}

std::string DeviceLines(const Planned& planned, const Machine& machine) {
  const Solution& s = planned.solution;
  const std::vector<std::uint32_t> shown = ShownDevices(s);
  const double top = std::max(1e-12, MsFromTicks(s.max_load));
  TextTable table({"device", ">load ms", "", ">memory", ">of", ""});
  for (const std::uint32_t d : shown) {
    const double load = MsFromTicks(s.devices[d].load);
    const double full = static_cast<double>(s.devices[d].bytes) /
                        std::max(1.0, static_cast<double>(machine.capacity[d]));
    table.Add({planner::DeviceName(planned.problem, machine, d), absl::StrFormat("%.4g", load),
               TextBar(load / top, kBarWidth), FormatBytes(s.devices[d].bytes),
               FormatBytes(machine.capacity[d]), TextBar(full, kBarWidth)});
  }
  std::string text = shown.size() < s.devices.size()
                         ? absl::StrCat("\nthe ", shown.size(), " hottest of ", s.devices.size(),
                                        " devices (-o json has all)\n")
                         : "\ndevices\n";
  return text + table.Render("  ");
}

std::string HostLines(const Planned& planned, const Machine& machine) {
  const Solution& s = planned.solution;
  TextTable table({"host", ">network ms", ">memory", ">of", ">ssd", ">of"});
  std::size_t shown = 0;
  for (std::uint32_t h = 0; h < machine.hosts() && shown < kDevicesShown; ++h) {
    const planner::HostUse& use = s.hosts[h];
    if (use.network_load == 0 && use.bytes[1] == 0 && use.bytes[2] == 0) continue;
    ++shown;
    table.Add({planned.problem.topology.hosts[h].name,
               absl::StrFormat("%.4g", MsFromTicks(use.network_load)), FormatBytes(use.bytes[1]),
               FormatBytes(machine.host_capacity[h][1]), FormatBytes(use.bytes[2]),
               FormatBytes(machine.host_capacity[h][2])});
  }
  return shown == 0 ? "" : "\nhosts\n" + table.Render("  ");
}

// "row_wise x8 host_cached".
std::string CutWords(const planner::Cut& cut) {
  return absl::StrCat(ToAbsl(NameOf(cut.type)), " x", cut.shards(), " ",
                      ToAbsl(planner::NameOf(cut.kernel)));
}

// Why a table is cut so, and what comes next.
std::string WhyText(const planner::TableExplanation& why) {
  std::string text = absl::StrCat(ToAbsl(planner::NameOf(why.reason)), ": ", why.text);
  if (!why.runner_up) return text;
  absl::StrAppend(&text, "; next best ", CutWords(why.runner_up->cut), ", ",
                  MarginText(why.runner_up->margin_ms));
  return text;
}

std::string TableLines(const Planned& planned, const Explanation& e, bool all) {
  std::vector<std::uint32_t> shown(planned.problem.tables.size());
  std::iota(shown.begin(), shown.end(), 0u);
  const auto work = [&](std::uint32_t t) {
    return MsFromTicks(e.tables[t].price.work) * planned.solution.choices[t].cut.shards();
  };
  if (!all && shown.size() > kTablesShown) {
    std::stable_sort(shown.begin(), shown.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return work(a) > work(b); });
    shown.resize(kTablesShown);
  }
  std::string text = "\ntables";
  for (int i = 0; i < planner::kReasons; ++i) {
    if (e.counts[i] == 0) continue;
    absl::StrAppend(&text, text == "\ntables" ? ": " : ", ", e.counts[i], " ",
                    ToAbsl(planner::NameOf(static_cast<planner::Reason>(i))));
  }
  absl::StrAppend(&text, shown.size() < planned.problem.tables.size()
                             ? absl::StrCat("; the ", shown.size(), " with the most work:\n")
                             : "\n");
  TextTable table({"table", ">rows", ">dim", "cut", ">ms each", ">memory"});
  for (const std::uint32_t t : shown) {
    const planner::Cut& cut = planned.solution.choices[t].cut;
    const planner::TableExplanation& why = e.tables[t];
    table.Add({Shortened(planned.problem.tables[t].name, kNameColumns),
               FormatCount(planned.problem.tables[t].rows),
               absl::StrCat(planned.problem.tables[t].dim), CutWords(cut),
               absl::StrFormat("%.4g", MsFromTicks(why.price.work)),
               FormatBytes(why.price.bytes_total[0])});
    table.AddNote(WhyText(why));
  }
  return shown.empty() ? text : text + table.Render("  ");
}

}  // namespace

std::string MarginText(double margin_ms) {
  if (margin_ms >= 0) return absl::StrFormat("which costs %.3g ms more", margin_ms);
  return absl::StrFormat("which by itself would cost %.3g ms less", -margin_ms);
}

std::string MovesReport(const planner::Replanned& r, bool all_moves) {
  const auto share = [&](std::int64_t bytes) {
    return absl::StrFormat("%s (%.3f %%)", FormatBytes(bytes),
                           100 * static_cast<double>(bytes) /
                               static_cast<double>(std::max<std::int64_t>(1, r.total_bytes)));
  };
  std::string text = absl::StrCat(
      "\nfrom the previous plan\n  its max load here was ", Ms(MsFromTicks(r.load_before)),
      ", wanted is at most ", Ms(MsFromTicks(r.target)), "\n  ", Count(r.moves.size(), "move"),
      " of ", share(r.moved_bytes), " of ", FormatBytes(r.total_bytes),
      "; forced: ", share(r.forced_bytes),
      "\n  beyond that no plan with these cuts moves less than ", share(r.shed_bound_bytes), "\n");
  TextTable table({"table", ">shard", "from", "to", ">bytes", "forced"});
  const std::size_t shown = all_moves ? r.moves.size() : std::min(kTablesShown, r.moves.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const planner::Move& move = r.moves[i];
    table.Add({Shortened(r.planned.problem.tables[move.table].name, kNameColumns),
               absl::StrCat(move.shard), move.from.empty() ? "several" : move.from, move.to,
               FormatBytes(move.bytes), move.forced ? "yes" : ""});
  }
  if (shown > 0) absl::StrAppend(&text, table.Render("  "));
  if (shown < r.moves.size()) {
    absl::StrAppend(&text, "  ... and ", r.moves.size() - shown, " more (--all)\n");
  }
  return text;
}

std::string TextBar(double share, int width) {
  const int full =
      std::clamp(static_cast<int>(std::lround(share * width)), share > 0 ? 1 : 0, width);
  std::string bar = "[";
  bar.append(static_cast<std::size_t>(full), '#');
  bar.append(static_cast<std::size_t>(width - full), '-');
  return bar + "]";
}

std::string PlanReport(const Planned& planned, const Explanation& explanation,
                       const ReportOptions& options) {
  const Machine machine = planner::MachineOf(planned.problem);
  return absl::StrCat(Summary(planned, machine, explanation, options),
                      BoundLines(planned.solution, explanation), TopLines(planned, explanation),
                      DeviceLines(planned, machine), HostLines(planned, machine),
                      TableLines(planned, explanation, options.all_tables));
}

}  // namespace embla::cli
