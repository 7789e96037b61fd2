// A table whose rows count their updates, two writers and a reader of it: whether an acknowledged
// update is lost, doubled, or missed by a lookup.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/include/embla/client.h"
#include "core/base/testing/status_matchers.h"
#include "embla/v1/admin.pb.h"
#include "gtest/gtest.h"

namespace embla::testing {

inline constexpr std::int64_t kCountedRows = 4800;
inline constexpr std::uint32_t kCountedDim = 16;
inline constexpr std::uint32_t kCountedUnits = 48;
inline constexpr int kCountingWriters = 2;
inline constexpr char kCountedTable[] = "t";

// Each update of a row adds 1 to all of its weights: acknowledged ones are counted before anybody
// may rely on them.
struct RowCounts {
  std::array<std::atomic<std::uint32_t>, kCountedRows> acked = {};
  std::atomic<std::uint64_t> updates = 0;
  std::atomic<std::uint64_t> lookups = 0;
  std::atomic<std::uint64_t> stale = 0;
  std::atomic<std::int64_t> slowest_us = 0;  // The slowest update since it was last set.
};

inline v1::CreateTableRequest CountedTableRequest() {
  v1::CreateTableRequest request;
  request.set_table_json(absl::StrCat(R"({"name": ")", kCountedTable, R"(", "rows": )",
                                      kCountedRows, R"(, "dim": )", kCountedDim,
                                      R"(, "row_granules": )", kCountedUnits,
                                      R"(, "optimizer": {"kind": "sgd", "learning_rate": 1.0})",
                                      R"(, "init": {"kind": "constant", "a": 0.0}})"));
  request.set_placement_json(R"({"sharding": "row_wise"})");
  return request;
}

// Writer `share` updates rows of its own.
inline void CountedWrite(client::Client& client, int share, std::mt19937_64& random,
                         RowCounts& counts) {
  std::vector<std::int64_t> ids;
  for (int i = 0; i < 8; ++i) {
    const auto row = static_cast<std::int64_t>(random() % (kCountedRows / kCountingWriters));
    ids.push_back(share + kCountingWriters * row);
  }
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  const std::vector<float> gradients(ids.size() * kCountedDim, -1.0f);
  const client::FeatureGradient feature{.table = kCountedTable, .ids = ids, .gradients = gradients};
  const absl::Time begun = absl::Now();
  ASSERT_THAT(client.Update({&feature, 1}, {}), IsOk());
  const std::int64_t took = absl::ToInt64Microseconds(absl::Now() - begun);
  for (const std::int64_t id : ids) ++counts.acked[static_cast<std::size_t>(id)];
  ++counts.updates;
  std::int64_t slowest = counts.slowest_us;
  while (took > slowest && !counts.slowest_us.compare_exchange_weak(slowest, took)) {
  }
}

inline void CountedRead(client::Client& client, std::mt19937_64& random, RowCounts& counts) {
  const auto id = static_cast<std::int64_t>(random() % kCountedRows);
  const std::uint32_t acked = counts.acked[static_cast<std::size_t>(id)];
  std::vector<float> row(kCountedDim);
  const client::FeatureLookup feature{.table = kCountedTable, .ids = {&id, 1}, .rows_out = row};
  ASSERT_THAT(client.Lookup({&feature, 1}, {}), IsOk());
  ++counts.lookups;
  if (row[0] < static_cast<float>(acked)) ++counts.stale;
}

// Nobody writes any more: all rows are what was acknowledged.
inline void ExpectRowsAreCounted(client::Client& client, const RowCounts& counts) {
  std::vector<std::int64_t> ids(kCountedRows);
  for (std::int64_t id = 0; id < kCountedRows; ++id) ids[static_cast<std::size_t>(id)] = id;
  std::vector<float> rows(ids.size() * kCountedDim);
  ASSERT_THAT(client.ReadRows(kCountedTable, ids, rows), IsOk());
  for (std::size_t id = 0; id < ids.size(); ++id) {
    ASSERT_EQ(rows[id * kCountedDim], static_cast<float>(counts.acked[id])) << "row " << id;
  }
}

}  // namespace embla::testing
