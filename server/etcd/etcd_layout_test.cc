#include "server/etcd/etcd_layout.h"

#include <string>
#include <utility>

#include "core/base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::HasSubstr;

// The keys of etcd below `prefix` after `writes`.
EtcdListing ListingOf(const EtcdWrites& writes, const std::string& prefix) {
  EtcdListing listing;
  for (const auto& [key, value] : writes) {
    if (value && key.starts_with(prefix)) listing.entries.push_back({key, *value, {}, {}});
  }
  return listing;
}

TEST(EtcdHeadDecode, ReadsWhatItWrites) {
  const EtcdHead head{.revision = Revision{17}, .redo = 3, .writer = "ab12"};
  EXPECT_EQ(EncodeEtcdHead(head), "embla-state 1 17 3 ab12\n");
  const auto read = DecodeEtcdHead(EncodeEtcdHead(head));
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(*read, head);
}

TEST(EtcdHeadDecode, RefusesEverythingElse) {
  for (const char* const text :
       {"", "embla-state 2 17 3 ab\n", "embla-state 1 17 3 ab", "embla-state 1 x 3 ab\n",
        "embla-state 1 17 99999999999 ab\n", "embla-state 1 17 3"}) {
    EXPECT_THAT(DecodeEtcdHead(text).status(), StatusIs(absl::StatusCode::kDataLoss)) << text;
  }
}

TEST(EtcdLayoutRead, PutsTheValuesPiecesTogether) {
  const EtcdLayout layout("/p");
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, kValuePieceBytes, kValuePieceBytes + 1,
        2 * kValuePieceBytes, 3 * kValuePieceBytes + 7}) {
    std::string value(bytes, 'v');
    if (bytes > 0) value.back() = '\n';
    EtcdWrites writes;
    layout.AddWrites("k\n", value, 0, Revision{5}, writes);
    const auto entries =
        layout.Read(ListingOf(writes, layout.Data()), ListingOf(writes, layout.More()));
    ASSERT_THAT(entries, IsOk()) << bytes;
    ASSERT_EQ(entries->size(), 1u);
    EXPECT_EQ(entries->front(), (StateEntry{"k\n", value, Revision{5}})) << bytes;
  }
}

TEST(EtcdLayoutRead, AMissingPieceIsALoss) {
  const EtcdLayout layout("/p");
  EtcdWrites writes;
  layout.AddWrites("k", std::string(2 * kValuePieceBytes, 'v'), 0, Revision{5}, writes);
  EXPECT_THAT(layout.Read(ListingOf(writes, layout.Data()), {}).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("/p/more/0001/k is missing")));
}

TEST(EtcdLayoutAddWrites, ASmallerValueDeletesThePiecesOfTheOneBefore) {
  const EtcdLayout layout("/p");
  EtcdWrites writes;
  layout.AddWrites("k", "small", 3 * kValuePieceBytes, Revision{5}, writes);
  EXPECT_EQ(writes.size(), 3u);
  EXPECT_EQ(writes["/p/more/0002/k"], std::nullopt);
  writes.clear();
  layout.AddWrites("k", std::nullopt, 3 * kValuePieceBytes, Revision{5}, writes);
  EXPECT_EQ(writes.size(), 3u);
}

TEST(EtcdRedoDecode, ReadsWhatItWritesAndNothingElse) {
  const EtcdWrites writes = {{"a", ""}, {"b\n", std::string("\0 1\n", 4)}, {"c", std::nullopt}};
  const std::string text = EncodeRedo(writes);
  const auto read = DecodeRedo(text);
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(*read, writes);
  for (std::size_t cut = 1; cut < text.size(); ++cut) {
    const auto part = DecodeRedo(std::string_view(text).substr(0, cut));
    if (!part.ok()) continue;
    EXPECT_LT(part->size(), writes.size()) << cut;
  }
}

TEST(EtcdTakeOneTxn, KeepsToEtcdsLimits) {
  EtcdWrites writes;
  for (int i = 0; i < 250; ++i) writes["n" + std::to_string(i)] = "v";
  for (int i = 0; i < 5; ++i) writes["z" + std::to_string(i)] = std::string(600'000, 'v');
  std::size_t left = writes.size();
  int transactions = 0;
  while (!writes.empty()) {
    const EtcdWrites taken = TakeOneTxn(writes);
    ASSERT_FALSE(taken.empty());
    ASSERT_LE(taken.size(), kEtcdTxnOpsMax);
    EXPECT_LE(EncodeRedo(taken).size(), kEtcdTxnBytesMax + 4096);
    left -= taken.size();
    ++transactions;
  }
  EXPECT_EQ(left, 0u);
  EXPECT_EQ(transactions, 3 + 4);
}

}  // namespace
}  // namespace embla
