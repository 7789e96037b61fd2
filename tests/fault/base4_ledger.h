// The oracle of lost and doubled updates: base-4 digits (research on reliability, 3.4).
//
// Trainer t writes columns of its own. Its update number k adds 4^(k mod 12), exact in fp32, to one
// column of the rows of one block; twelve updates in a row share column and block. So the value of
// a cell, written in base 4, says how often each of its twelve updates was applied: digit k mod 12
// is 1 for an acknowledged update, 0 or 1 for one whose outcome nobody knows, 0 for one that was
// never sent, and 2 or 3 for one that was applied twice or more. Nothing can cancel out.
//
// The ids of a block lie all over the table, so one update touches many units.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "core/base/mutex.h"

namespace embla::fault {

struct LedgerShape {
  int trainers = 4;
  int columns_per_trainer = 4;
  int blocks = 384;
  int rows_per_block = 16;

  int dim() const { return trainers * columns_per_trainer; }
  int rows() const { return blocks * rows_per_block; }
};

inline constexpr int kDigits = 12;  // 4^12 = 2^24: what fp32 adds exactly.

// Where an update goes.
struct Digit {
  std::uint64_t number = 0;  // k, of its trainer.
  int block = 0;
  int column = 0;   // Of the table.
  float value = 0;  // 4^(k mod 12)
};

struct Damage {
  enum class Kind : std::uint8_t {
    kLost,     // Acknowledged, and not applied.
    kDoubled,  // Applied more than once.
    kGhost,    // Never sent, and applied.
  };
  Kind kind = Kind::kLost;
  int trainer = 0;
  std::uint64_t number = 0;  // k.
  std::vector<int> rows;     // Positions in the table.
  std::string Text() const;
};

// What one table must hold. Thread safety: every method may be called from any thread.
class Base4Ledger {
 public:
  explicit Base4Ledger(const LedgerShape& shape);

  const LedgerShape& shape() const { return shape_; }
  // Row `i` of `block`, as a position 0..rows()-1.
  int RowOf(int block, int i) const { return i * shape_.blocks + block; }

  // The trainer's next update, now pending. None: the table is full.
  std::optional<Digit> Begin(int trainer);
  void Acknowledge(int trainer, std::uint64_t number);
  // Given up: it may be applied or not, and for good only once all of its trainer's messages are
  // gone.
  void LeaveOpen(int trainer, std::uint64_t number);

  std::uint64_t acknowledged() const;
  std::uint64_t left_open() const;
  std::uint64_t begun(int trainer) const;
  bool IsFull() const;

  // What `weights`, rows() x dim() of the whole table, shows. Requires: nothing is pending.
  std::vector<Damage> Check(std::span<const float> weights) const;
  // What the rows of one block show of one trainer while it goes on; `weights` were read after
  // everything of `acknowledged_before` was acknowledged.
  std::vector<Damage> CheckBlock(int trainer, int block, std::span<const float> weights,
                                 std::span<const std::uint64_t> acknowledged_before) const;
  // Numbers of the block that are acknowledged now.
  std::vector<std::uint64_t> AcknowledgedIn(int trainer, int block) const;

 private:
  enum class State : std::uint8_t { kNever, kPending, kAcknowledged, kOpen };

  std::uint64_t capacity() const {
    return static_cast<std::uint64_t>(kDigits) * shape_.blocks * shape_.columns_per_trainer;
  }
  Digit DigitOf(int trainer, std::uint64_t number) const;
  void Set(int trainer, std::uint64_t number, State state);

  const LedgerShape shape_;

  mutable Mutex mu_;
  std::vector<std::vector<State>> updates_ ABSL_GUARDED_BY(mu_);  // By trainer, by number.
  std::uint64_t acknowledged_ ABSL_GUARDED_BY(mu_) = 0;
  std::uint64_t left_open_ ABSL_GUARDED_BY(mu_) = 0;
};

// How often each of a cell's updates was applied; none: the value is no sum of powers of 4.
std::optional<std::vector<int>> DigitsOf(float value);

}  // namespace embla::fault
