#include "server/state_store/file_state_store.h"

#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/failpoint.h"
#include "core/base/testing/file_failures.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/testing/temp_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/state_store/state_store_conformance.h"

namespace embla {
namespace {

using ::embla::testing::DieAtEveryFileOperation;
using ::embla::testing::FailEveryFileOperation;
using ::embla::testing::IsOk;
using ::embla::testing::TempDirectory;
using ::testing::HasSubstr;
using Content = std::map<std::string, std::string>;

constexpr const char* kPoints[] = {"file.open",     "file.write",  "file.sync",
                                   "file.truncate", "file.rename", "file.dir_sync"};

class Directory {
 public:
  const std::string& path() const { return directory_.path(); }
  std::string log() const { return path() + "/log"; }
  std::string snapshot() const { return path() + "/snapshot"; }

 private:
  const TempDirectory directory_;
};

std::unique_ptr<FileStateStore> OpenOrDie(const std::string& directory,
                                          const FileStateStoreOptions& options = {}) {
  auto store = FileStateStore::Open(directory, options);
  EXPECT_THAT(store, IsOk());
  return store.ok() ? *std::move(store) : nullptr;
}

std::unique_ptr<FileStateStore> OpenOrDie(const Directory& directory,
                                          const FileStateStoreOptions& options = {}) {
  return OpenOrDie(directory.path(), options);
}

void Overwrite(const std::string& path, const std::string& content) {
  ASSERT_THAT(AtomicWriteFile(path, content), IsOk());
}

template <int kLogBytesMax>
class FileHarness {
 public:
  StateStore& store() { return *store_; }
  void Reopen() {
    store_.reset();
    store_ = OpenOrDie(directory_, kOptions);
  }

 private:
  const FileStateStoreOptions kOptions{.log_bytes_max = kLogBytesMax};
  Directory directory_;
  std::unique_ptr<FileStateStore> store_ = OpenOrDie(directory_, kOptions);
};

// One that hardly ever compacts, and one that does so at nearly every commit.
using Harnesses = ::testing::Types<FileHarness<1 << 22>, FileHarness<100>>;
INSTANTIATE_TYPED_TEST_SUITE_P(File, StateStoreConformance, Harnesses);

class FileStateStoreTest : public ::testing::Test {
 protected:
  void TearDown() override { ClearFailpoints(); }
  Directory directory_;
};

TEST_F(FileStateStoreTest, ASecondOpenerIsRefused) {
  const auto store = OpenOrDie(directory_);
  EXPECT_EQ(FileStateStore::Open(directory_.path()).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(FileStateStoreTest, CompactingKeepsTheLogShort) {
  const auto store = OpenOrDie(directory_, {.log_bytes_max = 2000});
  for (int i = 0; i < 200; ++i) CommitOne(*store, PutOf("key", std::string(100, 'x')));
  EXPECT_LT(std::filesystem::file_size(directory_.log()), 2300u);
  EXPECT_EQ(store->revision(), Revision{200});
}

TEST_F(FileStateStoreTest, RecoversFromACutAtAnyByteOfTheLog) {
  std::vector<Content> states = {{}};
  std::vector<std::uintmax_t> ends;
  {
    const auto store = OpenOrDie(directory_);
    ends.push_back(std::filesystem::file_size(directory_.log()));
    for (int i = 0; i < 3; ++i) {
      CommitOne(*store, PutOf("key" + std::to_string(i), "v"));
      states.push_back(ContentOf(*store));
      ends.push_back(std::filesystem::file_size(directory_.log()));
    }
  }
  const std::string log = *ReadFile(directory_.log());
  for (std::size_t cut = ends.front(); cut < log.size(); ++cut) {
    Overwrite(directory_.log(), log.substr(0, cut));
    std::size_t whole = 0;
    while (ends[whole + 1] <= cut) ++whole;
    {
      const auto store = OpenOrDie(directory_);
      ASSERT_EQ(ContentOf(*store), states[whole]) << cut;
      CommitOne(*store, PutOf("after", "recovery"));
    }
    ASSERT_EQ(OpenOrDie(directory_)->Get("after")->value, "recovery") << cut;
  }
}

TEST_F(FileStateStoreTest, CorruptionIsDataLossWithFileAndOffsetAndChangesNothing) {
  {
    const auto store = OpenOrDie(directory_);
    CommitOne(*store, PutOf("a", "1"));
    CommitOne(*store, PutOf("b", "2"));
  }
  std::string log = *ReadFile(directory_.log());
  log[50] = static_cast<char>(log[50] ^ 1);
  Overwrite(directory_.log(), log);
  const absl::Status status = FileStateStore::Open(directory_.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(directory_.log() + " is corrupt at offset 16"));
  EXPECT_EQ(*ReadFile(directory_.log()), log);
}

TEST_F(FileStateStoreTest, AMissingFileIsDataLoss) {
  { CommitOne(*OpenOrDie(directory_, {.log_bytes_max = 1}), PutOf("a", "1")); }
  const std::string log = *ReadFile(directory_.log());
  std::filesystem::remove(directory_.log());
  EXPECT_EQ(FileStateStore::Open(directory_.path()).status().code(), absl::StatusCode::kDataLoss);
  Overwrite(directory_.log(), log);
  std::filesystem::remove(directory_.snapshot());
  EXPECT_EQ(FileStateStore::Open(directory_.path()).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(FileStateStoreTest, AMissingFileOfAStoreThatWasNeverCompactedIsDataLossAndNoNewStore) {
  { CommitOne(*OpenOrDie(directory_), PutOf("a", "1")); }
  const std::string log = *ReadFile(directory_.log());
  const std::string snapshot = *ReadFile(directory_.snapshot());
  for (const bool both : {false, true}) {
    std::filesystem::remove(directory_.log());
    if (both) std::filesystem::remove(directory_.snapshot());
    const absl::Status status = FileStateStore::Open(directory_.path()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr((both ? directory_.snapshot() : directory_.log()) + " is missing, at offset 0"));
    EXPECT_FALSE(std::filesystem::exists(directory_.log()));  // Nothing was begun.
  }
  Overwrite(directory_.log(), log);
  Overwrite(directory_.snapshot(), snapshot);
  EXPECT_EQ(OpenOrDie(directory_)->Get("a")->value, "1");
}

// The directory looks like a copy of two files, or an older version's store.
TEST_F(FileStateStoreTest, AStoreWithoutTheWordThatItWasBegunGetsIt) {
  { CommitOne(*OpenOrDie(directory_), PutOf("a", "1")); }
  std::filesystem::remove(directory_.path() + "/begun");
  EXPECT_EQ(OpenOrDie(directory_)->Get("a")->value, "1");
  EXPECT_TRUE(std::filesystem::exists(directory_.path() + "/begun"));
}

TEST_F(FileStateStoreTest, AFailedSyncEndsWritingButNotReading) {
  const auto store = OpenOrDie(directory_);
  CommitOne(*store, PutOf("a", "1"));
  SetFailpoint("file.sync", FailpointAction::kError);
  const std::vector<StateWrite> writes = {PutOf("a", "2")};
  EXPECT_EQ(store->Commit({}, writes).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(store->Commit({}, writes).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(store->Get("a")->value, "1");
}

// A file size limit stands for a full disk.
TEST_F(FileStateStoreTest, AFullDiskRefusesTheCommitAndHeals) {
  const auto store = OpenOrDie(directory_);
  CommitOne(*store, PutOf("a", "1"));
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit full{std::filesystem::file_size(directory_.log()) + 10, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  const std::vector<StateWrite> writes = {PutOf("b", "2")};
  const absl::Status status = store->Commit({}, writes).status();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store->Get("b").status().code(), absl::StatusCode::kNotFound);
  CommitOne(*store, PutOf("c", "3"));
}

// --- Failures and crashes at every file operation. The script commits 1, 2, 3, ... to one key and
// compacts often, so every operation of the store is met.

constexpr int kScriptCommits = 8;
const FileStateStoreOptions kCompactOften{.log_bytes_max = 150};

// Runs the script until something fails; `acked` tells each acknowledged commit.
void RunScript(const std::string& directory, const std::function<void(int)>& acked) {
  auto store = FileStateStore::Open(directory, kCompactOften);
  if (!store.ok()) return;
  const auto last = (*store)->Get("n");
  const int begin = last.ok() ? std::stoi(last->value) : 0;
  for (int i = begin + 1; i <= begin + kScriptCommits; ++i) {
    const std::vector<StateWrite> writes = {PutOf("n", std::to_string(i)),
                                            PutOf("pad", std::string(40, 'p'))};
    if (!(*store)->Commit({}, writes).ok()) return;
    acked(i);
  }
}

// After the script ended in `directory` by a failure: nothing acknowledged is gone, at most the
// commit in flight is there too, and the store works.
void ExpectRecovered(const std::string& directory, int acked) {
  const auto store = OpenOrDie(directory, kCompactOften);
  ASSERT_NE(store, nullptr);
  const auto entry = store->Get("n");
  const int found = entry.ok() ? std::stoi(entry->value) : 0;
  EXPECT_GE(found, acked);
  EXPECT_LE(found, acked + 1);
  CommitOne(*store, PutOf("n", std::to_string(found)));
}

TEST_F(FileStateStoreTest, NoAcknowledgedCommitIsLostWhenAnyFileOperationFails) {
  FailEveryFileOperation(kPoints, RunScript, ExpectRecovered);
}

TEST_F(FileStateStoreTest, NoAcknowledgedCommitIsLostWhenTheProcessDiesAtAnyFileOperation) {
  DieAtEveryFileOperation(kPoints, RunScript, ExpectRecovered);
}

}  // namespace
}  // namespace embla
