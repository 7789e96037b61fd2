// Why a plan is what it is: per table the reason for its cut and the next best one, for the plan
// what the bound is made of, what memory is worth, and what the hottest device does.
//
// The prices are those of the relaxation in which tables may be split at will (bound.h, without a
// deadline): under them each cut of a table costs its work plus the price of its bytes. This cost
// is given in ms, all shards together, so that the least costs of all tables, divided by the number
// of devices, less the price of all memory, give the average bound. Where only devices count, it is
// their time; where hosts' networks count too, a mixture of both. The certificate may prove more
// than the average bound, with other prices: then it rests on shards that are too long.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/planner/problem/problem.h"
#include "core/planner/problem/solution.h"

namespace embla::planner {

enum class Reason : std::uint8_t {
  kPinned = 0,       // A rule names the device.
  kOnlyOption = 1,   // No other cut is allowed, or none is better in anything.
  kLeastWork = 2,    // No allowed cut works less.
  kMemoryPrice = 3,  // Works more than another, and saves bytes worth more than that.
  kDeadline = 4,     // A shard of the cheaper cut would alone take longer than the bound.
  kMemoryGrain = 5,  // Costs more than another; its shards take less memory each, so that they fit.
  kBalance = 6,      // Costs more than another; its shards are shorter, or go elsewhere, so that
                     // the hottest device has less.
  kKept = 7,         // Costs more than another, which would have to move what is there.
};
inline constexpr int kReasons = 8;
std::string_view NameOf(Reason reason);  // pinned only_option least_work ...

struct Alternative {
  Cut cut;
  double margin_ms = 0;  // Its cost less the chosen cut's; negative: it was the cheaper one.
};

struct TableExplanation {
  Price price;  // Price of one shard of the chosen cut.
  Reason reason = Reason::kOnlyOption;
  std::string text;  // One sentence with the numbers.
  std::optional<Alternative> runner_up;
};

struct TopShard {
  std::uint32_t table = 0;
  std::uint32_t shards = 0;  // Shards of this table on the device.
  Ticks load = 0;            // Load of all tables on that device.
};

struct Explanation {
  std::vector<TableExplanation> tables;  // In the order of the problem's tables.

  // average_bound_ms = bound_work_ms + bound_memory_charge_ms - bound_memory_credit_ms.
  double average_bound_ms = 0;
  double bound_work_ms = 0;           // The least cut of every table: its work.
  double bound_memory_charge_ms = 0;  // ... and the price of its bytes.
  double bound_memory_credit_ms = 0;  // The price of all the memory there is.
  // Most ms that another GiB of the tier, anywhere, takes off the average bound.
  std::array<double, kTiers> ms_per_gib{};
  // The longest shard that no cut avoids, in ms: no plan is below it.
  double longest_shard_ms = 0;
  std::string longest_shard_table;

  double mean_load_ms = 0;
  double imbalance = 1;                // Max load / mean load of the devices.
  bool critical_is_network = false;    // The hottest is a host's network, not a device.
  std::uint32_t critical = 0;          // Number of that device or host.
  std::vector<TopShard> top;           // Its five longest entries, longest first.
  std::array<int, kReasons> counts{};  // Tables by reason.
};

// Requires: a solution that Check accepts for this canonical problem. `kept`: by table, whether it
// is where a previous plan had it; empty when there is none.
absl::StatusOr<Explanation> Explain(const Problem& canonical, const Solution& solution,
                                    const std::vector<bool>& kept = {});

// "column_wise, 4 shards of 32 columns, kernel host_cached".
std::string CutText(const Cut& cut);
// "2.05 GiB": three digits and a binary unit.
std::string BytesText(double bytes);
// "44.59 ms": four digits.
std::string MsText(double ms);

}  // namespace embla::planner
