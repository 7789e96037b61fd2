#include "tests/fault/base4_ledger.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace embla::fault {
namespace {

constexpr std::size_t kRowsShown = 4;
constexpr int kDigitsMax = 12;
constexpr int kStateBits = 8;  // Bits of the state in an update's word.

const char* NameOf(Damage::Kind kind) {
  switch (kind) {
    case Damage::Kind::kLost:
      return "LOST";
    case Damage::Kind::kDoubled:
      return "DOUBLED";
    case Damage::Kind::kGhost:
      return "NEVER SENT, BUT APPLIED";
    case Damage::Kind::kLate:
      return "APPLIED AFTER ITS SESSION WAS CLOSED";
  }
  return "";
}

// Gathers damage by update.
class Findings {
 public:
  void Add(Damage::Kind kind, int trainer, std::uint64_t number, int row) {
    Damage& damage = found_[{trainer, number, kind}];
    damage.kind = kind;
    damage.trainer = trainer;
    damage.number = number;
    damage.rows.push_back(row);
  }
  std::vector<Damage> Take() {
    std::vector<Damage> all;
    for (auto& [key, damage] : found_) all.push_back(std::move(damage));
    return all;
  }

 private:
  std::map<std::tuple<int, std::uint64_t, Damage::Kind>, Damage> found_;
};

// Digits of a cell: its own trainer's, or all trainers'.
int DigitsOf(const LedgerShape& shape) {
  return shape.digits * (shape.one_cell ? shape.trainers : 1);
}

}  // namespace

std::string Damage::Text() const {
  const std::vector<int> shown(rows.begin(), rows.begin() + std::min(rows.size(), kRowsShown));
  return absl::StrCat(NameOf(kind), " trainer ", trainer, " update ", number, " in ", rows.size(),
                      " rows: ", absl::StrJoin(shown, ", "),
                      shown.size() < rows.size() ? ", ..." : "");
}

std::optional<int> TimesApplied(float value, int position, int digits) {
  const float end = std::ldexp(1.0f, 2 * digits);
  if (!(value >= 0) || value >= end || value != std::floor(value)) return std::nullopt;
  return static_cast<int>(static_cast<std::uint32_t>(value) >> 2 * position & 3);
}

std::uint64_t Base4Ledger::CapacityOf(const LedgerShape& shape) {
  return static_cast<std::uint64_t>(shape.digits) * shape.blocks * shape.cells_per_trainer;
}

std::size_t Base4Ledger::WordsOf(const LedgerShape& shape) {
  return shape.trainers * (1 + CapacityOf(shape));
}

Base4Ledger::Base4Ledger(const LedgerShape& shape)
    : Base4Ledger(shape, SharedMemory::Private(WordsOf(shape))) {}

Base4Ledger::Base4Ledger(const LedgerShape& shape, SharedMemory memory)
    : shape_(shape), capacity_(CapacityOf(shape)), memory_(std::move(memory)) {
  EMBLA_CHECK(DigitsOf(shape) <= kDigitsMax && (!shape.one_cell || shape.cells_per_trainer == 1));
  EMBLA_CHECK(shape.rows_per_block <= 64 - kStateBits);
}

absl::StatusOr<std::unique_ptr<Base4Ledger>> Base4Ledger::Open(const LedgerShape& shape,
                                                               const std::string& path) {
  EMBLA_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Open(path, WordsOf(shape)));
  return std::unique_ptr<Base4Ledger>(new Base4Ledger(shape, std::move(memory)));
}

Digit Base4Ledger::DigitOf(int trainer, std::uint64_t number) const {
  const std::uint64_t cell = number / shape_.digits;
  Digit digit;
  digit.number = number;
  digit.block = BlockOf(number);
  digit.position = static_cast<int>(number % shape_.digits);
  if (shape_.one_cell) {
    digit.position += trainer * shape_.digits;
  } else {
    digit.cell = trainer * shape_.cells_per_trainer + static_cast<int>(cell / shape_.blocks);
  }
  return digit;
}

SharedMemory::Word& Base4Ledger::WordOf(int trainer, std::uint64_t number) const {
  return memory_.words()[shape_.trainers + trainer * capacity_ + number];
}

std::optional<Digit> Base4Ledger::Begin(int trainer) {
  SharedMemory::Word& begun = memory_.words()[trainer];
  const std::uint64_t number = begun.load();
  if (number == capacity_) return std::nullopt;
  WordOf(trainer, number).store(static_cast<std::uint64_t>(State::kPending));
  begun.store(number + 1);
  return DigitOf(trainer, number);
}

void Base4Ledger::End(int trainer, std::uint64_t number, State state) {
  EMBLA_CHECK(StateOf(trainer, number) == State::kPending);
  WordOf(trainer, number).store(static_cast<std::uint64_t>(state));
}

void Base4Ledger::Acknowledge(int trainer, std::uint64_t number) {
  End(trainer, number, State::kAcknowledged);
}

void Base4Ledger::LeaveOpen(int trainer, std::uint64_t number) {
  End(trainer, number, State::kOpen);
}

// One may be pending that is not counted as begun: its process was killed in between, before it
// sent anything. It begins again.
void Base4Ledger::LeaveAllOpen(int trainer) {
  for (std::uint64_t number = 0; number < begun(trainer); ++number) {
    if (StateOf(trainer, number) == State::kPending) LeaveOpen(trainer, number);
  }
}

std::vector<Digit> Base4Ledger::Open(int trainer) const {
  std::vector<Digit> open;
  for (std::uint64_t number = 0; number < begun(trainer); ++number) {
    if (StateOf(trainer, number) == State::kOpen) open.push_back(DigitOf(trainer, number));
  }
  return open;
}

void Base4Ledger::Settle(int trainer, const Digit& digit, std::span<const float> cells) {
  EMBLA_CHECK(StateOf(trainer, digit.number) == State::kOpen);
  std::uint64_t word = static_cast<std::uint64_t>(State::kSettled);
  for (int i = 0; i < shape_.rows_per_block; ++i) {
    const float value = cells[static_cast<std::size_t>(i) * shape_.cells() + digit.cell];
    if (TimesIn(digit, value) > 0) word |= std::uint64_t{1} << (kStateBits + i);
  }
  WordOf(trainer, digit.number).store(word);
}

std::uint64_t Base4Ledger::Count(State state) const {
  std::uint64_t count = 0;
  for (int trainer = 0; trainer < shape_.trainers; ++trainer) {
    for (std::uint64_t number = 0; number < begun(trainer); ++number) {
      count += StateOf(trainer, number) == state ? 1 : 0;
    }
  }
  return count;
}

std::uint64_t Base4Ledger::acknowledged() const { return Count(State::kAcknowledged); }

std::uint64_t Base4Ledger::left_open() const { return Count(State::kOpen); }

bool Base4Ledger::IsFull() const {
  for (int trainer = 0; trainer < shape_.trainers; ++trainer) {
    if (begun(trainer) == capacity_) return true;
  }
  return false;
}

// A value that is no sum of powers of 4 was overflown by repetitions.
int Base4Ledger::TimesIn(const Digit& digit, float value) const {
  return TimesApplied(value, digit.position, DigitsOf(shape_)).value_or(2);
}

std::optional<Damage::Kind> Base4Ledger::Judge(int trainer, std::uint64_t number, int i,
                                               int times) const {
  const std::uint64_t word = number < begun(trainer) ? WordOf(trainer, number).load() : 0;
  const auto state = static_cast<State>(word & 0xff);
  EMBLA_CHECK(state != State::kPending);
  const bool was_there = (word >> (kStateBits + i) & 1) != 0;
  const bool is_promised = state == State::kAcknowledged || (state == State::kSettled && was_there);
  if (times > 0 && state == State::kNever) return Damage::Kind::kGhost;
  if (times > 1) return Damage::Kind::kDoubled;
  if (times == 0 && is_promised) return Damage::Kind::kLost;
  if (times > 0 && state == State::kSettled && !was_there) return Damage::Kind::kLate;
  return std::nullopt;
}

std::vector<Damage> Base4Ledger::Check(std::span<const float> cells) const {
  EMBLA_CHECK(cells.size() == static_cast<std::size_t>(shape_.rows()) * shape_.cells());
  Findings findings;
  for (int trainer = 0; trainer < shape_.trainers; ++trainer) {
    for (std::uint64_t number = 0; number < capacity_; ++number) {
      const Digit digit = DigitOf(trainer, number);
      for (int i = 0; i < shape_.rows_per_block; ++i) {
        const int row = RowOf(digit.block, i);
        const float value = cells[static_cast<std::size_t>(row) * shape_.cells() + digit.cell];
        const auto damage = Judge(trainer, number, i, TimesIn(digit, value));
        if (damage.has_value()) findings.Add(*damage, trainer, number, row);
      }
    }
  }
  return findings.Take();
}

std::vector<std::uint64_t> Base4Ledger::AcknowledgedIn(int trainer, int block) const {
  std::vector<std::uint64_t> numbers;
  for (int cell = 0; cell < shape_.cells_per_trainer; ++cell) {
    const std::uint64_t first =
        (static_cast<std::uint64_t>(cell) * shape_.blocks + block) * shape_.digits;
    for (std::uint64_t number = first;
         number < std::min<std::uint64_t>(first + shape_.digits, begun(trainer)); ++number) {
      if (StateOf(trainer, number) == State::kAcknowledged) numbers.push_back(number);
    }
  }
  return numbers;
}

std::vector<Damage> Base4Ledger::CheckBlock(
    int trainer, int block, std::span<const float> cells,
    std::span<const std::uint64_t> acknowledged_before) const {
  Findings findings;
  for (int i = 0; i < shape_.rows_per_block; ++i) {
    const float* const row = cells.data() + static_cast<std::size_t>(i) * shape_.cells();
    for (const std::uint64_t number : acknowledged_before) {
      const Digit digit = DigitOf(trainer, number);
      const int times = TimesIn(digit, row[digit.cell]);
      if (times == 0) findings.Add(Damage::Kind::kLost, trainer, number, RowOf(block, i));
      if (times > 1) findings.Add(Damage::Kind::kDoubled, trainer, number, RowOf(block, i));
    }
  }
  return findings.Take();
}

}  // namespace embla::fault
