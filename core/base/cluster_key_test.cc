#include "core/base/cluster_key.h"

#include <sys/stat.h>

#include <fstream>
#include <string>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/testing/temp_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::TempDirectory;
using ::testing::HasSubstr;
using ::testing::Not;

// 00 01 .. 1f and 80 81 .. 9f.
constexpr std::string_view kFirst =
    "embla-cluster-key 1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";
constexpr std::string_view kSecond =
    "embla-cluster-key 1 808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f\n";

ClusterKey Parsed(std::string_view content) {
  absl::StatusOr<ClusterKey> key = ClusterKey::Parse(content);
  EXPECT_THAT(key, IsOk());
  return *std::move(key);
}

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

// Writes `content` to a new file of this mode and returns its path.
std::string FileWith(const TempDirectory& directory, std::string_view content, mode_t mode) {
  const std::string path = directory.path() + "/cluster.key";
  std::ofstream(path) << content;
  EXPECT_EQ(::chmod(path.c_str(), mode), 0);
  return path;
}

// Computed by Python: hmac.new(bytes(range(32)), b"embla session" + (7).to_bytes(8, "little"),
// "sha256").
TEST(ClusterKeySign, IsHmacSha256OverLabelAndParts) {
  const std::string proof = Parsed(kFirst).Sign("embla session", {LittleEndianPart(7)});
  EXPECT_EQ(std::string(absl::BytesToHexString(proof)),
            "2908bc953d89cb5027ef19be9623869ecce14819cabcfc733af7d7173e63c079");
}

TEST(ClusterKeyVerify, TakesItsOwnProofsAndTheirFirstHalf) {
  const ClusterKey key = ClusterKey::Generate();
  const std::string proof = key.Sign("label", {"part"});
  EXPECT_TRUE(key.Verify("label", {"part"}, proof));
  EXPECT_TRUE(key.Verify("label", {"part"}, std::string_view(proof).substr(0, 16)));
}

TEST(ClusterKeyVerify, RefusesOtherLabelsPartsProofsAndKeys) {
  const ClusterKey key = ClusterKey::Generate();
  std::string proof = key.Sign("label", {"part"});
  EXPECT_FALSE(key.Verify("other", {"part"}, proof));
  EXPECT_FALSE(key.Verify("label", {"past"}, proof));
  EXPECT_FALSE(key.Verify("label", {"part"}, ""));
  EXPECT_FALSE(key.Verify("label", {"part"}, std::string_view(proof).substr(0, 15)));
  EXPECT_FALSE(key.Verify("label", {"part"}, proof + "x"));
  EXPECT_FALSE(ClusterKey::Generate().Verify("label", {"part"}, proof));
  proof[0] ^= 1;
  EXPECT_FALSE(key.Verify("label", {"part"}, proof));
}

TEST(ClusterKeyVerify, TwoKeysAreValidWhileTheKeyIsChanged) {
  const ClusterKey before = Parsed(kFirst);
  const ClusterKey during = Parsed(absl::StrCat(
      "# new first\n\n", absl::string_view(kSecond.data()), absl::string_view(kFirst.data())));
  const ClusterKey after = Parsed(kSecond);
  EXPECT_TRUE(during.Verify("label", {}, before.Sign("label", {})));
  EXPECT_TRUE(during.Verify("label", {}, after.Sign("label", {})));
  EXPECT_TRUE(after.Verify("label", {}, during.Sign("label", {})));
  EXPECT_FALSE(before.Verify("label", {}, during.Sign("label", {})));
}

TEST(ClusterKeyParse, ReadsWhatFormatWrites) {
  const ClusterKey key = ClusterKey::Generate();
  EXPECT_TRUE(Parsed(key.Format()).Verify("label", {}, key.Sign("label", {})));
  EXPECT_EQ(Parsed(kFirst).Format(), kFirst);
}

TEST(ClusterKeyParse, NamesTheLineAndNoPartOfTheKey) {
  struct {
    const char* name;
    std::string content;
  } const cases[] = {
      {"empty", ""},
      {"only a comment", "# key\n"},
      {"another version", "embla-cluster-key 2 00\n"},
      {"too short", "embla-cluster-key 1 5ec2e7\n"},
      {"not hexadecimal", absl::StrCat("embla-cluster-key 1 ", std::string(64, 'x'), "\n")},
  };
  for (const auto& bad : cases) {
    SCOPED_TRACE(bad.name);
    const absl::Status status = ClusterKey::Parse(bad.content).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(MessageOf(status), HasSubstr("cluster key"));
    EXPECT_THAT(MessageOf(status), Not(HasSubstr("5ec2e7")));
  }
}

TEST(ClusterKeyFile, IsMadeOnceAndForItsOwnerOnly) {
  const TempDirectory directory;
  const std::string path = directory.path() + "/cluster.key";
  const absl::StatusOr<ClusterKey> made = ReadOrMakeClusterKey(path);
  ASSERT_THAT(made, IsOk());
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  const absl::StatusOr<ClusterKey> again = ReadOrMakeClusterKey(path);
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->Format(), made->Format());
}

TEST(ClusterKeyFile, OpenToOthersIsRefused) {
  const TempDirectory directory;
  const std::string path = FileWith(directory, kFirst, 0640);
  const absl::Status status = ReadClusterKey(path).status();
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_THAT(MessageOf(status), HasSubstr(path));
}

TEST(ClusterKeyFile, DamagedIsRefusedAndNotReplaced) {
  const TempDirectory directory;
  const std::string path = FileWith(directory, "embla-cluster-key 1 12\n", 0600);
  EXPECT_TRUE(absl::IsInvalidArgument(ReadOrMakeClusterKey(path).status()));
}

TEST(ClusterKeyFile, MissingIsNotFound) {
  const TempDirectory directory;
  EXPECT_TRUE(absl::IsNotFound(ReadClusterKey(directory.path() + "/none").status()));
}

}  // namespace
}  // namespace embla
