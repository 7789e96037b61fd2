// The log over crashes: the death of the process and the loss of power at every operation on the
// disk, with unsynced bytes lost, torn at sectors and reordered; and random lives of a log.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "server/log/node_log.h"
#include "server/log/testing/log_model.h"
#include "server/log/testing/simulated_storage.h"

namespace embla::node_log_crash_test {
namespace {

using ::embla::testing::IsOk;

// Small, so that a script meets rotations and truncations.
NodeLogOptions SmallSegments() {
  NodeLogOptions options;
  options.segment_bytes_max = 4096;
  options.group_bytes_max = 2048;
  options.sync_delay = absl::InfiniteDuration();  // Syncs come from levels alone: few, and known.
  return options;
}

std::unique_ptr<NodeLog> Open(SimulatedStorage& disk, LogModel& model, NodeLogOptions options) {
  options.needed_from = model.needed_from();
  auto log = NodeLog::Open(disk, options, model.Sink());
  EXPECT_THAT(log, IsOk());
  return log.ok() ? *std::move(log) : nullptr;
}

LogModel::Record RandomRecord(std::mt19937_64& random) {
  LogModel::Record record;
  record.is_control = random() % 5 == 0;
  record.level = record.is_control ? Durability::kSynced
                                   : Durability{static_cast<std::uint8_t>(1 + random() % 3)};
  record.kind = static_cast<std::uint16_t>(random());
  record.payload = RandomPayload(random, random() % 4 == 0 ? 3000 : 300);
  return record;
}

void TruncateAt(NodeLog& log, LogModel& model, std::mt19937_64& random) {
  const auto next = static_cast<std::uint64_t>(log.next_lsn());
  const LogLsn keep_from{1 + random() % next};
  model.MayTruncate(keep_from);
  static_cast<void>(log.Truncate(keep_from));
}

// Appends `count` records, each told of before the next, until one fails; truncates in between.
void RunScript(NodeLog& log, LogModel& model, int count, std::mt19937_64& random) {
  for (int i = 0; i < count; ++i) {
    if (!model.Append(log, RandomRecord(random)).ok() || model.WaitUntilTold() > 0) return;
    if (i % 9 == 8) TruncateAt(log, model, random);
  }
}

constexpr int kScriptRecords = 30;

struct Crash {
  DiskFault fault;
  bool power;
};

// Runs the script with a failure at `operation`, then checks two recoveries. False: the script
// ended before that operation.
bool CrashOnce(const Crash& crash, std::uint64_t operation, std::uint64_t seed) {
  SCOPED_TRACE(::testing::Message() << "operation " << operation << " fault " << int(crash.fault)
                                    << " power " << crash.power << " seed " << seed);
  std::mt19937_64 random(seed);
  SimulatedStorage disk;
  LogModel model;
  const NodeLogOptions options = SmallSegments();
  disk.FailAt(operation, crash.fault);
  if (auto log = NodeLog::Open(disk, options, model.Sink()); log.ok()) {
    RunScript(**log, model, kScriptRecords, random);
  }
  const bool reached = disk.operations() >= operation;
  const auto die = [&] { crash.power ? disk.LosePower(random) : disk.Restart(); };
  const Durability survives = crash.power ? Durability::kSynced : Durability::kWritten;
  die();
  for (int life = 0; life < 2 && !::testing::Test::HasFatalFailure(); ++life) {
    const auto log = Open(disk, model, options);
    if (log == nullptr) return false;
    model.ExpectRecovered(log->recovery(), life == 0 ? survives : Durability::kQueued);
    if (life == 0) RunScript(*log, model, 10, random);
    EXPECT_THAT(log->Close(), IsOk());
    disk.LosePower(random);  // A closed log loses nothing, whatever its life began with.
  }
  return reached;
}

void CrashEverywhere(const Crash& crash, int seeds) {
  std::uint64_t operation = 1;
  bool reached = true;
  for (; reached && !::testing::Test::HasFailure(); ++operation) {
    reached = false;
    for (int seed = 0; seed < seeds && !::testing::Test::HasFailure(); ++seed) {
      reached = CrashOnce(crash, operation, operation * 1000 + seed) || reached;
    }
  }
  EXPECT_GT(operation, 60u) << "the script met too few operations";
}

TEST(NodeLogCrash, NothingAcknowledgedIsLostWhenTheProcessDiesAtAnyOperation) {
  CrashEverywhere({DiskFault::kDeath, false}, 3);
}

TEST(NodeLogCrash, NothingSyncedIsLostWhenThePowerFailsAtAnyOperation) {
  CrashEverywhere({DiskFault::kDeath, true}, 10);
}

TEST(NodeLogCrash, NothingAcknowledgedIsLostWhenAnyOperationFails) {
  CrashEverywhere({DiskFault::kError, false}, 3);
}

TEST(NodeLogCrash, NothingSyncedIsLostWhenAnyOperationFailsAndThenThePower) {
  CrashEverywhere({DiskFault::kError, true}, 5);
}

TEST(NodeLogCrash, NothingIsLostWhenTheDiskIsFullAtAnyOperation) {
  CrashEverywhere({DiskFault::kFull, false}, 3);
  CrashEverywhere({DiskFault::kFull, true}, 5);
}

std::uint64_t FirstSeed() {
  const char* const text = std::getenv("EMBLA_TEST_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

// One life of a log: several threads append and truncate until a failure at a random operation or
// the end.
void Live(NodeLog& log, LogModel& model, std::uint64_t seed) {
  constexpr int kThreads = 3;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&log, &model, seed, i] {
      std::mt19937_64 random(seed * kThreads + static_cast<std::uint64_t>(i));
      for (int n = 0; n < 25; ++n) {
        const absl::Status status = model.Append(log, RandomRecord(random));
        if (absl::IsUnavailable(status)) return;
        if (i == 0 && n % 10 == 9) TruncateAt(log, model, random);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  model.WaitUntilTold();
}

TEST(NodeLogCrash, RandomLivesOfALogAgainstItsModel) {
  const std::uint64_t first = FirstSeed();
  for (std::uint64_t seed = first; seed < first + 40 && !HasFailure(); ++seed) {
    SCOPED_TRACE(::testing::Message() << "EMBLA_TEST_SEED=" << seed);
    std::mt19937_64 random(seed);
    SimulatedStorage disk;
    LogModel model;
    NodeLogOptions options = SmallSegments();
    Durability survives = Durability::kQueued;
    for (int life = 0; life < 8 && !HasFailure(); ++life) {
      options.sync_delay = random() % 2 == 0 ? absl::ZeroDuration() : absl::InfiniteDuration();
      auto log = Open(disk, model, options);
      ASSERT_NE(log, nullptr);
      model.ExpectRecovered(log->recovery(), survives);
      const DiskFault faults[] = {DiskFault::kError, DiskFault::kFull, DiskFault::kDeath};
      disk.FailAt(1 + random() % 120, faults[random() % 3]);
      Live(*log, model, random());
      survives = Durability::kWritten;
      if (random() % 3 == 0 && log->Close().ok()) survives = Durability::kQueued;
      log.reset();
      if (random() % 2 == 0) {
        if (survives == Durability::kWritten) survives = Durability::kSynced;
        disk.LosePower(random);
      } else {
        disk.Restart();
      }
    }
  }
  RecordProperty("first_seed", std::to_string(first));
}

}  // namespace
}  // namespace embla::node_log_crash_test
