#include "core/planner/solver/search.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "core/planner/solver/ratio.h"

namespace embla::planner {
namespace {

constexpr std::size_t kGrains = 4;           // Asked at every node.
constexpr std::int64_t kGrainPartsMax = 16;  // Finer ones are hardly better than plain work.
constexpr std::int64_t kGrainWhole = 8;

// The most work whose time on a device with this slowdown is at most `z`.
Ticks WorkWithin(Ticks z, std::int64_t slowdown) {
  const Int128 work = (static_cast<Int128>(z) << kSlowdownShift) / slowdown;
  return static_cast<Ticks>(std::min<Int128>(work, kTicksMax));
}

}  // namespace

Search::Search(const OptionSet& options, const Machine& machine, const Prices& prices)
    : options_(options), machine_(machine), prices_(prices), loads_(machine) {
  for (const Option& option : options.all) {
    hosts_matter_ |= option.shape == Shape::kHostRows || option.shape == Shape::kGrid ||
                     (option.shape == Shape::kOneHost && option.shards > 1) ||
                     option.host_work > 0 || option.bytes[1] > 0 || option.bytes[2] > 0;
  }
  for (const Spread spread : options.spread_of) hosts_matter_ |= spread == Spread::kHosts;
  std::map<std::tuple<std::int64_t, std::int64_t, std::vector<std::uint8_t>>, std::uint32_t> seen;
  for (std::uint32_t d = 0; d < machine.devices(); ++d) {
    std::vector<std::uint8_t> in;
    for (const DeviceSet& set : options.sets) in.push_back(set.has[d]);
    const auto key = std::tuple(machine.slowdown[d], machine.capacity[d], std::move(in));
    class_of_.push_back(seen.emplace(key, static_cast<std::uint32_t>(seen.size())).first->second);
  }
}

Int128 Search::Priced(const Option& option, Int128 work, bool packed) const {
  Int128 cost = work << kPriceShift;
  for (std::size_t r = 0; r < kTiers; ++r) {
    const Int128 bytes =
        packed ? static_cast<Int128>(option.bytes[r]) * option.shards : option.total[r];
    cost += bytes * prices_.byte[r];
  }
  return cost;
}

bool Search::Prepare(Ticks z) {
  z_ = z;
  work_limit_.clear();
  for (const std::int64_t slowdown : machine_.slowdown) {
    work_limit_.push_back(WorkWithin(z, slowdown));
  }
  work_limit_max_ = *std::max_element(work_limit_.begin(), work_limit_.end());
  const std::int64_t per_limit = Reciprocal(work_limit_max_);
  const std::int64_t per_capacity = Reciprocal(machine_.TotalCapacity()[0] / machine_.devices());
  struct Entry {
    std::int64_t size;
    std::uint32_t table;
    Rest least;
    std::vector<std::uint32_t> order;
  };
  std::vector<Entry> entries;
  for (std::uint32_t t = 0; t < options_.tables(); ++t) {
    const auto options = options_.of(t);
    const std::int64_t slowdown = options_.devices_of(t).slowdown_min;
    Entry entry{0, t, {}, {}};
    std::vector<std::pair<Int128, std::uint32_t>> costs;
    for (std::uint32_t o = 0; o < options.size(); ++o) {
      const Option& option = options[o];
      if (Slowed(option.work, slowdown) > z || option.host_work > z) continue;
      const Int128 cost = Priced(option, option.total_work(), true);
      const Int128 work = option.total_work();
      Rest& least = entry.least;
      const bool first = costs.empty();
      least.priced = first ? cost : std::min(least.priced, cost);
      least.work = first ? work : std::min(least.work, work);
      for (std::size_t r = 0; r < kTiers; ++r) {
        const Int128 bytes = static_cast<Int128>(option.bytes[r]) * option.shards;
        least.bytes[r] = first ? bytes : std::min(least.bytes[r], bytes);
      }
      least.smallest_shard = std::min(least.smallest_shard, option.work);
      costs.emplace_back(cost, o);
    }
    if (costs.empty()) return false;
    std::sort(costs.begin(), costs.end());
    for (const auto& [cost, o] : costs) entry.order.push_back(o);
    const Option& likely = options[entry.order.front()];
    entry.size = Ratio(likely.work, per_limit);
    if (by_bytes_) entry.size = std::max(entry.size, Ratio(likely.bytes[0], per_capacity));
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.size != b.size ? a.size > b.size : a.table < b.table;
  });
  tables_.clear();
  order_of_.clear();
  rest_.assign(entries.size() + 1, {});
  for (std::size_t i = entries.size(); i-- > 0;) {
    rest_[i] = entries[i].least;
    rest_[i].work += rest_[i + 1].work;
    rest_[i].priced += rest_[i + 1].priced;
    for (std::size_t r = 0; r < kTiers; ++r) rest_[i].bytes[r] += rest_[i + 1].bytes[r];
    rest_[i].smallest_shard = std::min(rest_[i].smallest_shard, rest_[i + 1].smallest_shard);
  }
  for (Entry& entry : entries) {
    tables_.push_back(entry.table);
    order_of_.push_back(std::move(entry.order));
  }
  return ChooseGrains();
}

std::int64_t Search::GrainsIn(const Grain& grain, Ticks work) const {
  if (work <= 0) return 0;
  return static_cast<std::int64_t>((static_cast<Int128>(work) * grain.parts - 1) / work_limit_max_);
}

Search::Grain Search::MakeGrain(std::int64_t parts, std::int64_t share) const {
  Grain grain{parts, 0, share, {}};
  grain.value =
      (static_cast<Int128>(work_limit_max_ / (parts - 1)) << kPriceShift) * (kGrainWhole - share);
  grain.rest.assign(tables_.size() + 1, 0);
  for (std::size_t i = tables_.size(); i-- > 0;) {
    const auto options = options_.of(tables_[i]);
    Int128 least = -1;
    for (const std::uint32_t o : order_of_[i]) {
      const Option& option = options[o];
      const Int128 cost = grain.value * GrainsIn(grain, option.work) * option.shards +
                          Priced(option, option.total_work(), true) * share;
      if (least < 0 || cost < least) least = cost;
    }
    grain.rest[i] = grain.rest[i + 1] + least;
  }
  return grain;
}

Int128 Search::GrainRoom(const Grain& grain, Int128 priced_room) const {
  std::int64_t grains = 0;
  for (std::uint32_t d = 0; d < machine_.devices(); ++d) {
    grains += GrainsIn(grain, work_limit_[d] - loads_.work[d]);
  }
  return grain.value * grains + priced_room * grain.share;
}

bool Search::ChooseGrains() {
  grains_.clear();
  if (tables_.empty() || work_limit_max_ <= 0) return true;
  const Int128 priced_room = PricedRoom();
  std::vector<std::pair<double, Grain>> found;  // Fullness: an order, nothing more.
  for (std::int64_t parts = 2; parts <= kGrainPartsMax; ++parts) {
    std::optional<std::pair<double, Grain>> best;
    for (std::int64_t share = 0; share < kGrainWhole; ++share) {
      Grain grain = MakeGrain(parts, share);
      const Int128 room = GrainRoom(grain, priced_room);
      if (grain.rest[0] > room) return false;
      const double full = static_cast<double>(grain.rest[0]) / (static_cast<double>(room) + 1);
      if (!best || full > best->first) best.emplace(full, std::move(grain));
    }
    found.push_back(*std::move(best));
  }
  operations_ += kGrainPartsMax * kGrainWhole * static_cast<std::int64_t>(options_.all.size());
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (std::size_t i = 0; i < kGrains; ++i) grains_.push_back(std::move(found[i].second));
  return true;
}

Int128 Search::PricedRoom() const {
  Int128 room = 0;
  TierBytes free{};
  for (std::uint32_t d = 0; d < machine_.devices(); ++d) {
    room += static_cast<Int128>(work_limit_[d] - loads_.work[d]) << kPriceShift;
    free[0] += machine_.capacity[d] - loads_.bytes[d];
  }
  for (std::uint32_t h = 0; h < machine_.hosts(); ++h) {
    for (std::size_t r = 1; r < kTiers; ++r) {
      free[r] += machine_.host_capacity[h][r] - loads_.host_bytes[h][r];
    }
  }
  for (std::size_t r = 0; r < kTiers; ++r) room += static_cast<Int128>(free[r]) * prices_.byte[r];
  return room;
}

Search::Answer Search::Decide(const Question& question) {
  order_ = question.order;
  by_bytes_ = question.by_bytes;
  stop_at_ = operations_ + question.budget;
  detours_left_ = question.detours_max;
  left_out_ = false;
  loads_.Clear();
  choices_.assign(options_.tables(), {});
  operations_ += static_cast<std::int64_t>(options_.all.size());
  if (!Prepare(question.z)) return Answer::kNone;
  const Answer answer = Descend(0);
  return answer == Answer::kNone && left_out_ ? Answer::kUnknown : answer;
}

Layout Search::TakeLayout() const {
  Layout layout(options_, machine_);
  for (std::uint32_t t = 0; t < options_.tables(); ++t) {
    layout.Place(t, choices_[t].option, choices_[t].targets);
  }
  return layout;
}

bool Search::HasRoom(std::size_t depth) const {
  const Rest& rest = rest_[depth];
  Int128 room = 0;
  TierBytes free{};
  for (std::uint32_t d = 0; d < machine_.devices(); ++d) {
    const Ticks left = work_limit_[d] - loads_.work[d];
    if (left >= rest.smallest_shard) room += left;
    free[0] += machine_.capacity[d] - loads_.bytes[d];
  }
  if (rest.work > room) return false;
  for (std::uint32_t h = 0; h < machine_.hosts(); ++h) {
    for (std::size_t r = 1; r < kTiers; ++r) {
      free[r] += machine_.host_capacity[h][r] - loads_.host_bytes[h][r];
    }
  }
  Int128 priced_room = room << kPriceShift;
  for (std::size_t r = 0; r < kTiers; ++r) {
    if (rest.bytes[r] > free[r]) return false;
    priced_room += static_cast<Int128>(free[r]) * prices_.byte[r];
  }
  if (rest.priced > priced_room) return false;
  return std::all_of(grains_.begin(), grains_.end(), [&](const Grain& grain) {
    return grain.rest[depth] <= GrainRoom(grain, priced_room);
  });
}

Search::Answer Search::Descend(std::size_t depth) {
  if (depth == tables_.size()) return Answer::kPlan;
  operations_ += machine_.devices();
  if (operations_ > stop_at_) return Answer::kUnknown;
  if (!HasRoom(depth)) return Answer::kNone;
  const int detours = detours_left_;
  Answer answer = Answer::kNone;
  for (const std::uint32_t option : order_of_[depth]) {
    answer = TryOption(depth, option);
    if (answer != Answer::kNone) break;
    detours_left_ = detours - 1;  // For all but the first.
    if (detours == 0) {
      left_out_ = true;
      break;
    }
  }
  detours_left_ = detours;
  return answer;
}

Search::Answer Search::TryOption(std::size_t depth, std::uint32_t number) {
  const std::uint32_t table = tables_[depth];
  const Option& option = options_.of(table)[number];
  Choice& choice = choices_[table];
  choice.option = number;
  choice.targets.clear();
  if (option.shape == Shape::kHostRows || option.shape == Shape::kGrid) {
    return PlaceRows(depth, option, 0);
  }
  if (option.shape != Shape::kEverywhere) return PlaceShards(depth, option, 0, Ranked(table));
  const DeviceSet& set = options_.devices_of(table);
  std::size_t placed = 0;
  Answer answer = Answer::kNone;
  while (placed < set.devices.size() && FitsShard(option, set.devices[placed])) {
    loads_.AddShard(option, set.devices[placed++], +1);
  }
  operations_ += static_cast<std::int64_t>(placed);
  if (placed == set.devices.size()) answer = Descend(depth + 1);
  if (answer == Answer::kPlan) return answer;
  while (placed > 0) loads_.AddShard(option, set.devices[--placed], -1);
  return answer;
}

std::vector<std::uint32_t> Search::Ranked(std::uint32_t table) const {
  std::vector<std::uint32_t> ranked = options_.devices_of(table).devices;
  const bool fullest = order_ == Order::kFullestFirst;
  std::stable_sort(ranked.begin(), ranked.end(), [&](std::uint32_t a, std::uint32_t b) {
    const Ticks x = work_limit_[a] - loads_.work[a], y = work_limit_[b] - loads_.work[b];
    return fullest ? x < y : x > y;
  });
  return ranked;
}

bool Search::MayJoin(std::uint32_t table, const Option& option, std::uint32_t device) const {
  const Layout::Targets& taken = choices_[table].targets;
  if (taken.empty()) return true;
  const std::uint32_t host = machine_.host_of[device];
  if (option.shape == Shape::kOneHost && machine_.host_of[taken.front()] != host) return false;
  const Spread spread = options_.spread_of[table];
  if (spread == Spread::kAny) return true;
  return std::none_of(taken.begin(), taken.end(), [&](std::uint32_t other) {
    return other == device || (spread == Spread::kHosts && machine_.host_of[other] == host);
  });
}

Search::Answer Search::PlaceShards(std::size_t depth, const Option& option, std::size_t first_rank,
                                   const std::vector<std::uint32_t>& ranked) {
  const std::uint32_t table = tables_[depth];
  Layout::Targets& targets = choices_[table].targets;
  if (targets.size() == option.shards) return Descend(depth + 1);
  const int detours = detours_left_;
  bool first = true;
  for (std::size_t i = first_rank; i < ranked.size(); ++i) {
    const std::uint32_t device = ranked[i];
    ++operations_;
    if (!FitsShard(option, device) || !MayJoin(table, option, device)) continue;
    // With a rule on distance, devices differ by the shards they already have of this table.
    const bool same_before =
        (options_.spread_of[table] == Spread::kAny || targets.empty()) &&
        std::any_of(ranked.begin() + static_cast<std::ptrdiff_t>(first_rank),
                    ranked.begin() + static_cast<std::ptrdiff_t>(i), [&](std::uint32_t other) {
                      return SameDevice(other, device) && MayJoin(table, option, other);
                    });
    operations_ += static_cast<std::int64_t>((i - first_rank) / 4);
    if (same_before) continue;
    if (!first && detours == 0) {
      left_out_ = true;
      break;
    }
    detours_left_ = first ? detours : detours - 1;
    first = false;
    loads_.AddShard(option, device, +1);
    targets.push_back(device);
    const Answer answer = PlaceShards(depth, option, i, ranked);
    if (answer == Answer::kPlan) return answer;
    targets.pop_back();
    loads_.AddShard(option, device, -1);
    detours_left_ = detours;
    if (answer == Answer::kUnknown) return answer;
  }
  return Answer::kNone;
}

Search::Answer Search::PlaceRows(std::size_t depth, const Option& option, std::size_t first) {
  const std::uint32_t table = tables_[depth];
  const auto& hosts = options_.devices_of(table).full_hosts;
  Layout::Targets& targets = choices_[table].targets;
  if (targets.size() == option.cut.column_blocks) return Descend(depth + 1);
  const bool apart = options_.spread_of[table] != Spread::kAny;
  for (std::size_t i = first; i < hosts.size(); ++i) {
    operations_ += machine_.devices_of(hosts[i]);
    if (machine_.devices_of(hosts[i]) != option.cut.row_blocks || !FitsRow(option, hosts[i])) {
      continue;
    }
    if (apart && !targets.empty() && targets.back() == hosts[i]) continue;
    if (!(apart && !targets.empty()) &&
        std::any_of(hosts.begin() + static_cast<std::ptrdiff_t>(first),
                    hosts.begin() + static_cast<std::ptrdiff_t>(i),
                    [&](std::uint32_t other) { return SameHost(other, hosts[i]); })) {
      continue;
    }
    loads_.AddRow(option, hosts[i], +1);
    targets.push_back(hosts[i]);
    const Answer answer = PlaceRows(depth, option, i);
    if (answer == Answer::kPlan) return answer;
    targets.pop_back();
    loads_.AddRow(option, hosts[i], -1);
    if (answer == Answer::kUnknown) return answer;
  }
  return Answer::kNone;
}

bool Search::FitsShard(const Option& option, std::uint32_t device) const {
  if (loads_.work[device] + option.work > work_limit_[device] ||
      loads_.bytes[device] + option.bytes[0] > machine_.capacity[device]) {
    return false;
  }
  const std::uint32_t host = machine_.host_of[device];
  const TierBytes& capacity = machine_.host_capacity[host];
  return loads_.network[host] + option.host_work <= z_ &&
         loads_.host_bytes[host][1] + option.bytes[1] <= capacity[1] &&
         loads_.host_bytes[host][2] + option.bytes[2] <= capacity[2];
}

bool Search::FitsRow(const Option& option, std::uint32_t host) const {
  const std::int64_t count = option.cut.row_blocks;
  if (loads_.network[host] + option.host_work * count > z_) return false;
  for (std::size_t r = 1; r < kTiers; ++r) {
    if (loads_.host_bytes[host][r] + option.bytes[r] * count > machine_.host_capacity[host][r]) {
      return false;
    }
  }
  for (std::uint32_t d = machine_.host_begin[host]; d < machine_.host_begin[host + 1]; ++d) {
    if (loads_.work[d] + option.work > work_limit_[d] ||
        loads_.bytes[d] + option.bytes[0] > machine_.capacity[d]) {
      return false;
    }
  }
  return true;
}

bool Search::SameDevice(std::uint32_t a, std::uint32_t b) const {
  if (loads_.work[a] != loads_.work[b] || loads_.bytes[a] != loads_.bytes[b] ||
      class_of_[a] != class_of_[b])
    return false;
  return !hosts_matter_ || SameHost(machine_.host_of[a], machine_.host_of[b]);
}

bool Search::SameHost(std::uint32_t a, std::uint32_t b) const {
  if (a == b) return true;
  const std::uint32_t count = machine_.devices_of(a);
  if (count != machine_.devices_of(b) || loads_.network[a] != loads_.network[b] ||
      loads_.host_bytes[a] != loads_.host_bytes[b] ||
      machine_.host_capacity[a] != machine_.host_capacity[b]) {
    return false;
  }
  // The same devices, in any order.
  using Key = std::tuple<Ticks, std::int64_t, std::uint32_t>;
  absl::InlinedVector<Key, 16> x, y;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t d = machine_.host_begin[a] + i, e = machine_.host_begin[b] + i;
    x.emplace_back(loads_.work[d], loads_.bytes[d], class_of_[d]);
    y.emplace_back(loads_.work[e], loads_.bytes[e], class_of_[e]);
  }
  std::sort(x.begin(), x.end());
  std::sort(y.begin(), y.end());
  return x == y;
}

}  // namespace embla::planner
