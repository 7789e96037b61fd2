#include "server/journal/node_directory.h"

#include <cstdint>
#include <fstream>
#include <random>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/crc32c.h"
#include "core/base/file.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/testing/temp_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::embla::testing::TempDirectory;
using ::testing::HasSubstr;

const NodeIdentity kIdentity{.directory_id = "000102030405060708090a0b0c0d0e0f",
                             .node = "n1",
                             .cluster_id = "10bd9f39",
                             .node_id = NodeId{3},
                             .key_path = "/var/lib/embla/my state/cluster.key",
                             .generation = 1,
                             .store_revision = 88,
                             .plan_version = PlanVersion{12},
                             .table = TableId{5}};

TEST(NodeIdentityFormat, IsTheGoldenFile) {
  const absl::StatusOr<std::string> golden = ReadFile("tests/golden/node_identity_v1.txt");
  ASSERT_THAT(golden, IsOk());
  EXPECT_EQ(FormatIdentity(kIdentity), *golden);
  const absl::StatusOr<NodeIdentity> parsed = ParseIdentity(*golden);
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(*parsed, kIdentity);
}

TEST(NodeIdentityParse, EveryChangedOrMissingByteIsDataLoss) {
  const std::string good = FormatIdentity(kIdentity);
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string changed = good;
    changed[i] ^= 1;
    EXPECT_THAT(ParseIdentity(changed), StatusIs(absl::StatusCode::kDataLoss)) << i;
    EXPECT_THAT(ParseIdentity(good.substr(0, i)), StatusIs(absl::StatusCode::kDataLoss)) << i;
  }
}

// Damage behind a right checksum: refused, or an identity that is written as it is read.
TEST(NodeIdentityParse, SurvivesMutationsBehindARightChecksum) {
  constexpr std::uint64_t kSeed = 20261130;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  NodeIdentity identity = kIdentity;
  identity.place = "17 of 5.000000001";
  identity.testimony = R"({"boot": 1})";
  const std::string whole = FormatIdentity(identity);
  const std::string good = whole.substr(0, whole.rfind("crc "));
  int accepted = 0;
  for (int round = 0; round < 30'000; ++round) {
    std::string text = good;
    for (std::uint64_t edits = 1 + random() % 3; edits > 0 && !text.empty(); --edits) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 12);
          break;
        case 2:
          text.insert(at, text.substr(at, 1 + random() % 12));
          break;
        default:
          text.resize(at);
          break;
      }
    }
    if (text.empty() || text.back() != '\n') text += '\n';
    const std::uint32_t crc = Crc32c(std::as_bytes(std::span(text.data(), text.size())));
    text += absl::StrCat("crc ", absl::Hex(crc, absl::kZeroPad8), "\n");
    const absl::StatusOr<NodeIdentity> parsed = ParseIdentity(text);
    if (!parsed.ok()) continue;
    ++accepted;
    const absl::StatusOr<NodeIdentity> again = ParseIdentity(FormatIdentity(*parsed));
    ASSERT_THAT(again, IsOk()) << text;
    EXPECT_EQ(*again, *parsed);
  }
  EXPECT_GT(accepted, 1000);
}

TEST(NodeDirectoryOpen, GivesAnEmptyDirectoryAnIdentityThatLasts) {
  const TempDirectory directory;
  const auto made = NodeDirectory::Open(directory.path(), "n1");
  ASSERT_THAT(made, IsOk());
  EXPECT_EQ((*made)->identity().directory_id.size(), 32u);
  const auto again = NodeDirectory::Open(directory.path(), "n1");
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ((*again)->identity(), (*made)->identity());
}

TEST(NodeDirectoryOpen, AnotherNodesDirectoryIsRefused) {
  const TempDirectory directory;
  ASSERT_THAT(NodeDirectory::Open(directory.path(), "n0"), IsOk());
  EXPECT_THAT(NodeDirectory::Open(directory.path(), "n1"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("node n0")));
}

TEST(NodeDirectoryOpen, ALogWithoutAnIdentityIsDataLoss) {
  const TempDirectory directory;
  std::ofstream(directory.path() + "/log-00000000000000000001") << "EMBLALOG";
  EXPECT_THAT(NodeDirectory::Open(directory.path(), "n1"), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(NodeDirectoryNote, KeepsATestimonyAsItWasSaidLast) {
  const TempDirectory directory;
  const auto opened = NodeDirectory::Open(directory.path(), "n1");
  ASSERT_THAT(opened, IsOk());
  ASSERT_THAT((*opened)->NoteTestimony(R"({"generation": 1})"), IsOk());
  ASSERT_THAT((*opened)->NoteTestimony(R"({"generation": 2})"), IsOk());
  for (const std::string& text : {std::string("two\nlines"), std::string(5000, 'x')}) {
    EXPECT_THAT((*opened)->NoteTestimony(text), StatusIs(absl::StatusCode::kInvalidArgument));
  }
  const auto again = NodeDirectory::Open(directory.path(), "n1");
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ((*again)->identity().testimony, R"({"generation": 2})");
}

TEST(NodeDirectoryNote, KeepsTheHighestOfWhatWasSeen) {
  const TempDirectory directory;
  {
    const auto opened = NodeDirectory::Open(directory.path(), "n1");
    ASSERT_THAT(opened, IsOk());
    ASSERT_THAT((*opened)->NoteRegistered(kIdentity), IsOk());
    ASSERT_THAT((*opened)->NotePlan(PlanVersion{12}, TableId{5}), IsOk());
    ASSERT_THAT((*opened)->NotePlan(PlanVersion{11}, TableId{4}), IsOk());
  }
  const auto again = NodeDirectory::Open(directory.path(), "n1");
  ASSERT_THAT(again, IsOk());
  NodeIdentity expected = kIdentity;
  expected.directory_id = (*again)->identity().directory_id;
  EXPECT_EQ((*again)->identity(), expected);
}

}  // namespace
}  // namespace embla
