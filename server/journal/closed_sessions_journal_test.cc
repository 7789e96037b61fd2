// Closed sessions cost a journal little, and a restart knows them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/base/mutex.h"
#include "core/base/testing/status_matchers.h"
#include "core/metrics/metrics.h"
#include "server/journal/recovery_progress.h"
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
  constexpr std::uint64_t kDirectoryBytes = 64 << 10;
  Metrics metrics;
  JournaledNode::Options options = Options();
  Mutex mu;
  std::vector<JournalProgress> told;
  options.journal.on_progress = [&](const JournalProgress& progress) {
    const MutexLock lock(mu);
    told.push_back(progress);
  };
  options.journal.progress_every = absl::ZeroDuration();
  options.journal.directory_bytes = kDirectoryBytes;
  options.journal.metrics = &metrics;
  JournaledNode subject(options);
  const NodeSpec self{
      .id = NodeId{1}, .name = "n0", .address = "h:1", .devices = options.node.devices};
  const auto plan = std::make_shared<const Plan>(PlanVersion{1}, "test", std::vector{self},
                                                 std::vector<TablePlan>());
  ASSERT_THAT(subject.node().InstallPlan(plan, self.id), IsOk());
  for (std::uint64_t n = 0; n < 20; ++n) ASSERT_THAT(subject.node().CloseSessions(Nth(n)), IsOk());
  ASSERT_THAT(subject.TakeSnapshot(), IsOk());
  for (std::uint64_t n = 20; n < 40; ++n) {
    ASSERT_THAT(subject.node().CloseSessions(Nth(n)), IsOk());
  }
  subject.Kill();
  told.clear();
  const std::uint64_t on_disk = subject.disk().bytes();
  subject.Start();
  const JournalRecovery& recovery = subject.journal().recovery();
  // The snapshot's end and head are read before any record is applied, then its rows: it is small.
  ASSERT_GT(told.size(), recovery.records);
  EXPECT_EQ(told.front().records, 0u);
  EXPECT_GT(told.front().read_bytes, 0u);
  for (std::size_t i = 1; i < told.size(); ++i) {
    EXPECT_GE(told[i].read_bytes, told[i - 1].read_bytes);
    EXPECT_LE(told[i].records, told[i - 1].records + 1);
    EXPECT_GE(told[i].bytes, told[i - 1].bytes);
  }
  EXPECT_EQ(told.back().records, recovery.records);
  EXPECT_EQ(told.back().bytes, recovery.bytes);
  EXPECT_GE(told.back().read_bytes, on_disk);
  EXPECT_LE(told.back().read_bytes, on_disk + 2 * recovery.snapshot_bytes + 100);
  EXPECT_EQ(metrics.MakeGauge(MetricNamed("embla_journal_recovery_ratio")).value(), 1);
  EXPECT_EQ(metrics.MakeGauge(MetricNamed("embla_journal_recovered_bytes")).value(),
            static_cast<double>(recovery.bytes));
}

TEST(JournalProgress, SaysPercentRateAndTime) {
  JournalProgress progress{.read_bytes = std::uint64_t{3} << 30,
                           .directory_bytes = std::uint64_t{8} << 30,
                           .elapsed = absl::Seconds(3)};
  EXPECT_EQ(progress.share(), 0.375);
  EXPECT_EQ(progress.Text(), "37 % of 8.00 GiB, read at 1.00 GiB/s, about 6 s left");
  progress.read_bytes = std::uint64_t{9} << 30;
  EXPECT_EQ(progress.share(), 1);
  progress.elapsed = absl::ZeroDuration();
  EXPECT_EQ(progress.Text(), "100 % of 8.00 GiB, read at 0 B/s");
  progress.directory_bytes = 0;
  EXPECT_EQ(progress.share(), 0);
  EXPECT_EQ(progress.Text(), "9.00 GiB, read at 0 B/s");
}

INSTANTIATE_TEST_SUITE_P(Closes, ClosedSessionsJournal, ::testing::Values(1500, 20'000));

}  // namespace
}  // namespace embla::testing
