// TorchRec's formulas by examples worked by hand: 2 hosts x 4 devices, 512 samples each, so
// D = 8 and L = 4; a table of 1,000,000 rows with 20 ids per sample.
#include "core/planner/problem/cost_model.h"

#include "gtest/gtest.h"

namespace embla::planner {
namespace {

// Bytes per ms of TorchRec's bandwidths.
constexpr double kGib = 1073741824.0;
constexpr double kHbm = 897 * kGib / 1000;
constexpr double kBus = 32 * kGib / 1000;
constexpr double kIntra = 600 * kGib / 1000;
constexpr double kInter = 12.5 * kGib / 1000;

constexpr double kIds = 20 * 512;     // Ids that one trainer sends per step.
constexpr double kAllIds = kIds * 8;  // 81,920, of all.

class TorchRecCostTest : public testing::Test {
 protected:
  TorchRecCostTest() {
    for (const char* name : {"a", "b"}) {
      Host host{name, {}, std::int64_t{1} << 40, std::int64_t{1} << 40};
      host.devices.assign(4, Device{std::int64_t{32} << 30, 1.0, ""});
      problem_.topology.hosts.push_back(host);
    }
    table_.name = "t";
    table_.rows = 1'000'000;
    table_.dim = 128;
    table_.lookups_per_sample = 20;
  }

  Price PriceOf(ShardingType type, std::uint32_t width, std::uint32_t row_blocks,
                Kernel kernel = Kernel::kDevice) {
    return MakeCostModel(problem_)->PriceOf(table_,
                                            {type, kernel, width, table_.dim / width, row_blocks});
  }

  void ExpectParts(const Price& price, double forward, double forward_comms, double backward,
                   double backward_comms, double prefetch = 0) {
    const double want[] = {forward, forward_comms, backward, backward_comms, prefetch};
    double sum = 0;
    for (std::size_t i = 0; i < kCostParts; ++i) {
      EXPECT_NEAR(price.parts_ms[i], want[i], want[i] * 1e-12) << "part " << i;
      sum += want[i];
    }
    EXPECT_NEAR(MsFromTicks(price.work), sum, sum * 1e-9 + 1e-8);
  }

  Problem problem_;
  Table table_;
};

TEST_F(TorchRecCostTest, TableWise) {
  // Ids 81,920 x 8; rows 81,920 x 128 x 4; results 512 x 8 x 128 x 4 = 2,097,152 bytes.
  const double forward = (655'360.0 + 41'943'040 + 2'097'152) / kHbm;
  const double comms = 2'097'152 / kInter;  // Eight devices are more than one host.
  ExpectParts(PriceOf(ShardingType::kTableWise, 128, 1), forward, comms, 2 * forward, comms);
}

TEST_F(TorchRecCostTest, ColumnWiseAndTableColumnWise) {
  table_.dim = 256;
  // A block of 64 columns: rows 81,920 x 64 x 4, results 512 x 8 x 64 x 4, penalty 1.15.
  const double forward = (655'360.0 + 20'971'520 + 1'048'576) * 1.15 / kHbm;
  const double comms = 1'048'576 / kInter;
  ExpectParts(PriceOf(ShardingType::kColumnWise, 64, 1), forward, comms, 2 * forward, comms);
  ExpectParts(PriceOf(ShardingType::kTableColumnWise, 64, 1), forward, comms, 2 * forward, comms);
}

TEST_F(TorchRecCostTest, NarrowTablesPayForThirtyTwoColumns) {
  table_.dim = 16;
  // Rows count as 32 columns wide, results do not; penalty 1.75.
  const double forward = (655'360.0 + 81'920.0 * 32 * 4 + 4096.0 * 16 * 4) * 1.75 / kHbm;
  const double comms = 4096.0 * 16 * 4 / kInter;
  ExpectParts(PriceOf(ShardingType::kTableWise, 16, 1), forward, comms, 2 * forward, comms);
}

TEST_F(TorchRecCostTest, RowWise) {
  // Each of 8 devices sees an eighth of all ids and makes partial results of every bag.
  const double forward = (10'240.0 * 8 + 10'240.0 * 128 * 4 + 2'097'152) / kHbm;
  const double comms = 2'097'152 / kInter;
  ExpectParts(PriceOf(ShardingType::kRowWise, 128, 8), forward, comms, 2 * forward,
              comms + 2'097'152 * 2.455 / kHbm);
}

TEST_F(TorchRecCostTest, TableRowWiseAndGrid) {
  // A quarter of all ids on each device of one host.
  const double forward = (20'480.0 * 8 + 20'480.0 * 128 * 4 + 2'097'152) / kHbm;
  const double comms = 2'097'152 / kIntra + 2'097'152 / 4.0 / kInter;
  const double backward_comms = comms + 2'097'152 * 2.455 / kHbm;
  ExpectParts(PriceOf(ShardingType::kTableRowWise, 128, 4), forward, comms, 2 * forward,
              backward_comms);
  table_.dim = 256;
  ExpectParts(PriceOf(ShardingType::kGridShard, 128, 4), forward, comms, 2 * forward,
              backward_comms);
}

TEST_F(TorchRecCostTest, DataParallel) {
  table_.rows = 1000;
  // Own ids only, at half the bandwidth; 512,000 bytes all-reduced over 2 hosts and stepped.
  const double forward = (81'920.0 + 10'240.0 * 128 * 4 + 512.0 * 128 * 4) / (kHbm / 2);
  const double reduce = 512'000.0 * 3 / 2 / (kInter * 4) + 512'000.0 * 9.22 / (kHbm / 2);
  ExpectParts(PriceOf(ShardingType::kDataParallel, 128, 8), forward, 0, 2 * forward, reduce);
}

TEST_F(TorchRecCostTest, OneHostTalksInside) {
  problem_.topology.hosts.pop_back();
  const double results = 512.0 * 4 * 128 * 4;
  const double forward = (40'960.0 * 8 + 40'960.0 * 128 * 4 + results) / kHbm;
  const double comms = results / kIntra;
  ExpectParts(PriceOf(ShardingType::kTableWise, 128, 1), forward, comms, 2 * forward, comms);
}

TEST_F(TorchRecCostTest, KernelsReadAtTheirBandwidth) {
  const double bytes = 655'360.0 + 41'943'040 + 2'097'152;
  const double comms = 2'097'152 / kInter;
  const double host = bytes / (kBus / 10);
  ExpectParts(PriceOf(ShardingType::kTableWise, 128, 1, Kernel::kHost), host, comms, 2 * host,
              comms);
  const double cached = bytes / ((0.2 * kHbm + 0.8 * kBus) / 10);
  ExpectParts(PriceOf(ShardingType::kTableWise, 128, 1, Kernel::kHostCached), cached, comms,
              2 * cached, comms);
  const double ssd = bytes / kBus;
  ExpectParts(PriceOf(ShardingType::kTableWise, 128, 1, Kernel::kSsd), ssd, comms, 2 * ssd, comms);
  problem_.pipeline = Pipeline::kPrefetch;
  const double device = bytes / kHbm;
  ExpectParts(PriceOf(ShardingType::kTableWise, 128, 1, Kernel::kHostCached), device, comms,
              2 * device, comms);
}

TEST_F(TorchRecCostTest, PrefetchBringsTheMisses) {
  table_.frequency = {{0.1, 0.6}, {0.3, 0.8}};
  // The hottest 20 % of the rows get 70 % of the ids: 30 % miss.
  const Price price = PriceOf(ShardingType::kTableWise, 128, 1, Kernel::kHostCached);
  EXPECT_NEAR(price.parts_ms[4], 0.3 * kAllIds * 128 * 4 / kBus, 1e-9);
  const Price rows = PriceOf(ShardingType::kRowWise, 128, 8, Kernel::kHostCached);
  EXPECT_NEAR(rows.parts_ms[4], 0.3 * kAllIds / 8 * 128 * 4 / kBus, 1e-9);
}

TEST_F(TorchRecCostTest, WeightsSequencesAndWireFormats) {
  table_.weighted = true;
  const double weighted = (1'310'720.0 + 41'943'040 + 2'097'152) / kHbm;
  const double comms = 2'097'152 / kInter;
  ExpectParts(PriceOf(ShardingType::kTableWise, 128, 1), weighted, comms, 3.1 * weighted, comms);
  table_.weighted = false;
  table_.pooled = false;  // A result for each id.
  table_.wire_bytes = 2;
  const double sequence = (655'360.0 + 41'943'040 + 41'943'040) / kHbm;
  const double half = 20'971'520 / kInter;
  ExpectParts(PriceOf(ShardingType::kTableWise, 128, 1), sequence, half, 2 * sequence, half);
}

TEST_F(TorchRecCostTest, InferenceKeepsTheForwardParts) {
  problem_.pipeline = Pipeline::kInference;
  const double forward = (655'360.0 + 41'943'040 + 2'097'152) / kHbm;
  ExpectParts(PriceOf(ShardingType::kTableWise, 128, 1), forward, 2'097'152 / kInter, 0, 0);
}

TEST_F(TorchRecCostTest, MeasuredFactorScalesTheTime) {
  const Price plain = PriceOf(ShardingType::kTableWise, 128, 1);
  table_.measured_factor = 1.5;
  const Price slow = PriceOf(ShardingType::kTableWise, 128, 1);
  EXPECT_NEAR(static_cast<double>(slow.work), 1.5 * static_cast<double>(plain.work), 2);
  EXPECT_EQ(slow.bytes, plain.bytes);
}

TEST_F(TorchRecCostTest, ReplicaGroupsPayForAveraging) {
  table_.optimizer = OptimizerKind::kRowwiseAdagrad;
  const double plain = PriceOf(ShardingType::kTableWise, 128, 1).parts_ms[3];
  problem_.replicas = 4;
  problem_.sync_period_steps = 10;
  // 516 MB of weights and state, 2 x 3 / 4 of them sent, every tenth step.
  const double sync = 1e6 * (512 + 4) * 1.5 / kIntra / 10;
  EXPECT_NEAR(PriceOf(ShardingType::kTableWise, 128, 1).parts_ms[3], plain + sync, 1e-9);
}

TEST_F(TorchRecCostTest, BytesOfWeightsStateAndBuffers) {
  const std::int64_t ids = 655'360, results = 2'097'152;
  Price price = PriceOf(ShardingType::kTableWise, 128, 1);
  EXPECT_EQ(price.bytes, (TierBytes{512'000'000 + ids + results, 0, 0}));
  table_.optimizer = OptimizerKind::kAdam;
  price = PriceOf(ShardingType::kTableWise, 128, 1);
  EXPECT_EQ(price.bytes[0], 3 * 512'000'000LL + ids + results);
  table_.optimizer = OptimizerKind::kRowwiseAdagrad;
  price = PriceOf(ShardingType::kTableWise, 128, 1);
  EXPECT_EQ(price.bytes[0], 512'000'000 + 4'000'000 + ids + results);
  problem_.pipeline = Pipeline::kSparseDist;
  price = PriceOf(ShardingType::kTableWise, 128, 1);
  EXPECT_EQ(price.bytes[0], 512'000'000 + 4'000'000 + 2 * ids);
}

TEST_F(TorchRecCostTest, BytesOfKernels) {
  const std::int64_t buffers = 655'360 + 2'097'152;
  const Price host = PriceOf(ShardingType::kTableWise, 128, 1, Kernel::kHost);
  EXPECT_EQ(host.bytes, (TierBytes{buffers, 512'000'000, 0}));
  // A fifth of the rows, and 4 + 16 x 0.2 bytes of tags for each.
  const Price cached = PriceOf(ShardingType::kTableWise, 128, 1, Kernel::kHostCached);
  EXPECT_EQ(cached.bytes, (TierBytes{102'400'000 + 7'200'000 + buffers, 512'000'000, 0}));
  const Price ssd = PriceOf(ShardingType::kTableWise, 128, 1, Kernel::kSsd);
  EXPECT_EQ(ssd.bytes, (TierBytes{102'400'000 + 7'200'000 + buffers, 0, 512'000'000}));
}

TEST_F(TorchRecCostTest, RowBlocksAreUnevenAndTheirTotalIsTheTable) {
  table_.rows = 10;
  table_.lookups_per_sample = 0;
  table_.bags_per_sample = 0;
  const Price price = PriceOf(ShardingType::kRowWise, 128, 8);
  EXPECT_EQ(price.bytes[0], 2 * 512);  // Blocks of ceil(10 / 8) rows.
  EXPECT_EQ(price.bytes_total[0], 10 * 512);
  const Price copies = PriceOf(ShardingType::kDataParallel, 128, 8);
  EXPECT_EQ(copies.bytes[0], 10 * 512);
  EXPECT_EQ(copies.bytes_total[0], 8 * 10 * 512);
}

TEST_F(TorchRecCostTest, ColumnWidthIsTheSmallestDivisorAllowed) {
  EXPECT_EQ(ColumnWidth(512, 0), 128u);
  EXPECT_EQ(ColumnWidth(192, 0), 192u);
  EXPECT_EQ(ColumnWidth(192, 64), 64u);
  EXPECT_EQ(ColumnWidth(200, 30), 40u);
  EXPECT_EQ(ColumnWidth(64, 128), 64u);
  EXPECT_EQ(ColumnWidth(7, 1), 7u);
}

TEST_F(TorchRecCostTest, ReservationTakesFractionDenseAndInputs) {
  problem_.tables = {table_};
  const Device device{1'000'000'000, 1.0, ""};
  problem_.reservation = {Reservation::Kind::kFixed, 0.25, 1'000'000};
  EXPECT_EQ(UsableBytes(problem_, device, ReservedBytes(problem_)), 750'000'000);
  problem_.reservation.kind = Reservation::Kind::kHeuristical;
  EXPECT_EQ(UsableBytes(problem_, device, ReservedBytes(problem_)),
            750'000'000 - 6 * 1'000'000 - 20 * 81'920);
  problem_.pipeline = Pipeline::kInference;
  EXPECT_EQ(UsableBytes(problem_, device, ReservedBytes(problem_)),
            750'000'000 - 1'000'000 - 81'920);
  problem_.reservation.dense_bytes = std::int64_t{1} << 40;
  EXPECT_EQ(UsableBytes(problem_, device, ReservedBytes(problem_)), 0);
}

class EmblaCostTest : public TorchRecCostTest {
 protected:
  EmblaCostTest() { problem_.cost = CostKind::kEmbla; }
};

TEST_F(EmblaCostTest, TableWiseLoadsDeviceAndNetwork) {
  const Price price = PriceOf(ShardingType::kTableWise, 128, 1);
  // 4,096 bags; rows once to read, twice to step; results once each way.
  const double results = 4096.0 * 128 * 4;
  EXPECT_NEAR(price.parts_ms[0], (kAllIds * 512 + results) / kHbm + 0.004, 1e-9);
  EXPECT_NEAR(price.parts_ms[2], (kAllIds * 2 * 512 + results) / kHbm, 1e-9);
  EXPECT_NEAR(MsFromTicks(price.host_work), (kAllIds * 8 + 2 * results) / kInter, 1e-8);
}

TEST_F(EmblaCostTest, RowBlocksShareALoadThatHotRowsMakeUneven) {
  const Price even = PriceOf(ShardingType::kRowWise, 128, 8);
  table_.frequency = {{1e-6, 0.5}};  // One row gets half of the ids.
  const Price hot = PriceOf(ShardingType::kRowWise, 128, 8);
  EXPECT_GT(hot.work, even.work * 3 / 2);
  EXPECT_EQ(hot.bytes[0], even.bytes[0]);
}

TEST_F(EmblaCostTest, CachePaysOffWithSkewOnly) {
  const Price uniform = PriceOf(ShardingType::kTableWise, 128, 1, Kernel::kHostCached);
  table_.frequency = {{0.2, 0.99}};
  const Price skewed = PriceOf(ShardingType::kTableWise, 128, 1, Kernel::kHostCached);
  EXPECT_LT(skewed.work, uniform.work / 2);
}

}  // namespace
}  // namespace embla::planner
