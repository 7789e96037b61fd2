// Closed sessions cost a journal little, and a restart knows them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/base/testing/status_matchers.h"
#include "server/journal/testing/journaled_node.h"
#include "server/shard/session_gate.h"

namespace embla::testing {
namespace {

constexpr std::uint64_t kBoot = std::uint64_t{5} << 32;

JournaledNode::Options Options() {
  JournaledNode::Options options;
  options.node.name = "n0";
  options.node.devices.assign(1, {.kind = DeviceKind::kCpu, .memory_bytes = 1 << 26});
  return options;
}

// No two of them are neighbours.
ClosedSessions Nth(std::uint64_t n) {
  ClosedSessions closed;
  closed.refused.Insert(SessionId{kBoot + 2 * n + 2});
  if (n > 0) closed.settled.Insert(SessionId{kBoot + 2 * n});
  return closed;
}

class ClosedSessionsJournal : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(ClosedSessionsJournal, TakesAsMuchForOneSessionHoweverManyAreClosed) {
  JournaledNode subject(Options());
  for (std::uint64_t n = 0; n < GetParam(); ++n) {
    ASSERT_THAT(subject.node().CloseSessions(Nth(n)), IsOk());
  }
  const ClosedSessions before = subject.node().sessions().closed();
  subject.Kill();
  subject.Start();
  EXPECT_EQ(subject.node().sessions().closed(), before);
  EXPECT_EQ(before.refused.size(), GetParam());
  EXPECT_LT(subject.journal().recovery().bytes, 128 * GetParam() + 65536);
}

TEST_P(ClosedSessionsJournal, TakesNothingForWhatItHasAlready) {
  JournaledNode subject(Options());
  ClosedSessions all;
  for (std::uint64_t n = 0; n < GetParam(); ++n) all.Include(Nth(n));
  for (int round = 0; round < 10; ++round) {
    ASSERT_THAT(subject.node().CloseSessions(all), IsOk());
  }
  subject.Kill();
  subject.Start();
  EXPECT_LT(subject.journal().recovery().bytes, 48 * GetParam() + 65536);
}

TEST(JournalProgress, SaysHowFarAStartHasCome) {
  JournaledNode::Options options = Options();
  std::vector<JournalProgress> told;
  options.journal.on_progress = [&](const JournalProgress& progress) { told.push_back(progress); };
  options.journal.progress_every = absl::ZeroDuration();
  JournaledNode subject(options);
  for (std::uint64_t n = 0; n < 20; ++n) ASSERT_THAT(subject.node().CloseSessions(Nth(n)), IsOk());
  subject.Kill();
  told.clear();
  subject.Start();
  const JournalRecovery& recovery = subject.journal().recovery();
  ASSERT_EQ(told.size(), recovery.records);
  for (std::size_t i = 1; i < told.size(); ++i) {
    EXPECT_EQ(told[i].records, told[i - 1].records + 1);
    EXPECT_GE(told[i].bytes, told[i - 1].bytes);
  }
  EXPECT_EQ(told.back().bytes, recovery.bytes);
}

INSTANTIATE_TEST_SUITE_P(Closes, ClosedSessionsJournal, ::testing::Values(1500, 20'000));

}  // namespace
}  // namespace embla::testing
