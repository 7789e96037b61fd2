#include "core/base/file.h"

#include <unistd.h>

#include <filesystem>
#include <string>

#include "core/base/failpoint.h"
#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;
using ::testing::Not;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = ::testing::TempDir() + "file_test_" + std::to_string(::getpid());
    ASSERT_THAT(MakeDirectories(directory_ + "/deep/er"), IsOk());
  }
  void TearDown() override {
    ClearFailpoints();
    std::filesystem::remove_all(directory_);
  }
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }

  std::string directory_;
};

TEST_F(FileTest, AppendGoesOnWhereTheFileEnded) {
  {
    auto file = AppendFile::Open(Path("log"));
    ASSERT_THAT(file, IsOk());
    ASSERT_THAT(file->Append("first "), IsOk());
    ASSERT_THAT(file->Sync(), IsOk());
  }
  auto file = AppendFile::Open(Path("log"));
  ASSERT_THAT(file, IsOk());
  EXPECT_EQ(file->size(), 6u);
  ASSERT_THAT(file->Append("second"), IsOk());
  ASSERT_THAT(file->Truncate(9), IsOk());
  ASSERT_THAT(file->Append("!"), IsOk());
  EXPECT_EQ(file->size(), 10u);
  EXPECT_EQ(*ReadFile(Path("log")), "first sec!");
}

TEST_F(FileTest, ReadFileTellsAMissingFileByNameAndCode) {
  const auto content = ReadFile(Path("missing"));
  EXPECT_EQ(content.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(content.status().message()), HasSubstr("missing"));
}

TEST_F(FileTest, ReadFileReadsMoreThanOnePiece) {
  const std::string large(3'000'001, 'x');
  ASSERT_THAT(AtomicWriteFile(Path("large"), large), IsOk());
  EXPECT_EQ(*ReadFile(Path("large")), large);
}

TEST_F(FileTest, AtomicWriteLeavesTheOldFileWhenAnyStepBeforeTheRenameFails) {
  ASSERT_THAT(AtomicWriteFile(Path("state"), "old"), IsOk());
  for (const char* const point :
       {"file.open", "file.truncate", "file.write", "file.sync", "file.rename"}) {
    SetFailpoint(point, FailpointAction::kError);
    EXPECT_EQ(AtomicWriteFile(Path("state"), "new!").code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(*ReadFile(Path("state")), "old") << point;
  }
  ASSERT_THAT(AtomicWriteFile(Path("state"), "new!"), IsOk());
  EXPECT_EQ(*ReadFile(Path("state")), "new!");
}

TEST_F(FileTest, LockKeepsASecondHolderOutUntilItIsGone) {
  auto first = FileLock::Acquire(Path("LOCK"));
  ASSERT_THAT(first, IsOk());
  EXPECT_EQ(FileLock::Acquire(Path("LOCK")).status().code(), absl::StatusCode::kFailedPrecondition);
  { const FileLock gone = *std::move(first); }
  EXPECT_THAT(FileLock::Acquire(Path("LOCK")), IsOk());
}

TEST(CheckWritable, SaysAtOnceWhatWritingWouldMeetLater) {
  const std::string path = ::testing::TempDir() + "embla_check_writable.json";
  EXPECT_THAT(CheckWritable(path), IsOk());
  EXPECT_TRUE(absl::IsNotFound(ReadFile(path).status())) << "nothing was made";
  const absl::Status missing = CheckWritable("/nowhere/report.json");
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound) << missing;
  EXPECT_NE(std::string(missing.message()).find("/nowhere/report.json"), std::string::npos);
  EXPECT_THAT(CheckWritable(::testing::TempDir()), Not(IsOk())) << "a directory";
}

}  // namespace
}  // namespace embla
