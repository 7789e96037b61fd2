#include "core/planner/solver/refine.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "core/planner/solver/improve.h"
#include "core/planner/solver/ratio.h"

namespace embla::planner {
namespace {

constexpr std::size_t kChangesTried = 48;
constexpr std::size_t kDonors = 3;    // Per better option.
constexpr std::size_t kRoomiest = 8;  // Devices looked at when one is overfull.
constexpr int kLeastShift = 13;       // Changes that save less of all work are left out.
constexpr int kRepairSteps = 24;
// Price of a step beside its growth: (2^-9 of the peak)^2, in 2^-40.
constexpr std::int64_t kStepGrowth = std::int64_t{1} << 22;

std::int64_t FreeBytes(const Layout& layout, std::uint32_t device) {
  return layout.machine().capacity[device] - layout.bytes(device);
}

bool HostFits(const Layout& layout, std::uint32_t host) {
  const TierBytes& capacity = layout.machine().host_capacity[host];
  return layout.host_bytes(host, 1) <= capacity[1] && layout.host_bytes(host, 2) <= capacity[2];
}

}  // namespace

Refiner::Refiner(std::unique_ptr<Layout> layout, PackRule rule, Ticks target)
    : options_(layout->options()),
      machine_(layout->machine()),
      rule_(rule),
      target_(target),
      layout_(std::move(layout)),
      per_load_(Reciprocal(layout_->FindPeak().load)),
      per_bytes_(Reciprocal(machine_.TotalCapacity()[0] / machine_.devices())) {}

void Refiner::Run(Ticks goal, std::int64_t budget) {
  std::vector<Change> failed;
  bool kept_any = true;
  while (kept_any) {
    kept_any = false;
    failed.clear();
    for (bool kept = true; kept && operations_ < budget;) {
      kept = false;
      for (const Change& change : FindChanges()) {
        if (operations_ >= budget || layout_->FindPeak().load <= goal) break;
        if (std::find(failed.begin(), failed.end(), change) != failed.end()) continue;
        if (Try(change, goal, budget)) {
          kept = true;
          break;
        }
        failed.push_back(change);
      }
      kept_any |= kept;
    }
    if (operations_ >= budget || layout_->FindPeak().load <= goal) break;
  }
}

// Options that save work, by bytes descending, and options that free bytes for little work, by
// freed bytes descending.
Refiner::Offers Refiner::FindOffers() {
  Offers offers;
  const Ticks least = static_cast<Ticks>(Work(*layout_) >> kLeastShift);
  Ticks most = 0;
  for (std::uint32_t t = 0; t < options_.tables(); ++t) {
    const Option& now = layout_->option(t);
    const auto options = options_.of(t);
    const std::int64_t bytes = now.bytes[0] * now.shards;
    for (std::uint32_t o = 0; o < options.size(); ++o) {
      const std::int64_t more = options[o].bytes[0] * options[o].shards - bytes;
      const Ticks saved = now.total_work() - options[o].total_work();
      if (saved > least) {
        offers.better.push_back({saved, more, t, o});
        most = std::max(most, saved);
      } else if (saved <= 0 && more < 0) {
        offers.donors.push_back({-more, -saved, t, o});
      }
    }
  }
  operations_ += static_cast<std::int64_t>(options_.all.size()) * 2;
  std::erase_if(offers.donors, [most](const Donor& donor) { return donor.lost >= most; });
  std::sort(offers.donors.begin(), offers.donors.end(), [](const Donor& a, const Donor& b) {
    return std::tie(b.freed, a.lost, a.table, a.option) <
           std::tie(a.freed, b.lost, b.table, b.option);
  });
  std::sort(offers.better.begin(), offers.better.end(), [](const Better& a, const Better& b) {
    return std::tie(b.bytes, a.table, a.option) < std::tie(a.bytes, b.table, b.option);
  });
  return offers;
}

std::vector<Refiner::Change> Refiner::FindChanges() {
  const Offers offers = FindOffers();
  std::int64_t free = 0;
  for (std::uint32_t d = 0; d < machine_.devices(); ++d) free += FreeBytes(*layout_, d);
  // The donors that lose least of those that free enough, kept up while less and less is needed.
  std::vector<Donor> cheapest;
  auto next = offers.donors.begin();
  std::vector<Change> changes;
  for (const Better& one : offers.better) {
    if (one.bytes <= free) {
      changes.push_back({one.saved, one.table, one.option, kNone, 0});
      if (one.bytes <= 0) continue;
    }
    const std::int64_t need = std::max<std::int64_t>(one.bytes - free, 0);
    for (; next != offers.donors.end() && next->freed >= need; ++next) {
      const auto at = std::upper_bound(cheapest.begin(), cheapest.end(), next->lost,
                                       [](Ticks lost, const Donor& d) { return lost < d.lost; });
      if (at - cheapest.begin() >= static_cast<std::ptrdiff_t>(kDonors)) continue;
      cheapest.insert(at, *next);
      if (cheapest.size() > kDonors) cheapest.pop_back();
    }
    for (const Donor& donor : cheapest) {
      if (donor.table == one.table || donor.lost >= one.saved) continue;
      if (one.bytes <= free) break;
      changes.push_back({one.saved - donor.lost, one.table, one.option, donor.table, donor.option});
    }
  }
  const std::size_t n = std::min(kChangesTried, changes.size());
  std::partial_sort(changes.begin(), changes.begin() + static_cast<std::ptrdiff_t>(n),
                    changes.end(), [](const Change& a, const Change& b) {
                      return std::tie(b.saved, a.table, a.option, a.donor, a.donor_option) <
                             std::tie(a.saved, b.table, b.option, b.donor, b.donor_option);
                    });
  changes.resize(n);
  return changes;
}

bool Refiner::Try(const Change& change, Ticks goal, std::int64_t budget) {
  auto trial = std::make_unique<Layout>(*layout_);
  operations_ += std::int64_t{8} * options_.tables();
  if (Apply(change, trial.get()) && Repair(trial.get())) {
    return Keep(std::move(trial), rule_, goal, budget);
  }
  // Too much has to move: pack all anew, with these options.
  std::vector<std::uint32_t> picks(options_.tables());
  for (std::uint32_t t = 0; t < picks.size(); ++t) picks[t] = layout_->option_number(t);
  picks[change.table] = change.option;
  if (change.donor != kNone) picks[change.donor] = change.donor_option;
  for (const PackRule rule : {PackRule::kQuadratic, PackRule::kMaxNorm}) {
    trial = std::make_unique<Layout>(options_, machine_);
    Packer packer(*trial, rule, target_);
    const bool packed = packer.PlaceAll(picks);
    operations_ += packer.operations();
    if (packed && Keep(std::move(trial), rule, goal, budget)) return true;
  }
  return false;
}

Int128 Refiner::Work(const Layout& layout) const {
  Int128 work = 0;
  for (std::uint32_t t = 0; t < options_.tables(); ++t) work += layout.option(t).total_work();
  return work;
}

bool Refiner::Keep(std::unique_ptr<Layout> trial, PackRule rule, Ticks goal, std::int64_t budget) {
  const Ticks peak = layout_->FindPeak().load;
  const Int128 work = Work(*layout_);
  if (Work(*trial) >= work) return false;
  Improver improver(*trial, rule);
  improver.Run(std::max(goal, peak - peak / 4096), budget - operations_);
  operations_ += improver.operations();
  if (trial->FindPeak().load > peak || Work(*trial) >= work) return false;
  layout_ = std::move(trial);
  return true;
}

bool Refiner::Apply(const Change& change, Layout* trial) {
  Packer packer(*trial, rule_, trial->FindPeak().load);
  const auto place = [&](std::uint32_t table, std::uint32_t option) {
    trial->Remove(table);
    if (!packer.TryPlace(table, option)) PlaceOverfull(table, option, trial);
    return trial->placed(table);
  };
  const bool placed = (change.donor == kNone || place(change.donor, change.donor_option)) &&
                      place(change.table, change.option);
  operations_ += packer.operations();
  return placed;
}

void Refiner::PlaceOverfull(std::uint32_t table, std::uint32_t number, Layout* trial) {
  const Option& option = options_.of(table)[number];
  const DeviceSet& set = options_.devices_of(table);
  if (option.shape == Shape::kEverywhere) {
    trial->Place(table, number, {});
    return;
  }
  if (options_.spread_of[table] != Spread::kAny || option.shape == Shape::kOneHost) return;
  const bool rows = PlacementOf(option.shape) == Placement::kHosts;
  std::vector<std::pair<std::int64_t, std::uint32_t>> order;  // Less free bytes, target.
  if (rows) {
    for (const std::uint32_t h : set.full_hosts) {
      if (machine_.devices_of(h) != option.cut.row_blocks) continue;
      std::int64_t free = 0;
      for (std::uint32_t d = machine_.host_begin[h]; d < machine_.host_begin[h + 1]; ++d) {
        free += FreeBytes(*trial, d);
      }
      order.emplace_back(-free, h);
    }
  } else {
    for (const std::uint32_t d : set.devices) order.emplace_back(-FreeBytes(*trial, d), d);
  }
  operations_ += machine_.devices();
  std::sort(order.begin(), order.end());
  Layout::Targets targets;
  const std::uint32_t count = rows ? option.cut.column_blocks : option.shards;
  for (std::uint32_t i = 0; i < count && !order.empty(); ++i) {
    targets.push_back(order[i % order.size()].second);
  }
  if (targets.size() == count) trial->Place(table, number, targets);
}

bool Refiner::Repair(Layout* trial) {
  for (int step = 0; step < kRepairSteps; ++step) {
    std::uint32_t fullest = 0;
    for (std::uint32_t d = 1; d < machine_.devices(); ++d) {
      if (FreeBytes(*trial, d) < FreeBytes(*trial, fullest)) fullest = d;
    }
    operations_ += machine_.devices();
    if (FreeBytes(*trial, fullest) >= 0) {
      for (std::uint32_t h = 0; h < machine_.hosts(); ++h) {
        if (!HostFits(*trial, h)) return false;
      }
      return true;
    }
    if (!Relieve(fullest, trial)) return false;
  }
  return false;
}

Int128 Refiner::Growth(const Layout& trial, std::uint32_t from, std::uint32_t to,
                       Ticks work) const {
  const std::int64_t there = Ratio(trial.load(to), per_load_);
  const std::int64_t here = Ratio(trial.load(from), per_load_);
  const std::int64_t moved = work >= 0 ? Ratio(work, per_load_) : -Ratio(-work, per_load_);
  return 2 * static_cast<Int128>(moved) * (there - here + moved);
}

void Refiner::Offer(const Step& step, std::int64_t bytes, std::int64_t overflow, Int128 growth,
                    Step* best) const {
  const std::int64_t taken =
      std::max<std::int64_t>(1, Ratio(std::min(bytes, overflow), per_bytes_));
  const Int128 score = ((std::max<Int128>(growth, 0) + kStepGrowth) << 20) / taken;
  if (best->to != kNone && score >= best->score) return;
  *best = step;
  best->score = score;
}

void Refiner::ConsiderItems(std::uint32_t device, std::uint32_t to, const Layout& trial,
                            Step* best) {
  const std::int64_t free = FreeBytes(trial, to), overflow = -FreeBytes(trial, device);
  const bool one_host = machine_.host_of[device] == machine_.host_of[to];
  const auto may_lie = [&](Layout::Item item, std::uint32_t target) {
    const Option& option = trial.option(item.table);
    if (options_.devices_of(item.table).has[target] == 0) return false;
    if (options_.spread_of[item.table] != Spread::kAny) return false;
    return one_host || option.shape != Shape::kOneHost || option.shards == 1;
  };
  for (const Layout::Item mine : trial.items(device)) {
    const Option& a = trial.option(mine.table);
    if (a.bytes[0] == 0 || !may_lie(mine, to)) continue;
    if (a.bytes[0] <= free && trial.FitsDevice(to, a)) {
      Offer({0, mine, {}, to, false}, a.bytes[0], overflow, Growth(trial, device, to, a.work),
            best);
    }
    for (const Layout::Item theirs : trial.items(to)) {
      const Option& b = trial.option(theirs.table);
      const std::int64_t net = a.bytes[0] - b.bytes[0];
      if (net <= 0 || net > free) continue;
      // Host memory of two hosts at once is not worth its tests here.
      if (!one_host && a.bytes[1] + a.bytes[2] + b.bytes[1] + b.bytes[2] > 0) continue;
      if (theirs.table == mine.table || !may_lie(theirs, device)) continue;
      Offer({0, mine, theirs, to, true}, net, overflow, Growth(trial, device, to, a.work - b.work),
            best);
    }
    operations_ += static_cast<std::int64_t>(trial.items(to).size());
  }
}

void Refiner::ConsiderRows(std::uint32_t device, const Layout& trial, Step* best) {
  const std::uint32_t host = machine_.host_of[device];
  const std::int64_t overflow = -FreeBytes(trial, device);
  for (const Layout::Item item : trial.host_items(host)) {
    const Option& option = trial.option(item.table);
    if (options_.spread_of[item.table] != Spread::kAny || option.bytes[0] == 0) continue;
    for (const std::uint32_t to : options_.devices_of(item.table).full_hosts) {
      if (to == host || machine_.devices_of(to) != option.cut.row_blocks) continue;
      bool fits = trial.FitsHost(to, option, option.cut.row_blocks);
      for (std::uint32_t d = machine_.host_begin[to]; fits && d < machine_.host_begin[to + 1];
           ++d) {
        fits = option.bytes[0] <= FreeBytes(trial, d);
      }
      operations_ += machine_.devices_of(to);
      if (!fits) continue;
      const Int128 growth = Growth(trial, device, machine_.host_begin[to], option.work);
      Offer({0, item, {}, to, false}, option.bytes[0], overflow, growth, best);
    }
  }
}

bool Refiner::Relieve(std::uint32_t device, Layout* trial) {
  std::vector<std::pair<std::int64_t, std::uint32_t>> order;  // Less free bytes, device.
  for (std::uint32_t d = 0; d < machine_.devices(); ++d) {
    const std::int64_t free = FreeBytes(*trial, d);
    if (free > 0) order.emplace_back(-free, d);
  }
  const std::size_t n = std::min(kRoomiest, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n), order.end());
  operations_ += machine_.devices();
  Step best;
  for (std::size_t i = 0; i < n; ++i) ConsiderItems(device, order[i].second, *trial, &best);
  ConsiderRows(device, *trial, &best);
  if (best.to == kNone) return false;
  trial->Move(best.item.table, best.item.shard, best.to);
  if (best.swaps) trial->Move(best.back.table, best.back.shard, device);
  return true;
}

}  // namespace embla::planner
