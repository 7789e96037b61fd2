#include "server/table/eviction_log.h"

#include <vector>

#include "core/metrics/table_series.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::testing::ElementsAre;

// One eviction per id; 100 bytes of rows each.
EvictedRows RowsOf(std::int64_t first, std::int64_t count) {
  EvictedRows rows;
  for (std::int64_t id = first; id < first + count; ++id) {
    zch::Eviction& eviction = rows.evictions.emplace_back();
    eviction.id = RowId{id};
  }
  rows.row_block = Buffer::Allocate(100 * count);
  return rows;
}

std::vector<std::int64_t> IdsOf(const EvictionLog::Piece& piece) {
  std::vector<std::int64_t> ids;
  if (piece.rows == nullptr) return ids;
  for (const zch::Eviction& eviction : piece.rows->evictions) ids.push_back(ToInt(eviction.id));
  return ids;
}

TEST(EvictionLogRead, GivesWhatWasAppendedInOrder) {
  EvictionLog log(10000, TableSeries());
  log.Append(RowsOf(1, 2));
  log.Append(RowsOf(3, 1));
  EvictionLog::Piece piece = log.Read(0);
  EXPECT_THAT(IdsOf(piece), ElementsAre(1, 2));
  piece = log.Read(piece.next);
  EXPECT_THAT(IdsOf(piece), ElementsAre(3));
  piece = log.Read(piece.next);
  EXPECT_EQ(piece.rows, nullptr);
  EXPECT_EQ(piece.next, 3u);
  EXPECT_FALSE(piece.closed);
  log.Close();
  EXPECT_TRUE(log.Read(piece.next).closed);
}

TEST(EvictionLogAppend, DropsTheOldestAndReadersLearnHowManyTheyMissed) {
  const std::size_t one = RowsOf(0, 1).bytes();
  EvictionLog log(3 * one, TableSeries());
  for (std::int64_t id = 0; id < 5; ++id) log.Append(RowsOf(id, 1));
  EvictionLog::Piece piece = log.Read(0);
  EXPECT_EQ(piece.missed, 2u);
  EXPECT_THAT(IdsOf(piece), ElementsAre(2));
  EXPECT_EQ(log.Read(piece.next).missed, 0u);
  // More than there is room for: nothing of it is kept.
  log.Append(RowsOf(5, 4));
  piece = log.Read(piece.next);
  EXPECT_EQ(piece.rows, nullptr);
  EXPECT_EQ(piece.missed, 6u);
  EXPECT_EQ(piece.next, 9u);
}

class CountingListener final : public EvictionLog::Listener {
 public:
  void Notify() override { ++calls; }
  int calls = 0;
};

TEST(EvictionLogSubscribe, ListenersHearOfAppendsAndOfTheEnd) {
  EvictionLog log(10000, TableSeries());
  const auto listener = std::make_shared<CountingListener>();
  log.Subscribe(listener);
  log.Append(RowsOf(1, 1));
  log.Append({});
  EXPECT_EQ(listener->calls, 1);
  log.Close();
  EXPECT_EQ(listener->calls, 2);
  log.Unsubscribe(listener.get());
  log.Append(RowsOf(2, 1));
  EXPECT_EQ(listener->calls, 2);
}

}  // namespace
}  // namespace embla
