#include "tests/fault/base4_ledger.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/check.h"

namespace embla::fault {
namespace {

constexpr std::size_t kRowsShown = 4;
constexpr float kValueEnd = 16777216.0f;  // 4^12

const char* NameOf(Damage::Kind kind) {
  switch (kind) {
    case Damage::Kind::kLost:
      return "LOST";
    case Damage::Kind::kDoubled:
      return "DOUBLED";
    case Damage::Kind::kGhost:
      return "NEVER SENT, BUT APPLIED";
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

}  // namespace

std::string Damage::Text() const {
  const std::vector<int> shown(rows.begin(), rows.begin() + std::min(rows.size(), kRowsShown));
  return absl::StrCat(NameOf(kind), " trainer ", trainer, " update ", number, " in ", rows.size(),
                      " rows: ", absl::StrJoin(shown, ", "),
                      shown.size() < rows.size() ? ", ..." : "");
}

std::optional<std::vector<int>> DigitsOf(float value) {
  if (!(value >= 0) || value >= kValueEnd || value != std::floor(value)) return std::nullopt;
  auto rest = static_cast<std::uint32_t>(value);
  std::vector<int> digits(kDigits);
  for (int& digit : digits) {
    digit = static_cast<int>(rest % 4);
    rest /= 4;
  }
  return digits;
}

Base4Ledger::Base4Ledger(const LedgerShape& shape) : shape_(shape), updates_(shape.trainers) {}

Digit Base4Ledger::DigitOf(int trainer, std::uint64_t number) const {
  const std::uint64_t cell = number / kDigits;
  Digit digit;
  digit.number = number;
  digit.block = static_cast<int>(cell % shape_.blocks);
  digit.column = trainer * shape_.columns_per_trainer + static_cast<int>(cell / shape_.blocks);
  digit.value = std::ldexp(1.0f, static_cast<int>(2 * (number % kDigits)));
  return digit;
}

std::optional<Digit> Base4Ledger::Begin(int trainer) {
  const MutexLock lock(mu_);
  std::vector<State>& updates = updates_[trainer];
  if (updates.size() == capacity()) return std::nullopt;
  updates.push_back(State::kPending);
  return DigitOf(trainer, updates.size() - 1);
}

void Base4Ledger::Set(int trainer, std::uint64_t number, State state) {
  const MutexLock lock(mu_);
  EMBLA_CHECK(updates_[trainer][number] == State::kPending);
  updates_[trainer][number] = state;
  ++(state == State::kAcknowledged ? acknowledged_ : left_open_);
}

void Base4Ledger::Acknowledge(int trainer, std::uint64_t number) {
  Set(trainer, number, State::kAcknowledged);
}

void Base4Ledger::LeaveOpen(int trainer, std::uint64_t number) {
  Set(trainer, number, State::kOpen);
}

std::uint64_t Base4Ledger::acknowledged() const {
  const MutexLock lock(mu_);
  return acknowledged_;
}

std::uint64_t Base4Ledger::left_open() const {
  const MutexLock lock(mu_);
  return left_open_;
}

std::uint64_t Base4Ledger::begun(int trainer) const {
  const MutexLock lock(mu_);
  return updates_[trainer].size();
}

bool Base4Ledger::IsFull() const {
  const MutexLock lock(mu_);
  return std::any_of(updates_.begin(), updates_.end(),
                     [this](const auto& updates) { return updates.size() == capacity(); });
}

std::vector<Damage> Base4Ledger::Check(std::span<const float> weights) const {
  EMBLA_CHECK(weights.size() == static_cast<std::size_t>(shape_.rows()) * shape_.dim());
  const MutexLock lock(mu_);
  Findings findings;
  for (int row = 0; row < shape_.rows(); ++row) {
    const int block = row % shape_.blocks;
    for (int column = 0; column < shape_.dim(); ++column) {
      const int trainer = column / shape_.columns_per_trainer;
      const std::uint64_t cell =
          static_cast<std::uint64_t>(column % shape_.columns_per_trainer) * shape_.blocks + block;
      const std::optional<std::vector<int>> digits =
          DigitsOf(weights[static_cast<std::size_t>(row) * shape_.dim() + column]);
      for (int d = 0; d < kDigits; ++d) {
        const std::uint64_t number = cell * kDigits + d;
        const State state =
            number < updates_[trainer].size() ? updates_[trainer][number] : State::kNever;
        EMBLA_CHECK(state != State::kPending);
        // A value that is no sum of powers of 4 below 4^12 was overflown by repetitions.
        const int times = digits.has_value() ? (*digits)[d] : 2;
        if (times == 0 && state == State::kAcknowledged) {
          findings.Add(Damage::Kind::kLost, trainer, number, row);
        } else if (times > 0 && state == State::kNever) {
          findings.Add(Damage::Kind::kGhost, trainer, number, row);
        } else if (times > 1) {
          findings.Add(Damage::Kind::kDoubled, trainer, number, row);
        }
      }
    }
  }
  return findings.Take();
}

std::vector<std::uint64_t> Base4Ledger::AcknowledgedIn(int trainer, int block) const {
  const MutexLock lock(mu_);
  std::vector<std::uint64_t> numbers;
  const std::vector<State>& updates = updates_[trainer];
  for (int column = 0; column < shape_.columns_per_trainer; ++column) {
    const std::uint64_t cell = static_cast<std::uint64_t>(column) * shape_.blocks + block;
    for (std::uint64_t number = cell * kDigits;
         number < std::min<std::uint64_t>((cell + 1) * kDigits, updates.size()); ++number) {
      if (updates[number] == State::kAcknowledged) numbers.push_back(number);
    }
  }
  return numbers;
}

std::vector<Damage> Base4Ledger::CheckBlock(
    int trainer, int block, std::span<const float> weights,
    std::span<const std::uint64_t> acknowledged_before) const {
  Findings findings;
  for (int i = 0; i < shape_.rows_per_block; ++i) {
    const float* const row = weights.data() + static_cast<std::size_t>(i) * shape_.dim();
    for (const std::uint64_t number : acknowledged_before) {
      const Digit digit = DigitOf(trainer, number);
      const std::optional<std::vector<int>> digits = DigitsOf(row[digit.column]);
      const int times = digits.has_value() ? (*digits)[number % kDigits] : 2;
      if (times == 0) findings.Add(Damage::Kind::kLost, trainer, number, RowOf(block, i));
      if (times > 1) findings.Add(Damage::Kind::kDoubled, trainer, number, RowOf(block, i));
    }
  }
  return findings.Take();
}

}  // namespace embla::fault
