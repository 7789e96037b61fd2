#include "tests/fault/base4_ledger.h"

#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla::fault::base4_ledger_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr LedgerShape kShape{
    .trainers = 2, .cells_per_trainer = 1, .blocks = 2, .rows_per_block = 2};

// A table that applies what it is told.
class Table {
 public:
  void Apply(const Base4Ledger& ledger, const Digit& digit) {
    for (int i = 0; i < kShape.rows_per_block; ++i) {
      weights[ledger.RowOf(digit.block, i) * kShape.cells() + digit.cell] += digit.value();
    }
  }
  std::vector<float> weights = std::vector<float>(kShape.rows() * kShape.cells());
};

TEST(TimesApplied, CountsEachUpdateOfACell) {
  for (const auto& [position, times] : {std::pair(0, 1), {1, 3}, {2, 0}, {4, 2}, {11, 0}}) {
    EXPECT_EQ(TimesApplied(1 + 3 * 4 + 2 * 256, position, 12), times) << position;
    EXPECT_EQ(TimesApplied(16777215, position, 12), 3) << position;
  }
}

TEST(TimesApplied, RefusesWhatNoUpdatesAddUpTo) {
  for (const float value : {-1.0f, 0.5f, 16777216.0f, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_FALSE(TimesApplied(value, 0, 12).has_value()) << value;
  }
  EXPECT_FALSE(TimesApplied(256, 0, 4).has_value());
  EXPECT_EQ(TimesApplied(255, 3, 4), 3);
}

// Every update of `trainer`, but the `lost`th.
void TrainFully(Base4Ledger& ledger, int trainer, std::optional<std::uint64_t> lost,
                std::vector<float>& cells) {
  while (const auto digit = ledger.Begin(trainer)) {
    ledger.Acknowledge(trainer, digit->number);
    if (digit->number == lost) continue;
    for (int i = 0; i < ledger.shape().rows_per_block; ++i) {
      cells[ledger.RowOf(digit->block, i) * ledger.shape().cells() + digit->cell] += digit->value();
    }
  }
}

TEST(Base4LedgerCheck, KeepsTrainersApartThatShareACell) {
  constexpr LedgerShape kShared{.trainers = 3,
                                .cells_per_trainer = 1,
                                .blocks = 2,
                                .rows_per_block = 2,
                                .digits = 4,
                                .one_cell = true};
  Base4Ledger ledger(kShared);
  std::vector<float> cells(kShared.rows());
  TrainFully(ledger, 0, std::nullopt, cells);
  TrainFully(ledger, 1, 6, cells);
  TrainFully(ledger, 2, std::nullopt, cells);
  const std::vector<Damage> damage = ledger.Check(cells);
  ASSERT_EQ(damage.size(), 1u);
  EXPECT_EQ(damage[0].kind, Damage::Kind::kLost);
  EXPECT_EQ(damage[0].trainer, 1);
  EXPECT_EQ(damage[0].number, 6u);
}

TEST(Base4LedgerCheck, IsContentWithEveryUpdateOnceUntilTheTableIsFull) {
  Base4Ledger ledger(kShape);
  Table table;
  for (int trainer = 0; trainer < kShape.trainers; ++trainer) {
    while (const auto digit = ledger.Begin(trainer)) {
      table.Apply(ledger, *digit);
      ledger.Acknowledge(trainer, digit->number);
    }
  }
  EXPECT_TRUE(ledger.IsFull());
  EXPECT_EQ(ledger.acknowledged(), 2u * 2 * 12);
  EXPECT_THAT(ledger.Check(table.weights), IsEmpty());
}

TEST(Base4LedgerCheck, NamesTheUpdateThatIsLost) {
  Base4Ledger ledger(kShape);
  Table table;
  for (int k = 0; k < 20; ++k) {
    const Digit digit = *ledger.Begin(1);
    if (k != 13) table.Apply(ledger, digit);
    ledger.Acknowledge(1, digit.number);
  }
  const std::vector<Damage> damage = ledger.Check(table.weights);
  ASSERT_EQ(damage.size(), 1u);
  EXPECT_EQ(damage[0].kind, Damage::Kind::kLost);
  EXPECT_EQ(damage[0].trainer, 1);
  EXPECT_EQ(damage[0].number, 13u);
  EXPECT_THAT(damage[0].rows, ElementsAre(1, 3));  // Block 1.
}

TEST(Base4LedgerCheck, NamesTheUpdateThatIsDoubled) {
  Base4Ledger ledger(kShape);
  Table table;
  for (int k = 0; k < 20; ++k) {
    const Digit digit = *ledger.Begin(0);
    for (int times = 0; times < (k == 5 ? 2 : 1); ++times) table.Apply(ledger, digit);
    ledger.Acknowledge(0, digit.number);
  }
  const std::vector<Damage> damage = ledger.Check(table.weights);
  ASSERT_EQ(damage.size(), 1u);
  EXPECT_EQ(damage[0].kind, Damage::Kind::kDoubled);
  EXPECT_EQ(damage[0].number, 5u);
}

TEST(Base4LedgerCheck, TakesAnOpenUpdateOnceOrNotAtAllButNotTwice) {
  for (const int times : {0, 1, 2}) {
    Base4Ledger ledger(kShape);
    Table table;
    const Digit digit = *ledger.Begin(0);
    for (int i = 0; i < times; ++i) table.Apply(ledger, digit);
    ledger.LeaveOpen(0, digit.number);
    EXPECT_EQ(ledger.Check(table.weights).size(), times == 2 ? 1u : 0u) << times;
  }
}

TEST(Base4Ledger, FindsWhatAProcessThatIsGoneLeftBehind) {
  const std::string path = ::testing::TempDir() + "/gone.ledger";
  std::filesystem::remove(path);
  {
    const auto ledger = *Base4Ledger::Open(kShape, path);
    ledger->Acknowledge(1, ledger->Begin(1)->number);
    ASSERT_TRUE(ledger->Begin(1).has_value());
  }
  const auto ledger = *Base4Ledger::Open(kShape, path);
  ledger->LeaveAllOpen(1);
  EXPECT_EQ(ledger->acknowledged(), 1u);
  EXPECT_EQ(ledger->left_open(), 1u);
  EXPECT_EQ(ledger->Begin(1)->number, 2u);
  std::filesystem::remove(path);
}

TEST(Base4LedgerCheck, HoldsAnUpdateOfAClosedSessionToWhatItWasThen) {
  for (const bool was_there : {false, true}) {
    for (const bool is_there : {false, true}) {
      Base4Ledger ledger(kShape);
      Table then, now;
      const Digit digit = *ledger.Begin(0);
      ledger.LeaveOpen(0, digit.number);
      if (was_there) then.Apply(ledger, digit);
      if (is_there) now.Apply(ledger, digit);
      ASSERT_EQ(ledger.Open(0).size(), 1u);
      // Block 0 has rows 0 and 2.
      std::vector<float> block(then.weights.begin(), then.weights.begin() + kShape.cells());
      block.insert(block.end(), then.weights.begin() + 2 * kShape.cells(),
                   then.weights.begin() + 3 * kShape.cells());
      ledger.Settle(0, digit, block);
      EXPECT_TRUE(ledger.Open(0).empty());
      const std::vector<Damage> damage = ledger.Check(now.weights);
      if (was_there == is_there) {
        EXPECT_THAT(damage, IsEmpty());
        continue;
      }
      ASSERT_EQ(damage.size(), 1u);
      EXPECT_EQ(damage[0].kind, was_there ? Damage::Kind::kLost : Damage::Kind::kLate);
      EXPECT_THAT(damage[0].rows, ElementsAre(0, 2));
    }
  }
}

TEST(Base4LedgerCheck, FindsAnUpdateThatWasNeverSent) {
  Base4Ledger ledger(kShape);
  Table table;
  table.Apply(ledger, {.number = 0, .block = 0, .cell = 1, .position = 0});
  const std::vector<Damage> damage = ledger.Check(table.weights);
  ASSERT_EQ(damage.size(), 1u);
  EXPECT_EQ(damage[0].kind, Damage::Kind::kGhost);
}

}  // namespace
}  // namespace embla::fault::base4_ledger_test
