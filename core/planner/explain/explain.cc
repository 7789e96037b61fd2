#include "core/planner/explain/explain.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/names.h"
#include "core/planner/problem/machine.h"
#include "core/planner/problem/names.h"
#include "core/planner/problem/units.h"
#include "core/planner/solver/bound.h"
#include "core/planner/solver/options.h"

namespace embla::planner {
namespace {

constexpr std::size_t kTopShards = 5;

// Prices as ms. The certificate holds them, whatever it proves.
class CostOf {
 public:
  CostOf(const Machine& machine, const Certificate& certificate) {
    double weights = 0;
    double least = std::numeric_limits<double>::max();  // Weight x slowdown.
    double devices = 0;
    std::vector<bool> in_scope(machine.hosts());
    for (std::uint32_t d = 0; d < machine.devices(); ++d) {
      const auto weight = static_cast<double>(certificate.weight[d]);
      if (weight <= 0) continue;
      ++devices;
      weights += weight;
      least = std::min(least, weight * static_cast<double>(machine.slowdown[d]));
      in_scope[machine.host_of[d]] = true;
      capacity_[0] += static_cast<double>(machine.capacity[d]);
    }
    for (std::uint32_t h = 0; h < machine.hosts(); ++h) {
      if (!in_scope[h]) continue;
      weights += static_cast<double>(certificate.host_weight);
      for (std::size_t r = 1; r < kTiers; ++r) {
        capacity_[r] += static_cast<double>(machine.host_capacity[h][r]);
      }
    }
    if (weights <= 0) return;
    const double slowdown_one = static_cast<double>(kSlowdownOne);
    const double unit = weights * slowdown_one / devices;
    const double byte_scale = static_cast<double>(std::int64_t{1} << Certificate::kPriceScale) /
                              static_cast<double>(kTicksPerMs);
    bound_share_ = 1 / devices;
    device_ = least / unit;
    network_ = static_cast<double>(certificate.host_weight) * slowdown_one / unit;
    for (std::size_t r = 0; r < kTiers; ++r) {
      byte_ms_[r] = static_cast<double>(certificate.price[r]) * byte_scale / unit;
    }
  }

  double Work(const Option& option) const {
    return option.shards *
           (device_ * MsFromTicks(option.work) + network_ * MsFromTicks(option.host_work));
  }
  double Memory(const Option& option) const {
    double ms = 0;
    for (std::size_t r = 0; r < kTiers; ++r) {
      ms += byte_ms_[r] * static_cast<double>(option.total[r]);
    }
    return ms;
  }
  double Of(const Option& option) const { return Work(option) + Memory(option); }
  // Price of all the memory in scope.
  double Credit() const {
    double ms = 0;
    for (std::size_t r = 0; r < kTiers; ++r) ms += byte_ms_[r] * capacity_[r];
    return ms;
  }
  double byte_ms(std::size_t tier) const { return byte_ms_[tier]; }
  // Ms of max load per ms of cost.
  double bound_share() const { return bound_share_; }

 private:
  double bound_share_ = 0;
  double device_ = 1;  // Price of a ms of device time, and of network time.
  double network_ = 0;
  std::array<double, kTiers> byte_ms_{};
  std::array<double, kTiers> capacity_{};
};

class Explainer {
 public:
  Explainer(const Problem& problem, const Solution& solution, const Machine& machine,
            const OptionSet& options, const Certificate& prices)
      : problem_(problem),
        solution_(solution),
        machine_(machine),
        options_(options),
        cost_(machine, prices),
        average_bound_(prices.bound),
        model_(MakeCostModel(problem)) {}

  Explanation Run(const std::vector<bool>& kept) {
    kept_ = kept;
    Explanation out;
    Ticks longest = -1;
    for (std::uint32_t t = 0; t < problem_.tables.size(); ++t) {
      out.tables.push_back(ExplainTable(t));
      ++out.counts[static_cast<std::size_t>(out.tables.back().reason)];
      AddToBound(t, &out);
      if (const Ticks shortest = ShortestShard(t); shortest > longest) {
        longest = shortest;
        out.longest_shard_ms = MsFromTicks(shortest);
        out.longest_shard_table = problem_.tables[t].name;
      }
    }
    out.average_bound_ms = MsFromTicks(average_bound_);
    out.bound_memory_credit_ms = cost_.Credit() * cost_.bound_share();
    for (std::size_t r = 0; r < kTiers; ++r) {
      out.ms_per_gib[r] = cost_.byte_ms(r) * kBytesPerGiB * cost_.bound_share();
    }
    AddLoads(&out);
    return out;
  }

 private:
  Ticks TimeOf(std::uint32_t table, const Option& option) const {
    return std::max(Slowed(option.work, options_.devices_of(table).slowdown_min), option.host_work);
  }

  Ticks ShortestShard(std::uint32_t table) const {
    Ticks shortest = kTicksMax;
    for (const Option& option : options_.of(table)) {
      shortest = std::min(shortest, TimeOf(table, option));
    }
    return shortest;
  }

  // The option of the plan; priced afresh when pruning dropped it.
  Option ChosenOption(std::uint32_t table, const Price& price) const {
    const Cut& cut = solution_.choices[table].cut;
    Option option;
    option.work = price.work;
    option.host_work = price.host_work;
    option.bytes = price.bytes;
    option.total = price.bytes_total;
    option.shards = cut.shards();
    option.cut = cut;
    return option;
  }

  TableExplanation ExplainTable(std::uint32_t t) const {
    const Table& table = problem_.tables[t];
    TableExplanation out;
    out.price = model_->PriceOf(table, solution_.choices[t].cut);
    const Option chosen = ChosenOption(t, out.price);
    const Option* cheapest = nullptr;    // Cheapest of the other options.
    const Option* least_work = nullptr;  // The other option with the least work.
    for (const Option& option : options_.of(t)) {
      if (option.cut == chosen.cut) continue;
      if (cheapest == nullptr || cost_.Of(option) < cost_.Of(*cheapest)) cheapest = &option;
      if (least_work == nullptr || cost_.Work(option) < cost_.Work(*least_work)) {
        least_work = &option;
      }
    }
    if (cheapest != nullptr) {
      out.runner_up = Alternative{cheapest->cut, cost_.Of(*cheapest) - cost_.Of(chosen)};
    }
    if (!table.rules.pin.empty()) {
      out.reason = Reason::kPinned;
      out.text = absl::StrCat("rule pin names ", table.rules.pin);
    } else if (cheapest == nullptr) {
      out.reason = Reason::kOnlyOption;
      out.text = "every other cut that its rules allow is worse in work, memory and freedom";
    } else {
      Judge(t, chosen, *cheapest, *least_work, &out);
    }
    return out;
  }

  void Judge(std::uint32_t t, const Option& chosen, const Option& cheapest,
             const Option& least_work, TableExplanation* out) const {
    const bool is_cheapest = out->runner_up->margin_ms >= 0;
    if (cost_.Work(chosen) <= cost_.Work(least_work)) {
      out->reason = Reason::kLeastWork;
      out->text = absl::StrCat(MsText(cost_.Work(chosen)), " of work in all; the next best, ",
                               CutText(cheapest.cut), ", has ", MsText(cost_.Work(cheapest)));
    } else if (is_cheapest) {
      out->reason = Reason::kMemoryPrice;
      out->text = MemoryPriceText(chosen, least_work);
    } else if (!kept_.empty() && kept_[t]) {
      out->reason = Reason::kKept;
      out->text = absl::StrCat("stays as it was: ", CutText(cheapest.cut), " would save ",
                               MsText(-out->runner_up->margin_ms), " and move it");
    } else if (TimeOf(t, cheapest) > solution_.lower_bound) {
      out->reason = Reason::kDeadline;
      out->text = absl::StrCat("one shard of ", CutText(cheapest.cut), " would take ",
                               MsText(MsFromTicks(TimeOf(t, cheapest))), ", the bound is ",
                               MsText(MsFromTicks(solution_.lower_bound)));
    } else if (chosen.bytes[0] < cheapest.bytes[0]) {
      out->reason = Reason::kMemoryGrain;
      out->text = absl::StrCat("its shards take ", BytesText(static_cast<double>(chosen.bytes[0])),
                               " of device memory each, those of ", CutText(cheapest.cut), " ",
                               BytesText(static_cast<double>(cheapest.bytes[0])));
    } else {
      out->reason = Reason::kBalance;
      out->text = absl::StrCat("evens out the load: shards of ", MsText(MsFromTicks(chosen.work)),
                               " each, placed one by one; ", CutText(cheapest.cut), " would save ",
                               MsText(-out->runner_up->margin_ms),
                               " in all, but not on the hottest device");
    }
  }

  std::string MemoryPriceText(const Option& chosen, const Option& least_work) const {
    std::string saved;
    for (std::size_t r = 0; r < kTiers; ++r) {
      const double bytes = static_cast<double>(least_work.total[r] - chosen.total[r]);
      if (bytes <= 0 || cost_.byte_ms(r) <= 0) continue;
      absl::StrAppend(&saved, saved.empty() ? "" : " and ", BytesText(bytes), " of ",
                      ToAbsl(NameOf(static_cast<Tier>(r))), " memory");
    }
    return absl::StrCat("saves ", saved, ", worth ",
                        MsText(cost_.Memory(least_work) - cost_.Memory(chosen)), "; costs ",
                        MsText(cost_.Work(chosen) - cost_.Work(least_work)), " more work than ",
                        CutText(least_work.cut));
  }

  // Adds the table's share of the average bound.
  void AddToBound(std::uint32_t t, Explanation* out) const {
    const Option* least = nullptr;
    for (const Option& option : options_.of(t)) {
      if (least == nullptr || cost_.Of(option) < cost_.Of(*least)) least = &option;
    }
    out->bound_work_ms += cost_.Work(*least) * cost_.bound_share();
    out->bound_memory_charge_ms += cost_.Memory(*least) * cost_.bound_share();
  }

  void AddLoads(Explanation* out) const {
    Ticks hottest = -1;
    double sum = 0, network_sum = 0;
    for (std::uint32_t d = 0; d < solution_.devices.size(); ++d) {
      const Ticks load = solution_.devices[d].load;
      sum += MsFromTicks(load);
      if (load > hottest) {
        hottest = load;
        out->critical = d;
      }
    }
    for (std::uint32_t h = 0; h < solution_.hosts.size(); ++h) {
      network_sum += MsFromTicks(solution_.hosts[h].network_load);
      if (solution_.hosts[h].network_load <= hottest) continue;
      hottest = solution_.hosts[h].network_load;
      out->critical = h;
      out->critical_is_network = true;
    }
    const auto mean = [](double total, std::size_t count) {
      return total / static_cast<double>(std::max<std::size_t>(1, count));
    };
    out->mean_load_ms = mean(sum, solution_.devices.size());
    const double mean_of_kind =
        out->critical_is_network ? mean(network_sum, solution_.hosts.size()) : out->mean_load_ms;
    if (mean_of_kind > 0) out->imbalance = MsFromTicks(hottest) / mean_of_kind;
    AddTop(out);
  }

  // Shards of table `t` on the critical device or host.
  std::uint32_t ShardsOnCritical(std::uint32_t t, const Explanation& out) const {
    const Choice& choice = solution_.choices[t];
    const std::uint32_t host =
        out.critical_is_network ? out.critical : machine_.host_of[out.critical];
    std::uint32_t count = 0;
    if (choice.placement == Placement::kEverywhere) {
      for (const std::uint32_t d : options_.devices_of(t).devices) {
        count += out.critical_is_network ? machine_.host_of[d] == host : d == out.critical;
      }
      return count;
    }
    for (const std::uint32_t target : choice.targets) {
      if (choice.placement == Placement::kHosts) {
        if (target == host) count += out.critical_is_network ? machine_.devices_of(host) : 1;
      } else {
        count +=
            out.critical_is_network ? machine_.host_of[target] == host : target == out.critical;
      }
    }
    return count;
  }

  void AddTop(Explanation* out) const {
    std::vector<TopShard> all;
    for (std::uint32_t t = 0; t < problem_.tables.size(); ++t) {
      const std::uint32_t shards = ShardsOnCritical(t, *out);
      if (shards == 0) continue;
      const Price& price = out->tables[t].price;
      const Ticks load = out->critical_is_network
                             ? price.host_work * shards
                             : Slowed(price.work * shards, machine_.slowdown[out->critical]);
      all.push_back({t, shards, load});
    }
    const auto longer = [](const TopShard& a, const TopShard& b) {
      return a.load != b.load ? a.load > b.load : a.table < b.table;
    };
    const std::size_t kept = std::min(kTopShards, all.size());
    std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(kept), all.end(),
                      longer);
    all.resize(kept);
    out->top = std::move(all);
  }

  const Problem& problem_;
  const Solution& solution_;
  const Machine& machine_;
  const OptionSet& options_;
  const CostOf cost_;
  const Ticks average_bound_;
  std::vector<bool> kept_;
  const std::unique_ptr<CostModel> model_;
};

}  // namespace

std::string_view NameOf(Reason reason) {
  static constexpr std::string_view kNames[] = {"pinned",       "only_option", "least_work",
                                                "memory_price", "deadline",    "memory_grain",
                                                "balance",      "kept"};
  return kNames[static_cast<std::size_t>(reason)];
}

std::string CutText(const Cut& cut) {
  std::string text = absl::StrCat(ToAbsl(NameOf(cut.type)), ", ");
  if (TraitsOf(cut.type).has_copies) {
    absl::StrAppend(&text, cut.row_blocks, cut.row_blocks == 1 ? " copy" : " copies");
  } else {
    absl::StrAppend(&text, cut.shards(), cut.shards() == 1 ? " shard" : " shards");
    if (cut.column_blocks > 1) absl::StrAppend(&text, " of ", cut.width, " columns");
  }
  absl::StrAppend(&text, ", kernel ", ToAbsl(NameOf(cut.kernel)));
  return text;
}

std::string BytesText(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.3g %s", bytes, kUnits[unit]);
}

std::string MsText(double ms) { return absl::StrFormat("%.4g ms", ms); }

absl::StatusOr<Explanation> Explain(const Problem& canonical, const Solution& solution,
                                    const std::vector<bool>& kept) {
  const Machine machine = MachineOf(canonical);
  const std::unique_ptr<CostModel> cost = MakeCostModel(canonical);
  EMBLA_ASSIGN_OR_RETURN(const OptionSet options, MakeOptions(canonical, machine, *cost));
  DualProblem dual(options, machine, 0);
  Prices prices;
  Ticks average = 0;
  if (!dual.empty()) {
    dual.Maximise({}, dual.capacity(), &prices);
    average = dual.Bound(prices, {});
  }
  const Certificate priced = dual.MakeCertificate(average, prices);
  return Explainer(canonical, solution, machine, options, priced).Run(kept);
}

}  // namespace embla::planner
