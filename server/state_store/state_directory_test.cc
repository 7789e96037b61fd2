#include "server/state_store/state_directory.h"

#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/failpoint.h"
#include "core/base/file.h"
#include "core/base/testing/await.h"
#include "core/base/testing/file_failures.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/testing/temp_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/state_store/file_state_store.h"
#include "server/state_store/state_store_conformance.h"

namespace embla {
namespace {

namespace fs = std::filesystem;
using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

class StateDirectoryTest : public ::testing::Test {
 protected:
  void TearDown() override { ClearFailpoints(); }
  // A store of two commits that nobody has open.
  void MakeStore() {
    const auto store = FileStateStore::Open(from_);
    ASSERT_THAT(store, IsOk());
    CommitOne(**store, PutOf("a", "1"));
    CommitOne(**store, PutOf("b", "2"));
  }
  static void ExpectIsTheStore(const std::string& directory) {
    const auto store = FileStateStore::Open(directory);
    ASSERT_THAT(store, IsOk());
    EXPECT_EQ(ContentOf(**store), (std::map<std::string, std::string>{{"a", "1"}, {"b", "2"}}));
    EXPECT_EQ((*store)->revision(), Revision{2});
    EXPECT_EQ((*store)->Get("a")->revision, Revision{1});
  }

  const embla::testing::TempDirectory directory_;
  const std::string from_ = directory_.path() + "/state";
  const std::string to_ = directory_.path() + "/copy";
};

TEST_F(StateDirectoryTest, ACopyOpensAsTheStore) {
  MakeStore();
  ASSERT_THAT(AtomicWriteFile(from_ + "/cluster.key", "secret"), IsOk());
  const auto copy = CopyStateDirectory(from_, to_ + "/");
  ASSERT_THAT(copy, IsOk());
  EXPECT_EQ(copy->revision, Revision{2});
  EXPECT_EQ(copy->keys, 2u);
  EXPECT_TRUE(copy->has_cluster_key);
  EXPECT_EQ(*ReadFile(to_ + "/cluster.key"), "secret");
  struct stat key {};
  ASSERT_EQ(::stat((to_ + "/cluster.key").c_str(), &key), 0);
  EXPECT_EQ(key.st_mode & 0777U, 0600U);
  ExpectIsTheStore(to_);
}

TEST_F(StateDirectoryTest, OnlyAMissingOrEmptyDirectoryIsWritten) {
  MakeStore();
  fs::create_directories(to_);
  EXPECT_THAT(CopyStateDirectory(from_, to_), IsOk());
  EXPECT_THAT(CopyStateDirectory(from_, to_),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(to_ + " is there")));
  EXPECT_THAT(CopyStateDirectory(from_, from_),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not an empty directory")));
  EXPECT_THAT(CopyStateDirectory(from_, from_ + "/log"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not an empty directory")));
  ExpectIsTheStore(from_);
}

TEST_F(StateDirectoryTest, DamageAndOtherDirectoriesAreNotCopied) {
  EXPECT_THAT(CopyStateDirectory(directory_.path(), to_),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("is not the state directory of a")));
  MakeStore();
  std::string log = *ReadFile(from_ + "/log");
  log[50] = static_cast<char>(log[50] ^ 1);
  ASSERT_THAT(AtomicWriteFile(from_ + "/log", log), IsOk());
  EXPECT_THAT(CopyStateDirectory(from_, to_),
              StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr("/log"), HasSubstr("offset"))));
  EXPECT_FALSE(fs::exists(to_));
  EXPECT_FALSE(fs::exists(to_ + ".partial"));
}

// Every commit writes both keys, and the store compacts every twenty commits.
TEST_F(StateDirectoryTest, ACopyBesideAStoreAtWorkIsTheStateAfterOneCommit) {
  const auto store = FileStateStore::Open(from_, {.log_bytes_max = 2000});
  ASSERT_THAT(store, IsOk());
  CommitOne(**store, PutOf("left", "0"));
  std::atomic<int> acknowledged = 0;
  std::atomic<bool> is_over = false;
  std::thread writer([&] {
    for (int i = 1; !is_over; ++i) {
      const std::string value = absl::StrCat(i);
      const std::vector<StateWrite> writes = {PutOf("left", value), PutOf("right", value)};
      ASSERT_THAT((*store)->Commit({}, writes), IsOk());
      acknowledged = i;
    }
  });
  AwaitFor([&] { return acknowledged > 0; }, absl::Seconds(60), "the first commit");
  for (int copy = 0; copy < 50; ++copy) {
    const std::string to = absl::StrCat(to_, copy);
    const int before = acknowledged;
    EXPECT_THAT(CopyStateDirectory(from_, to), IsOk());
    const auto copied = FileStateStore::Open(to);
    ASSERT_THAT(copied, IsOk());
    const auto content = ContentOf(**copied);
    EXPECT_EQ(content.at("left"), content.at("right"));
    EXPECT_GE(std::stoi(content.at("left")), before);
  }
  is_over = true;
  writer.join();
}

constexpr const char* kFailingPoints[] = {"file.open",     "file.write",  "file.sync",
                                          "file.truncate", "file.rename", "file.dir_sync"};

TEST_F(StateDirectoryTest, TheCopyIsThereAsAWholeOrNotAtAll) {
  MakeStore();
  const auto copy = [this](const std::string& directory, const std::function<void(int)>& acked) {
    if (CopyStateDirectory(from_, directory + "/copy").ok()) acked(1);
  };
  const auto check = [](const std::string& directory, int acked) {
    if (fs::exists(directory + "/copy")) return ExpectIsTheStore(directory + "/copy");
    EXPECT_EQ(acked, 0);
  };
  embla::testing::FailEveryFileOperation(kFailingPoints, copy, check);
  embla::testing::DieAtEveryFileOperation(kFailingPoints, copy, check);
}

}  // namespace
}  // namespace embla
