#include "core/base/file.h"

#include <unistd.h>

#include <filesystem>
#include <string>

#include "core/base/failpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using testing::HasSubstr;

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "file_test_" + std::to_string(::getpid());
    ASSERT_TRUE(MakeDirectories(directory_ + "/deep/er").ok());
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
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->Append("first ").ok());
    ASSERT_TRUE(file->Sync().ok());
  }
  auto file = AppendFile::Open(Path("log"));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->size(), 6u);
  ASSERT_TRUE(file->Append("second").ok());
  ASSERT_TRUE(file->Truncate(9).ok());
  ASSERT_TRUE(file->Append("!").ok());
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
  ASSERT_TRUE(AtomicWriteFile(Path("large"), large).ok());
  EXPECT_EQ(*ReadFile(Path("large")), large);
}

TEST_F(FileTest, AtomicWriteLeavesTheOldFileWhenAnyStepBeforeTheRenameFails) {
  ASSERT_TRUE(AtomicWriteFile(Path("state"), "old").ok());
  for (const char* const point :
       {"file.open", "file.truncate", "file.write", "file.sync", "file.rename"}) {
    SetFailpoint(point, FailpointAction::kError);
    EXPECT_EQ(AtomicWriteFile(Path("state"), "new!").code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(*ReadFile(Path("state")), "old") << point;
  }
  ASSERT_TRUE(AtomicWriteFile(Path("state"), "new!").ok());
  EXPECT_EQ(*ReadFile(Path("state")), "new!");
}

TEST_F(FileTest, LockKeepsASecondHolderOutUntilItIsGone) {
  auto first = FileLock::Acquire(Path("LOCK"));
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(FileLock::Acquire(Path("LOCK")).status().code(), absl::StatusCode::kFailedPrecondition);
  { const FileLock gone = *std::move(first); }
  EXPECT_TRUE(FileLock::Acquire(Path("LOCK")).ok());
}

TEST(CheckWritable, SaysAtOnceWhatWritingWouldMeetLater) {
  const std::string path = ::testing::TempDir() + "embla_check_writable.json";
  EXPECT_TRUE(CheckWritable(path).ok());
  EXPECT_TRUE(absl::IsNotFound(ReadFile(path).status())) << "nothing was made";
  const absl::Status missing = CheckWritable("/nowhere/report.json");
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound) << missing;
  EXPECT_NE(std::string(missing.message()).find("/nowhere/report.json"), std::string::npos);
  EXPECT_FALSE(CheckWritable(::testing::TempDir()).ok()) << "a directory";
}

}  // namespace
}  // namespace embla
