// The log in a directory of the file system: failures and the death of the process at every
// failpoint, a full disk, threads.
#include "server/log/log_storage.h"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/base/failpoint.h"
#include "core/base/testing/file_failures.h"
#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/testing/temp_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/log/node_log.h"
#include "server/log/testing/log_model.h"

namespace embla {
namespace {

using ::embla::testing::DieAtEveryFileOperation;
using ::embla::testing::FailEveryFileOperation;
using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::embla::testing::TempDirectory;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The last one is for large records.
constexpr const char* kAllPoints[] = {"file.open",   "file.write", "file.sync",  "file.dir_sync",
                                      "log.reserve", "log.rename", "log.remove", "log.direct"};
constexpr std::span kPoints = std::span(kAllPoints).first<std::size(kAllPoints) - 1>();

NodeLogOptions SmallSegments() {
  NodeLogOptions options;
  options.segment_bytes_max = 600;
  options.sync_delay = absl::InfiniteDuration();
  return options;
}

// An open log and the numbers that its records held.
struct OpenLog {
  std::unique_ptr<DirectoryLogStorage> storage;
  std::vector<int> numbers;
  std::unique_ptr<NodeLog> log;
};

// Records of `payload_bytes`: from kLargeBytes on they go past the page cache, where that works.
constexpr std::size_t kLargeBytes = std::size_t{64} << 10;

absl::Status OpenIn(const std::string& directory, OpenLog* open, std::size_t payload_bytes = 100,
                    LogLsn needed_from = LogLsn{1}) {
  auto storage = DirectoryLogStorage::Open(directory, {.large_bytes = kLargeBytes});
  if (!storage.ok()) return storage.status();
  open->storage = *std::move(storage);
  NodeLogOptions options = SmallSegments();
  options.segment_bytes_max *= payload_bytes / 100;
  options.needed_from = needed_from;
  auto log = NodeLog::Open(*open->storage, options, [&](const LogRecordView& record) {
    open->numbers.push_back(std::stoi(std::string(record.payload)));
    return absl::OkStatus();
  });
  if (!log.ok()) return log.status();
  open->log = *std::move(log);
  return absl::OkStatus();
}

constexpr int kScriptRecords = 12;
constexpr int kTruncatedEvery = 5;

// Logs 1, 2, 3, ... synced until something fails, truncating now and then; `acked` tells each.
void RunScriptOf(std::size_t payload_bytes, const std::string& directory,
                 const std::function<void(int)>& acked) {
  OpenLog open;
  if (!OpenIn(directory, &open, payload_bytes).ok()) return;
  for (int i = 1; i <= kScriptRecords; ++i) {
    const std::string payload = std::to_string(i) + std::string(payload_bytes, ' ');
    const absl::StatusOr<LogLsn> lsn = open.log->WriteControl(1, payload);
    if (!lsn.ok()) return;
    acked(i);
    if (i % kTruncatedEvery == 0 && !open.log->Truncate(*lsn).ok()) return;
  }
}

void RunScript(const std::string& directory, const std::function<void(int)>& acked) {
  RunScriptOf(100, directory, acked);
}
void RunLargeScript(const std::string& directory, const std::function<void(int)>& acked) {
  RunScriptOf(2 * kLargeBytes, directory, acked);
}

// The newest acknowledged record is there, and all between the first and the last that are.
void ExpectRecovered(const std::string& directory, int acked) {
  const int first = std::max(1, acked / kTruncatedEvery * kTruncatedEvery);
  const int marks = (first - 1) / kTruncatedEvery;  // Before the first one that is needed.
  OpenLog open;
  const absl::Status status =
      OpenIn(directory, &open, 100, LogLsn{static_cast<std::uint64_t>(first + marks)});
  ASSERT_THAT(status, IsOk());
  const std::vector<int>& numbers = open.numbers;
  if (acked > 0) {
    ASSERT_FALSE(numbers.empty());
    EXPECT_GE(numbers.back(), acked);
  }
  for (std::size_t i = 1; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], numbers[i - 1] + 1);
  if (!numbers.empty()) {
    EXPECT_LE(numbers.back(), acked + 1);
    EXPECT_EQ(numbers.front(), first);
  }
  EXPECT_THAT(open.log->WriteControl(1, "0"), IsOk());
}

class DirectoryLog : public ::testing::Test {
 protected:
  void TearDown() override { ClearFailpoints(); }
};

TEST_F(DirectoryLog, ASecondOpenerIsRefused) {
  const TempDirectory directory;
  const auto first = DirectoryLogStorage::Open(directory.path());
  ASSERT_THAT(first, IsOk());
  EXPECT_EQ(DirectoryLogStorage::Open(directory.path()).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(DirectoryLog, NoAcknowledgedRecordIsLostWhenAnyFileOperationFails) {
  FailEveryFileOperation(kPoints, RunScript, ExpectRecovered);
}

TEST_F(DirectoryLog, NoAcknowledgedRecordIsLostWhenTheProcessDiesAtAnyFileOperation) {
  DieAtEveryFileOperation(kPoints, RunScript, ExpectRecovered);
}

TEST_F(DirectoryLog, AReadThatFailsNamesTheFileSaysWhatToDoAndChangesNothing) {
  const TempDirectory directory;
  RunScript(directory.path(), [](int) {});
  const LogLsn needed_from{11};  // Record 10, behind a mark.
  std::vector<int> expected;
  {
    OpenLog open;
    ASSERT_THAT(OpenIn(directory.path(), &open, 100, needed_from), IsOk());
    expected = open.numbers;
  }
  ASSERT_EQ(expected.size(), 3u);
  int failed = 0;
  for (std::uint64_t read = 1;; ++read) {
    SCOPED_TRACE(read);
    SetFailpoint("file.read", FailpointAction::kError, read);
    absl::Status status;
    {
      OpenLog refused;
      status = OpenIn(directory.path(), &refused, 100, needed_from);
    }
    const bool has_failed = FailpointUses("file.read") >= read;
    ClearFailpoints();
    if (!has_failed) break;
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                                 AllOf(HasSubstr("cannot read " + directory.path() + "/"),
                                       HasSubstr("Input/output error"), HasSubstr("start again"),
                                       HasSubstr("runbook.md"))));
    ++failed;
    OpenLog open;
    ASSERT_THAT(OpenIn(directory.path(), &open, 100, needed_from), IsOk());
    EXPECT_EQ(open.numbers, expected);
  }
  EXPECT_GT(failed, 3);
}

bool TakesDirectWrites() { return DirectWriter::Works(TempDirectory().path()); }

TEST_F(DirectoryLog, NoLargeRecordIsLostWhenAnyFileOperationFails) {
  if (!TakesDirectWrites()) GTEST_SKIP() << "temporary files are written through the page cache";
  FailEveryFileOperation(kAllPoints, RunLargeScript, ExpectRecovered);
}

TEST_F(DirectoryLog, NoLargeRecordIsLostWhenTheProcessDiesAtAnyFileOperation) {
  if (!TakesDirectWrites()) GTEST_SKIP() << "temporary files are written through the page cache";
  DieAtEveryFileOperation(kAllPoints, RunLargeScript, ExpectRecovered);
}

// Appends of every size, in pieces of any, with a part cut off now and then, are there as written.
void ExpectFilesAsWritten(const std::string& directory) {
  std::mt19937_64 random(testing::TestSeed());
  const auto storage = DirectoryLogStorage::Open(directory, {.large_bytes = kLargeBytes});
  ASSERT_THAT(storage, IsOk());
  for (int round = 0; round < 4; ++round) {
    const std::string name = "file-" + std::to_string(round);
    auto file = (*storage)->Open(name, 0);
    ASSERT_THAT(file, IsOk());
    // A name does not lead to a file that had it before.
    ASSERT_THAT((*storage)->Rename(name, "renamed"), IsOk());
    std::string want;
    for (int append = 0; append < 30; ++append) {
      const std::size_t sizes[] = {0, 1, 4096, kLargeBytes, std::size_t{3} << 20};
      std::string data(random() % (sizes[random() % 5] + 1) + sizes[random() % 4], '\0');
      for (std::size_t i = 0; i < data.size(); i += 8) data[i] = static_cast<char>(random());
      std::vector<std::string_view> pieces;
      for (std::string_view left = data; !left.empty();) {
        pieces.push_back(left.substr(0, 1 + random() % (left.size() + 1)));
        left.remove_prefix(pieces.back().size());
      }
      ASSERT_THAT((*file)->Append(pieces), IsOk());
      want += data;
      if (random() % 8 == 0) {
        want.resize(random() % (want.size() + 1));
        ASSERT_THAT((*file)->Truncate(want.size()), IsOk());
      }
      if (random() % 4 == 0) {
        ASSERT_THAT((*file)->Sync(), IsOk());
      }
      (*file)->BeginSync();
      ASSERT_EQ((*file)->size(), want.size());
    }
    const auto content = (*storage)->Read("renamed");
    ASSERT_THAT(content, IsOk());
    ASSERT_EQ(content->size(), want.size());
    EXPECT_TRUE(*content == want);
  }
}

TEST_F(DirectoryLog, FilesHaveWhatWasAppendedPastThePageCacheOrThroughIt) {
  const TempDirectory directory;
  ExpectFilesAsWritten(directory.path());
}

// The same on a disk, where the test's own directory is one of memory.
TEST_F(DirectoryLog, FilesOnADiskHaveWhatWasAppended) {
  const std::string directory =
      std::filesystem::temp_directory_path() / ("embla-log-test-" + std::to_string(::getpid()));
  ExpectFilesAsWritten(directory);
  std::filesystem::remove_all(directory);
}

// A file size limit stands for a full disk: no segment finds room.
TEST_F(DirectoryLog, AFullDiskRefusesUpdatesAndHeals) {
  const TempDirectory directory;
  OpenLog open;
  ASSERT_THAT(OpenIn(directory.path(), &open), IsOk());
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit full{100, limit.rlim_max};
  LogModel model;
  LogModel::Record update;
  update.level = Durability::kSynced;
  update.payload = "1";
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  const absl::Status accepted = model.Append(*open.log, update);
  const std::size_t refused = model.WaitUntilTold();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_THAT(accepted, IsOk());
  EXPECT_EQ(refused, 1u);
  EXPECT_THAT(open.log->WriteControl(1, "2"), IsOk());
  open.log.reset();
  open = OpenLog();
  ASSERT_THAT(OpenIn(directory.path(), &open), IsOk());
  EXPECT_EQ(open.numbers, std::vector<int>{2});
}

TEST_F(DirectoryLog, ThreadsAppendAtEveryLevelAndNothingIsMissingOrOutOfOrder) {
  constexpr int kThreads = 4;
  constexpr int kRecords = 300;
  const TempDirectory directory;
  NodeLogOptions options;
  options.segment_bytes_max = 16384;
  options.sync_delay = absl::ZeroDuration();
  LogModel model;
  const auto storage = DirectoryLogStorage::Open(directory.path());
  ASSERT_THAT(storage, IsOk());
  {
    auto log = NodeLog::Open(**storage, options, model.Sink());
    ASSERT_THAT(log, IsOk());
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        std::mt19937_64 random(static_cast<std::uint64_t>(thread));
        for (int i = 0; i < kRecords; ++i) {
          LogModel::Record record;
          record.is_control = i % 10 == 0;
          record.level = record.is_control ? Durability::kSynced
                                           : Durability{static_cast<std::uint8_t>(1 + i % 3)};
          record.payload = RandomPayload(random, 200);
          EXPECT_THAT(model.Append(**log, record), IsOk());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(model.WaitUntilTold(), 0u);
    EXPECT_GT((*log)->segment_count(), 3u);
    EXPECT_THAT((*log)->Close(), IsOk());
  }
  const auto log = NodeLog::Open(**storage, options, model.Sink());
  ASSERT_THAT(log, IsOk());
  model.ExpectRecovered((*log)->recovery(), Durability::kQueued);
  EXPECT_EQ(model.size(), std::size_t{kThreads * kRecords});
}

}  // namespace
}  // namespace embla
