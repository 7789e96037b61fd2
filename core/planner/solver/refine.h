// Lowers the work of a balanced plan whose memory is the narrow place.
//
// If memory is tight, load is easy to even out; a plan stays above its bound because of work that
// better options would save, had they room. A change gives one table an option with less work and,
// where the free memory is not enough in sum, another table one with fewer bytes, as long as both
// together save work. The newcomer may overfill its devices at first: shards then leave them, or
// change places with smaller ones, at the least growth of the squared loads per byte. A change
// stays if everything fits again and the peak can be brought back to where it was. Every change
// that stays lowers the sum of work, so the search ends. Covered by solve_test.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/planner/solver/layout.h"
#include "core/planner/solver/pack.h"

namespace embla::planner {

class Refiner {
 public:
  // `layout` is complete and fits; `target` is the load that packing aims at.
  Refiner(std::unique_ptr<Layout> layout, PackRule rule, Ticks target);

  // Until the peak is at most `goal`, no change helps, or `budget` operations are spent.
  void Run(Ticks goal, std::int64_t budget);

  // The object is spent afterwards.
  std::unique_ptr<Layout> Release() { return std::move(layout_); }
  std::int64_t operations() const { return operations_; }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  // One table takes a better option; perhaps another one makes room.
  struct Change {
    Ticks saved = 0;  // Work, of both together.
    std::uint32_t table = kNone, option = 0;
    std::uint32_t donor = kNone, donor_option = 0;

    bool operator==(const Change&) const = default;
  };
  // A shard or column block that leaves an overfull device, and what moves there in exchange.
  struct Step {
    Int128 score = 0;  // Growth of the squared loads per byte of overflow taken away.
    Layout::Item item, back;
    std::uint32_t to = kNone;
    bool swaps = false;
  };

  // An option of a table that saves work, and the bytes it takes more.
  struct Better {
    Ticks saved;
    std::int64_t bytes;
    std::uint32_t table, option;
  };
  // One that frees bytes, and the work it costs more.
  struct Donor {
    std::int64_t freed;
    Ticks lost;
    std::uint32_t table, option;
  };
  struct Offers {
    std::vector<Better> better;
    std::vector<Donor> donors;
  };
  Offers FindOffers();
  // The changes that save most, most first.
  std::vector<Change> FindChanges();
  // Whether the change was possible, and kept.
  bool Try(const Change& change, Ticks goal, std::int64_t budget);
  // Evens the trial out; keeps it if it has less work and no higher peak than the plan.
  bool Keep(std::unique_ptr<Layout> trial, PackRule rule, Ticks goal, std::int64_t budget);
  Int128 Work(const Layout& layout) const;  // Sum over all tables.
  bool Apply(const Change& change, Layout* trial);
  // Puts the option where most memory is free, whether it fits or not.
  void PlaceOverfull(std::uint32_t table, std::uint32_t option, Layout* trial);
  bool Repair(Layout* trial);
  bool Relieve(std::uint32_t device, Layout* trial);
  void ConsiderItems(std::uint32_t device, std::uint32_t to, const Layout& trial, Step* best);
  void ConsiderRows(std::uint32_t device, const Layout& trial, Step* best);
  void Offer(const Step& step, std::int64_t bytes, std::int64_t overflow, Int128 growth,
             Step* best) const;
  // Growth of the sum of squared load ratios when `work` moves from one device to another.
  Int128 Growth(const Layout& trial, std::uint32_t from, std::uint32_t to, Ticks work) const;

  const OptionSet& options_;
  const Machine& machine_;
  const PackRule rule_;
  const Ticks target_;
  std::unique_ptr<Layout> layout_;
  std::int64_t per_load_ = 0;   // Reciprocal of the peak.
  std::int64_t per_bytes_ = 0;  // Reciprocal of the mean device memory.
  std::int64_t operations_ = 0;
};

}  // namespace embla::planner
