#include "core/rows/row_block.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "core/rows/row_stream.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// The block of docs/row_block.md.
Buffer WorkedExample() {
  const RowBlockShape shape{.table = TableId{7},
                            .column_begin = 4,
                            .column_end = 7,
                            .dtype = DType::kBFloat16,
                            .state_floats = 1};
  RowBlockBuilder builder(shape, 2);
  builder.rows()[0] = RowId{5};
  builder.rows()[1] = RowId{9};
  // bf16: 1, 2, -1; 0.5, 0, 3.
  constexpr std::uint16_t kWeights[] = {0x3f80, 0x4000, 0xbf80, 0x3f00, 0x0000, 0x4040};
  std::memcpy(builder.weights().data(), kWeights, sizeof(kWeights));
  builder.state()[0] = 0.25f;
  builder.state()[1] = 8.0f;
  return builder.Finish();
}

std::string AsString(const Buffer& buffer) {
  return {reinterpret_cast<const char*>(buffer.data()), buffer.size()};
}

Buffer AsBuffer(const std::string& bytes) {
  Buffer buffer = Buffer::Allocate(bytes.size());
  std::memcpy(buffer.data(), bytes.data(), bytes.size());
  return buffer;
}

TEST(RowBlockDecode, ReadsWhatTheBuilderWrote) {
  const Buffer encoded = WorkedExample();
  const absl::StatusOr<RowBlock> block = DecodeRowBlock(encoded.bytes());
  ASSERT_THAT(block, IsOk());
  EXPECT_EQ(block->shape.table, TableId{7});
  EXPECT_EQ(block->shape.columns(), 3u);
  EXPECT_EQ(block->shape.RowBytesTotal(), 18u);
  EXPECT_THAT(block->rows, ElementsAre(RowId{5}, RowId{9}));
  EXPECT_EQ(block->weights.size(), 12u);
  EXPECT_THAT(block->state, ElementsAre(0.25f, 8.0f));
}

TEST(RowBlockDecode, ABlockMayBeEmpty) {
  RowBlockBuilder builder({.table = TableId{1}, .column_end = 8}, 0);
  const Buffer encoded = builder.Finish();
  EXPECT_EQ(encoded.size(), kRowBlockHeaderBytes);
  ASSERT_THAT(DecodeRowBlock(encoded.bytes()), IsOk());
}

TEST(RowBlockDecode, TheFormatIsThatOfTheGoldenFile) {
  std::ifstream file("tests/golden/row_block_v1.bin", std::ios::binary);
  ASSERT_TRUE(file.good());
  const std::string golden{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(AsString(WorkedExample()), golden);
}

TEST(RowBlockDecode, EveryFlippedBitIsFound) {
  const std::string good = AsString(WorkedExample());
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_THAT(DecodeRowBlock(AsBuffer(bad).bytes()), Not(IsOk())) << "bit " << bit;
  }
}

TEST(RowBlockDecode, EveryTruncationIsInvalidArgument) {
  const std::string good = AsString(WorkedExample());
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(DecodeRowBlock(AsBuffer(good.substr(0, size)).bytes()).status().code(),
              absl::StatusCode::kInvalidArgument)
        << size;
  }
  EXPECT_THAT(DecodeRowBlock(AsBuffer(good + "x").bytes()), Not(IsOk()));
}

TEST(RowBlockDecode, DamagedContentIsDataLoss) {
  std::string bad = AsString(WorkedExample());
  bad.back() ^= 1;
  const absl::Status status = DecodeRowBlock(AsBuffer(bad).bytes()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("table 7"));
}

TEST(RowBlockDecode, HugeCountsAreRefusedBeforeAnySizeIsComputed) {
  std::string bad = AsString(WorkedExample());
  std::memset(bad.data() + 20, 0xff, 8);  // state_floats and row_count.
  EXPECT_EQ(DecodeRowBlock(AsBuffer(bad).bytes()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(RowBlockDecode, MutatedBlocksNeverCrash) {
  const std::uint32_t seed = embla::testing::TestSeed();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::string good = AsString(WorkedExample());
  for (int i = 0; i < 20'000; ++i) {
    std::string bad = good;
    const int edits = 1 + random() % 4;
    for (int edit = 0; edit < edits; ++edit) {
      if (random() % 8 == 0) bad.resize(random() % (2 * good.size()));
      if (!bad.empty()) bad[random() % bad.size()] = static_cast<char>(random());
    }
    const Buffer buffer = AsBuffer(bad);
    const absl::StatusOr<RowBlock> block = DecodeRowBlock(buffer.bytes());
    EXPECT_TRUE(!block.ok() || bad == good);
  }
}

class VectorSource final : public RowSource {
 public:
  explicit VectorSource(int blocks) : left_(blocks) {}
  absl::StatusOr<std::optional<Buffer>> Next() override {
    if (left_-- == 0) return std::nullopt;
    return WorkedExample();
  }

 private:
  int left_;
};

class CountingSink final : public RowSink {
 public:
  explicit CountingSink(int limit) : limit_(limit) {}
  absl::Status Write(Buffer block) override {
    if (count_ == limit_) return absl::ResourceExhaustedError("full");
    ++count_;
    return absl::OkStatus();
  }
  int count() const { return count_; }

 private:
  const int limit_;
  int count_ = 0;
};

TEST(RowStreamCopy, MovesAllBlocks) {
  VectorSource source(3);
  CountingSink sink(10);
  EXPECT_THAT(CopyRows(source, sink), IsOk());
  EXPECT_EQ(sink.count(), 3);
}

TEST(RowStreamCopy, StopsAtTheSinksError) {
  VectorSource source(3);
  CountingSink sink(2);
  EXPECT_EQ(CopyRows(source, sink).code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace embla
