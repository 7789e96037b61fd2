// A repeated id travels once where many ids repeat, else as it was given. The answers, and the rows
// that are stepped, are the same bits (also route_test.cc, at random).
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/route/lookup_route.h"
#include "client/route/table_route.h"
#include "client/route/testing/fake_nodes.h"
#include "client/route/update_route.h"
#include "core/base/testing/status_matchers.h"

namespace embla::client {
namespace {

using ::embla::testing::IsOk;

constexpr std::int64_t kRows = 128;
constexpr std::uint32_t kDim = 4;
constexpr NodeId kNode{1};

PlanPtr OneTable(float clip = 0.0f) {
  TableSpec spec;
  spec.id = TableId{1};
  spec.name = "items";
  spec.rows = kRows;
  spec.dim = kDim;
  spec.optimizer.gradient_clip = clip;
  spec.SetDefaults();
  const Slice slice{.row_begin = 0,
                    .row_end = kRows,
                    .column_begin = 0,
                    .column_end = kDim,
                    .device = {kNode, 0}};
  return std::make_shared<Plan>(
      PlanVersion{1}, "test",
      std::vector<NodeSpec>{{kNode, "n0", "host:1", {{DeviceKind::kCpu, 1 << 20}}}},
      std::vector<TablePlan>{
          {.spec = spec, .sharding = ShardingType::kTableWise, .replicas = {{slice}}}});
}

// 64 ids, descending, of which the last `duplicates` repeat the first ones.
std::vector<std::int64_t> IdsWith(std::size_t duplicates) {
  std::vector<std::int64_t> ids(64);
  std::iota(ids.rbegin(), ids.rend(), std::int64_t{8});
  const std::size_t distinct = ids.size() - duplicates;
  for (std::size_t i = distinct; i < ids.size(); ++i) ids[i] = ids[i % distinct];
  return ids;
}

std::vector<std::uint32_t> Bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

struct Answer {
  std::size_t ids_sent = 0;
  std::size_t lengths_sent = 0;
  std::vector<std::uint32_t> bits;
};

Answer Ask(FakeNodes& nodes, const std::vector<std::int64_t>& ids,
           const std::vector<std::uint32_t>& lengths, Pooling pooling, bool combine) {
  const Routes& routes = *nodes.routes();
  std::vector<float> rows((pooling == Pooling::kNone ? ids.size() : lengths.size()) * kDim, 7.0f);
  FeatureLookup feature{.table = "items", .ids = ids, .pooling = pooling, .rows_out = rows};
  if (pooling != Pooling::kNone) feature.lengths = lengths;
  BufferPool pool;
  auto route = LookupRoute::Create({&feature, 1}, routes, {.combine_duplicates = combine}, pool);
  EXPECT_THAT(route, IsOk());
  const auto shares = route->Split(routes, kNoNode);
  EXPECT_THAT(shares, IsOk());
  const LookupShare& share = shares->front();
  const NodeLookup request = route->Build(share);
  EXPECT_THAT(nodes.Lookup(share.node, request), IsOk());
  const LookupShare* const answered = &share;
  route->Merge({&answered, 1});
  return {request.batch.parts.front().ids.size(), request.batch.parts.front().lengths.size(),
          Bits(rows)};
}

// An update of `ids` with fixed gradients, -0 among them.
NodeUpdate Send(FakeNodes& nodes, const std::vector<std::int64_t>& ids,
                const UpdateRoute::Options& options, std::uint32_t ttl_steps = 0) {
  const Routes& routes = *nodes.routes();
  std::vector<float> gradients(ids.size() * kDim);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    gradients[i] = i % 7 == 0 ? -0.0f : static_cast<float>(i % 13) * 0.3f - 1.0f;
  }
  const FeatureGradient feature{
      .table = "items", .ids = ids, .gradients = gradients, .ttl_steps = ttl_steps};
  BufferPool pool;
  auto route = UpdateRoute::Create({&feature, 1}, routes, options, pool);
  EXPECT_THAT(route, IsOk());
  const auto shares = route->Split(routes);
  EXPECT_THAT(shares, IsOk());
  NodeUpdate request = route->Build(shares->front(), {});
  EXPECT_THAT(nodes.Update(kNode, request), IsOk());
  // Gradients that travel as they were given are not copied before that is needed.
  const UpdatePart& part = request.batch.parts.front();
  const bool as_given = !part.clipped && options.wire_dtype == DType::kFloat32;
  EXPECT_EQ(reinterpret_cast<const float*>(part.gradients.data()) == gradients.data(), as_given);
  const std::size_t bytes = request.bytes();
  request.Own();
  EXPECT_NE(reinterpret_cast<const float*>(part.gradients.data()), gradients.data());
  EXPECT_EQ(request.bytes(), bytes);
  if (as_given) {
    EXPECT_EQ(std::memcmp(part.gradients.data(), gradients.data(), gradients.size() * 4), 0);
  }
  return request;
}

TEST(UpdateRouteBorrows, GradientsThatAreLongAndPacked) {
  FakeNodes nodes(OneTable());
  const Routes& routes = *nodes.routes();
  const std::vector<std::int64_t> ids = IdsWith(0);
  std::vector<float> gradients(4 * ids.size() * (kDim + 1));
  std::iota(gradients.begin(), gradients.end(), 1.0f);
  const auto feature = [&](std::size_t first, std::size_t rows, std::size_t stride) {
    return FeatureGradient{
        .table = "items",
        .ids = std::span(ids).first(rows),
        .gradients = std::span(gradients).subspan(first * 64 * (kDim + 1), rows * stride),
        .gradients_stride = stride};
  };
  const FeatureGradient features[] = {feature(0, 64, kDim), feature(1, 10, kDim),
                                      feature(2, 64, kDim + 1), feature(3, 64, kDim)};
  BufferPool pool;
  auto route = UpdateRoute::Create(features, routes, {.combine_duplicates = false}, pool);
  ASSERT_THAT(route, IsOk());
  const auto shares = route->Split(routes);
  ASSERT_THAT(shares, IsOk());
  NodeUpdate request = route->Build(shares->front(), {});
  const auto borrows = [&](std::size_t part) {
    return request.batch.parts[part].gradients.data() ==
           std::as_bytes(features[part].gradients).data();
  };
  EXPECT_TRUE(borrows(0));
  EXPECT_FALSE(borrows(1)) << "short";
  EXPECT_FALSE(borrows(2)) << "with gaps between the rows";
  EXPECT_TRUE(borrows(3));
  EXPECT_EQ(request.borrowed_bytes, 2 * 64 * kDim * sizeof(float));
  std::vector<std::vector<std::byte>> given;
  for (const UpdatePart& part : request.batch.parts) {
    given.emplace_back(part.gradients.begin(), part.gradients.end());
  }
  request.Own();
  EXPECT_EQ(request.borrowed_bytes, 0u);
  std::fill(gradients.begin(), gradients.end(), 0.0f);
  const std::byte* end = request.gradients.data();
  for (std::size_t part = 0; part < given.size(); ++part) {
    const std::span<const std::byte> own = request.batch.parts[part].gradients;
    EXPECT_EQ(own.data(), end) << "part " << part;
    EXPECT_TRUE(std::ranges::equal(own, given[part])) << "part " << part;
    end = own.data() + own.size();
  }
  EXPECT_THAT(nodes.Update(kNode, request), IsOk());
}

void SetRow(FakeNodes& nodes, std::int64_t row, float value) {
  const Routes& routes = *nodes.routes();
  const std::vector<float> weights(kDim, value);
  BufferPool pool;
  auto route = UpdateRoute::CreateWrite(
      {.table = "items", .ids = {&row, 1}, .weights = weights, .state = {}}, routes, {}, pool);
  ASSERT_THAT(route, IsOk());
  const auto shares = route->Split(routes);
  ASSERT_THAT(shares, IsOk());
  ASSERT_THAT(nodes.Update(kNode, route->Build(shares->front(), {})), IsOk());
}

TEST(LookupRouteDuplicates, ManyTravelOnceAndFewAsTheyAre) {
  FakeNodes nodes(OneTable());
  EXPECT_EQ(Ask(nodes, IdsWith(2), {}, Pooling::kNone, true).ids_sent, 62u);
  EXPECT_EQ(Ask(nodes, IdsWith(1), {}, Pooling::kNone, true).ids_sent, 64u);
  EXPECT_EQ(Ask(nodes, IdsWith(63), {}, Pooling::kNone, false).ids_sent, 64u);
  for (const std::size_t duplicates : {0, 1, 2, 63}) {
    SCOPED_TRACE(duplicates);
    const std::vector<std::int64_t> ids = IdsWith(duplicates);
    EXPECT_EQ(Ask(nodes, ids, {}, Pooling::kNone, true).bits,
              Ask(nodes, ids, {}, Pooling::kNone, false).bits);
  }
}

TEST(LookupRouteDuplicates, BagsOfOneIdTravelAsRows) {
  FakeNodes nodes(OneTable());
  SetRow(nodes, 71, -0.0f);  // The first id; its sum is +0.
  const std::vector<std::uint32_t> ones(64, 1);
  const std::vector<std::int64_t> ids = IdsWith(20);
  for (const Pooling pooling : {Pooling::kSum, Pooling::kMean}) {
    const Answer rows = Ask(nodes, ids, ones, pooling, true);
    const Answer bags = Ask(nodes, ids, ones, pooling, false);
    EXPECT_EQ(rows.ids_sent, 44u);
    EXPECT_EQ(rows.lengths_sent, 0u);
    EXPECT_EQ(bags.ids_sent, 64u);
    EXPECT_EQ(bags.lengths_sent, 64u);
    EXPECT_EQ(rows.bits, bags.bits);
    EXPECT_EQ(rows.bits.front(), 0u);
  }
  EXPECT_EQ(Ask(nodes, IdsWith(1), ones, Pooling::kSum, true).lengths_sent, 64u) << "few";
  std::vector<std::uint32_t> lengths = ones;
  lengths.back() = 0;
  lengths.front() = 2;
  EXPECT_EQ(Ask(nodes, ids, lengths, Pooling::kSum, true).ids_sent, 64u) << "a bag of two";
}

TEST(UpdateRouteDuplicates, ManyTravelOnceAndFewAsTheyAre) {
  for (const float clip : {0.0f, 0.25f}) {
    for (const std::size_t duplicates : {0, 1, 2, 63}) {
      SCOPED_TRACE(duplicates);
      FakeNodes chosen(OneTable(clip));
      FakeNodes given(OneTable(clip));
      const std::vector<std::int64_t> ids = IdsWith(duplicates);
      const NodeUpdate request = Send(chosen, ids, {});
      const UpdatePart& part = request.batch.parts.front();
      EXPECT_EQ(part.ids.size(), duplicates >= 2 ? 64 - duplicates : 64);
      EXPECT_EQ(part.clipped, duplicates >= 2);
      Send(given, ids, {.combine_duplicates = false});
      EXPECT_EQ(Bits(chosen.table(TableId{1}).weights()), Bits(given.table(TableId{1}).weights()));
    }
  }
}

TEST(UpdateRouteDuplicates, AreSummedWhereTheWireRoundsOrIdsHaveATtl) {
  FakeNodes nodes(OneTable());
  const NodeUpdate rounded = Send(nodes, IdsWith(1), {.wire_dtype = DType::kBFloat16});
  EXPECT_EQ(rounded.batch.parts.front().ids.size(), 63u);
  const NodeUpdate with_ttl = Send(nodes, IdsWith(1), {}, /*ttl_steps=*/5);
  EXPECT_EQ(with_ttl.batch.parts.front().ids.size(), 63u);
}

}  // namespace
}  // namespace embla::client
