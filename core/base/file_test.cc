#include "core/base/file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/failpoint.h"
#include "core/base/file_descriptor.h"
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

// Read past the page cache where it does not have them.
TEST_F(FileTest, LargeFilesOfWhichTheCacheHasAPartAreReadAsTheyAre) {
  const std::size_t mib = std::size_t{1} << 20;
  for (const std::size_t bytes : {4 * mib - 1, 4 * mib, 4 * mib + 1, 7 * mib + 4095}) {
    std::string content(bytes, '\0');
    for (std::size_t i = 0; i < bytes; i += 7) content[i] = static_cast<char>(i / 7 % 251);
    const std::string path = Path("large");
    ASSERT_THAT(AtomicWriteFile(path, content), IsOk());
    const FileDescriptor file(::open(path.c_str(), O_RDONLY));
    std::string read;
    for (const std::size_t cached : {bytes, 2 * mib, std::size_t{0}}) {
      ::posix_fadvise(file.number(), static_cast<off_t>(cached), 0, POSIX_FADV_DONTNEED);
      ASSERT_THAT(ReadFileInto(path, read), IsOk());
      EXPECT_TRUE(read == content) << bytes << " bytes, of which the cache has " << cached;
    }
  }
}

// More pieces than the system takes at once, empty ones among them.
TEST_F(FileTest, PiecesLieBehindEachOther) {
  std::vector<std::string> texts;
  std::string all;
  for (int i = 0; i < 3000; ++i) {
    texts.push_back(i % 7 == 0 ? "" : std::to_string(i) + std::string(i % 100, 'x'));
    all += texts.back();
  }
  const std::vector<std::string_view> pieces(texts.begin(), texts.end());
  auto file = AppendFile::Open(Path("log"));
  ASSERT_THAT(file, IsOk());
  ASSERT_THAT(file->Append(pieces), IsOk());
  file->BeginSync();
  ASSERT_THAT(file->Append("end"), IsOk());
  EXPECT_EQ(file->size(), all.size() + 3);
  EXPECT_TRUE(*ReadFile(Path("log")) == all + "end");
  SetFailpoint("file.write", FailpointAction::kError);
  EXPECT_THAT(file->Append(std::vector<std::string_view>{"123", "", "4567", "89"}), Not(IsOk()));
  ClearFailpoints();
  EXPECT_TRUE(*ReadFile(Path("log")) == all + "end1234");
}

// A write stops in the middle of a piece where a file may not grow any more.
TEST_F(FileTest, AWriteThatALimitOfSizesStopsCountsWhatItWrote) {
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto signal_before = std::signal(SIGXFSZ, SIG_IGN);
  auto file = AppendFile::Open(Path("log"));
  ASSERT_THAT(file, IsOk());
  const rlimit limit{5, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const absl::Status status = file->Append(std::vector<std::string_view>{"abc", "defg", "h"});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, signal_before);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(file->size(), 5u);
  EXPECT_EQ(*ReadFile(Path("log")), "abcde");
  ASSERT_THAT(file->Truncate(2), IsOk());
  ASSERT_THAT(file->Append("z"), IsOk());
  EXPECT_EQ(*ReadFile(Path("log")), "abz");
}

TEST_F(FileTest, ARemovedFileGivesBackItsBlocksBeforeTheLastReaderIsGone) {
  ASSERT_THAT(AtomicWriteFile(Path("large"), std::string(20 << 20, 'x')), IsOk());
  const FileDescriptor reader(::open(Path("large").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_THAT(RemoveFile(Path("large")), IsOk());
  EXPECT_FALSE(std::filesystem::exists(Path("large")));
  EXPECT_EQ(::lseek(reader.number(), 0, SEEK_END), 0);
  EXPECT_THAT(RemoveFile(Path("large")), IsOk());
}

// A backup by hard links.
TEST_F(FileTest, ARemovedFileKeepsWhatItHasUnderAnotherName) {
  const std::string content(20 << 20, 'x');
  ASSERT_THAT(AtomicWriteFile(Path("large"), content), IsOk());
  std::filesystem::create_hard_link(Path("large"), Path("backup"));
  ASSERT_THAT(RemoveFile(Path("large")), IsOk());
  EXPECT_FALSE(std::filesystem::exists(Path("large")));
  EXPECT_EQ(*ReadFile(Path("backup")), content);
}

TEST_F(FileTest, WhatCannotBeRemovedIsNamed) {
  EXPECT_THAT(RemoveFile(directory_), Not(IsOk()));
  EXPECT_THAT(RemoveFile(directory_).message(), HasSubstr(directory_));
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
