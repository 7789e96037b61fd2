// The oracle of lost and doubled updates: base-4 digits.
//
// Trainer t writes cells of its own. Its update number k adds 4^(k mod n) to one cell of the rows
// of one block; n updates in a row share cell and block. So the value of a cell, written in base 4,
// says how often each of its n updates was applied: digit k mod n is 1 for an acknowledged update,
// 0 or 1 for one whose outcome nobody knows, 0 for one that was never sent, and 2 or 3 for one that
// was applied twice or more. Nothing can cancel out, as long as all sums below 4^n are exact:
// n = 12 in fp32 (24 bits of mantissa), 5 in fp16 (11 bits), 4 in bf16 (8 bits).
//
// A cell is a weight or, where a row has one number for all trainers, a statistic of the row: then
// trainer t has the digits t·n to t·n + n - 1 of it.
//
// The ids of a block lie all over the table, so one update touches many units.
//
// The state of each update lies in memory that outlives its trainer: a process that is killed
// leaves its updates pending, and the next one of the trainer calls them open. When their session
// is closed everywhere, it looks once at what became of each, row by row: that must not change any
// more.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/fault/shared_memory.h"

namespace embla::fault {

struct LedgerShape {
  int trainers = 4;
  int cells_per_trainer = 4;
  int blocks = 384;
  int rows_per_block = 16;
  int digits = 12;        // n: of one trainer in one cell.
  bool one_cell = false;  // A row has one cell, for all trainers; cells_per_trainer is 1.

  int cells() const { return one_cell ? 1 : trainers * cells_per_trainer; }
  int rows() const { return blocks * rows_per_block; }
};

// Destination of an update.
struct Digit {
  std::uint64_t number = 0;  // k, of its trainer.
  int block = 0;
  int cell = 0;      // Cell in each row.
  int position = 0;  // In the cell: the update adds 4^position.
  float value() const { return static_cast<float>(std::uint32_t{1} << 2 * position); }
};

struct Damage {
  enum class Kind : std::uint8_t {
    kLost,     // Acknowledged, and not applied.
    kDoubled,  // Applied more than once.
    kGhost,    // Never sent, and applied.
    kLate,     // Applied after its session was closed.
  };
  Kind kind = Kind::kLost;
  int trainer = 0;
  std::uint64_t number = 0;  // k.
  std::vector<int> rows;     // Positions in the table.
  std::string Text() const;
};

// The expected content of one table. Thread safety: every method may be called from any thread, and
// in every process; but only one process at a time has updates of a trainer.
class Base4Ledger {
 public:
  // In memory of this process, or in the file `path` that others map, too.
  explicit Base4Ledger(const LedgerShape& shape);
  static absl::StatusOr<std::unique_ptr<Base4Ledger>> Open(const LedgerShape& shape,
                                                           const std::string& path);

  const LedgerShape& shape() const { return shape_; }
  // Row `i` of `block`, as a position 0..rows()-1.
  int RowOf(int block, int i) const { return i * shape_.blocks + block; }
  // Block of the update `number` of any trainer.
  int BlockOf(std::uint64_t number) const {
    return static_cast<int>(number / shape_.digits % shape_.blocks);
  }

  // The trainer's next update, now pending. None: it has no more cells.
  std::optional<Digit> Begin(int trainer);
  void Acknowledge(int trainer, std::uint64_t number);
  // Given up: it may be applied or not, and for good only once all of its trainer's messages are
  // gone.
  void LeaveOpen(int trainer, std::uint64_t number);
  // All that are pending: their process is gone.
  void LeaveAllOpen(int trainer);
  std::vector<Digit> Open(int trainer) const;
  // An open update, whose session is closed: `cells` are those of its block's rows since then.
  void Settle(int trainer, const Digit& digit, std::span<const float> cells);

  std::uint64_t acknowledged() const;
  std::uint64_t left_open() const;
  std::uint64_t begun(int trainer) const { return memory_.words()[trainer].load(); }
  // Some trainer has no more cells.
  bool IsFull() const;

  // Returns the damage in `cells`, rows() x cells() of the whole table. Requires: nothing is
  // pending.
  std::vector<Damage> Check(std::span<const float> cells) const;
  // Returns the damage that the rows of one block show of one trainer while it goes on; `cells`
  // were read after everything of `acknowledged_before` was acknowledged.
  std::vector<Damage> CheckBlock(int trainer, int block, std::span<const float> cells,
                                 std::span<const std::uint64_t> acknowledged_before) const;
  // Numbers of the block that are acknowledged now.
  std::vector<std::uint64_t> AcknowledgedIn(int trainer, int block) const;

 private:
  enum class State : std::uint8_t { kNever, kPending, kAcknowledged, kOpen, kSettled };

  Base4Ledger(const LedgerShape& shape, SharedMemory memory);

  static std::size_t WordsOf(const LedgerShape& shape);
  static std::uint64_t CapacityOf(const LedgerShape& shape);
  Digit DigitOf(int trainer, std::uint64_t number) const;
  SharedMemory::Word& WordOf(int trainer, std::uint64_t number) const;
  // The lowest 8 bits of an update's word; above them, once it is settled, a bit for each row of
  // its block that it was applied to.
  State StateOf(int trainer, std::uint64_t number) const {
    return static_cast<State>(WordOf(trainer, number).load() & 0xff);
  }
  void End(int trainer, std::uint64_t number, State state);
  int TimesIn(const Digit& digit, float value) const;
  // Returns the damage, if any, of an update that row `i` of its block shows `times` times.
  std::optional<Damage::Kind> Judge(int trainer, std::uint64_t number, int i, int times) const;
  std::uint64_t Count(State state) const;

  const LedgerShape shape_;
  const std::uint64_t capacity_;  // Updates of one trainer.
  // By trainer, how many it has begun; then by trainer and number, the state.
  const SharedMemory memory_;
};

// How often the update at `position` of a cell with `digits` digits was applied; none: the value is
// no sum of powers of 4 below 4^digits.
std::optional<int> TimesApplied(float value, int position, int digits);

}  // namespace embla::fault
