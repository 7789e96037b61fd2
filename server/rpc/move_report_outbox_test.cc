// Reports of moves that wait while the coordinator is away.
#include "server/rpc/move_report_outbox.h"

#include <vector>

#include "gtest/gtest.h"

namespace embla {
namespace {

TEST(MoveReportOutbox, DropsWhatIsBeyondItsBoundAndKeepsTheOldest) {
  MoveReportOutbox outbox;
  constexpr std::size_t kMax = MoveReportOutbox::kReportsMax;
  for (std::uint32_t n = 0; n < kMax + 100; ++n) {
    outbox.Report({UnitReport{.unit = {TableId{1}, n, 0}}});
  }
  const std::vector<UnitReport> first = outbox.Take(kMax + 100);
  ASSERT_EQ(first.size(), kMax);
  EXPECT_EQ(first.front().unit.row_granule, 0u);
  EXPECT_EQ(first.back().unit.row_granule, kMax - 1);
  EXPECT_TRUE(outbox.empty());
  outbox.Report({UnitReport{}});
  EXPECT_EQ(outbox.Take(1).size(), 1u);
}

}  // namespace
}  // namespace embla
