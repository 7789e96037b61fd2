// Chunks of buckets come from peers: whatever they hold, they are taken in or refused.
#include "server/table/unit_io.h"

#include <cstring>
#include <memory>
#include <vector>

#include "core/base/check.h"
#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "server/storage/host_row_store.h"
#include "server/table/unit_shape.h"
#include "server/zch/host_id_map.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::testing::Not;

// A table of two buckets on one device.
class BucketChunkTest : public ::testing::Test {
 protected:
  BucketChunkTest() : budget_(std::size_t{1} << 26), pool_(1) {
    spec_.id = TableId{3};
    spec_.name = "users";
    spec_.rows = 256;
    spec_.dim = 5;
    spec_.optimizer.kind = OptimizerKind::kAdam;
    spec_.zch = ZchSpec{.buckets = 2, .reserved_lanes = 2, .unseen = zch::Unseen::kDefault};
    spec_.SetDefaults();
    shard_ = MakeShard();
    kernels::Grouping grouping;
    std::vector<std::int64_t> ids;
    for (std::int64_t id = 0; id < 60; ++id) ids.push_back(id * id - 7);
    kernels::GroupIds(ids, grouping);
    EMBLA_CHECK(own().ids->Settle({.step = 1, .ttls = {}}, {}, *own().store, pool_, grouping).ok());
  }

  std::unique_ptr<TableShard> MakeShard() {
    Slice slice;
    slice.row_end = spec_.rows;
    slice.column_end = spec_.dim;
    auto shard = TableShard::Create(
        spec_, PlanVersion{1}, {slice},
        [this](const TableSpec& spec, const Slice& of) -> absl::StatusOr<SliceMemory> {
          return SliceMemory{*HostRowStore::Create(spec, of, budget_, pool_),
                             *zch::HostIdMap::Create(IdMapOptionsOf(spec, of))};
        },
        nullptr);
    EMBLA_CHECK(shard.ok());
    return *std::move(shard);
  }

  static OwnSlice& OwnOf(TableShard& shard) { return *shard.slices(0).begin(); }
  OwnSlice& own() { return OwnOf(*shard_); }

  UnitShape ShapeOf(std::uint32_t bucket) const {
    return ShapeOfUnit(spec_, bucket, {0, spec_.dim});
  }

  std::vector<std::byte> Encode(TableShard& shard, std::uint32_t bucket) {
    const absl::StatusOr<Buffer> chunk =
        EncodeChunk(shard, OwnOf(shard), ShapeOf(bucket), 0, nullptr);
    EMBLA_CHECK(chunk.ok());
    return {chunk->bytes().begin(), chunk->bytes().end()};
  }

  // Copies, so that the bytes are aligned and bounds are seen by sanitizers.
  absl::Status Stage(TableShard& shard, std::uint32_t bucket, const std::vector<std::byte>& bytes) {
    Buffer copy = Buffer::Allocate(bytes.size());
    if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
    const absl::StatusOr<UnitChunk> chunk = DecodeChunk(copy.bytes(), shard, ShapeOf(bucket), 0);
    if (!chunk.ok()) return chunk.status();
    return WriteChunk(shard, OwnOf(shard), ShapeOf(bucket), *chunk);
  }

  TableSpec spec_;
  MemoryBudget budget_;
  ThreadPool pool_;
  std::unique_ptr<TableShard> shard_;
};

TEST_F(BucketChunkTest, ABucketIsTheSameWhereItCameIn) {
  const auto other = MakeShard();
  for (const std::uint32_t bucket : {0u, 1u}) {
    const std::vector<std::byte> chunk = Encode(*shard_, bucket);
    ASSERT_THAT(Stage(*other, bucket, chunk), IsOk());
    ASSERT_THAT(Stage(*other, bucket, chunk), IsOk());  // Again: in place of the first.
    EXPECT_EQ(Encode(*other, bucket), chunk);
  }
}

TEST_F(BucketChunkTest, AChunkOfAnotherBucketIsRefused) {
  const auto other = MakeShard();
  EXPECT_EQ(Stage(*other, 1, Encode(*shard_, 0)).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(BucketChunkTest, ShorterChunksAndFlippedBytesAreRefused) {
  const auto other = MakeShard();
  const std::vector<std::byte> chunk = Encode(*shard_, 0);
  for (std::size_t size = 0; size < chunk.size(); size += 7) {
    EXPECT_THAT(Stage(*other, 0, {chunk.begin(), chunk.begin() + size}), Not(IsOk())) << size;
  }
  for (std::size_t at = 0; at < chunk.size(); at += 3) {
    std::vector<std::byte> damaged = chunk;
    damaged[at] ^= std::byte{0x41};
    EXPECT_THAT(Stage(*other, 0, damaged), Not(IsOk())) << at;
  }
}

}  // namespace
}  // namespace embla
