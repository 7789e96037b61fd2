// The machine finds every planted fault, and names it.
#include "gtest/gtest.h"
#include "tools/ptx_run/planted.h"

namespace embla::ptx_run {
namespace {

TEST(PtxRun, FindsNothingWhereNothingIsWrong) { EXPECT_EQ(RunWithoutFault(), 0); }

TEST(PtxRunDeathTest, FindsAMissingSyncWarp) {
  EXPECT_DEATH(RunWithoutSyncWarp(), "SumNeighboursKernel.*a race: ");
}

TEST(PtxRunDeathTest, FindsOneElementTooMany) {
  EXPECT_DEATH(RunPastTheEnd(), "CopyNextKernel.*block 1.0 thread 63: an access out of bounds");
}

TEST(PtxRunDeathTest, FindsBlocksThatRace) {
  EXPECT_DEATH(RunBlocksThatRace(),
               "NameBlockKernel.*block 1.0 thread 0: a race: writes what another thread wrote");
}

TEST(PtxRunDeathTest, FindsMisalignedAccesses) {
  EXPECT_DEATH(RunMisaligned(), "CopyWideKernel.*thread 1: a misaligned access");
}

TEST(PtxRunDeathTest, FindsWritesOfConstants) {
  EXPECT_DEATH(RunWriteOfConstant(), "reads as constant what this launch wrote");
}

TEST(PtxRunDeathTest, FindsLanesThatNeverCome) {
  EXPECT_DEATH(RunWithoutALane(), "waits for threads that never come");
}

TEST(PtxRunDeathTest, FindsAccessesOfFreedMemory) {
  EXPECT_DEATH(RunOutsideOfMemory(), "CopyNextKernel.*an access out");
}

}  // namespace
}  // namespace embla::ptx_run
