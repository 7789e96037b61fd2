#include "tests/fault/base4_ledger.h"

#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla::fault {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr LedgerShape kShape{
    .trainers = 2, .columns_per_trainer = 1, .blocks = 2, .rows_per_block = 2};

// A table that applies what it is told.
class Table {
 public:
  void Apply(const Base4Ledger& ledger, const Digit& digit) {
    for (int i = 0; i < kShape.rows_per_block; ++i) {
      weights[ledger.RowOf(digit.block, i) * kShape.dim() + digit.column] += digit.value;
    }
  }
  std::vector<float> weights = std::vector<float>(kShape.rows() * kShape.dim());
};

TEST(DigitsOf, CountsEachUpdateOfACell) {
  EXPECT_THAT(*DigitsOf(0), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(*DigitsOf(1 + 3 * 4 + 2 * 256), ElementsAre(1, 3, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(*DigitsOf(16777215), ElementsAre(3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3));
}

TEST(DigitsOf, RefusesWhatNoUpdatesAddUpTo) {
  for (const float value : {-1.0f, 0.5f, 16777216.0f, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_FALSE(DigitsOf(value).has_value()) << value;
  }
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
  EXPECT_EQ(ledger.acknowledged(), 2u * 2 * kDigits);
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

TEST(Base4LedgerCheck, FindsAnUpdateThatWasNeverSent) {
  Base4Ledger ledger(kShape);
  Table table;
  table.Apply(ledger, {.number = 0, .block = 0, .column = 1, .value = 1});
  const std::vector<Damage> damage = ledger.Check(table.weights);
  ASSERT_EQ(damage.size(), 1u);
  EXPECT_EQ(damage[0].kind, Damage::Kind::kGhost);
}

}  // namespace
}  // namespace embla::fault
