#include "server/table/unit_io.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "server/table/row_io.h"

namespace embla {
namespace {

// Before the bucket block of a ZCH table's chunk: its bytes, a little-endian u64.
constexpr std::size_t kBucketSizeBytes = 8;

std::size_t RoundUpTo8(std::size_t bytes) { return (bytes + 7) / 8 * 8; }

absl::StatusOr<Buffer> EncodeBucketChunk(const TableShard& table, const OwnSlice& own,
                                         const UnitShape& shape) {
  const std::uint32_t bucket = own.ids->BucketAt(shape.row_begin);
  EMBLA_ASSIGN_OR_RETURN(const Buffer ids, own.ids->ExportBucket(bucket));
  EMBLA_ASSIGN_OR_RETURN(const std::vector<RowId> rows_in_use, own.ids->RowsInUse(bucket));
  EMBLA_ASSIGN_OR_RETURN(const Buffer rows, EncodeRowsAt(table, own, rows_in_use, nullptr));
  const std::size_t rows_at = RoundUpTo8(kBucketSizeBytes + ids.size());
  Buffer chunk = Buffer::Allocate(rows_at + rows.size());
  const std::uint64_t size = ids.size();
  std::memcpy(chunk.data(), &size, sizeof(size));
  std::memcpy(chunk.data() + kBucketSizeBytes, ids.data(), ids.size());
  std::memset(chunk.data() + kBucketSizeBytes + ids.size(), 0,
              rows_at - kBucketSizeBytes - ids.size());
  std::memcpy(chunk.data() + rows_at, rows.data(), rows.size());
  return chunk;
}

// Cuts the bucket block off; what is left is the row block.
absl::StatusOr<std::span<const std::byte>> TakeBucket(std::span<const std::byte>& bytes) {
  std::uint64_t size = 0;
  if (bytes.size() >= kBucketSizeBytes) std::memcpy(&size, bytes.data(), sizeof(size));
  if (bytes.size() < kBucketSizeBytes || size > bytes.size() - kBucketSizeBytes ||
      RoundUpTo8(kBucketSizeBytes + size) > bytes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a chunk of ", bytes.size(), " bytes with a bucket block of ", size));
  }
  const std::span<const std::byte> bucket = bytes.subspan(kBucketSizeBytes, size);
  const std::size_t rows_at = RoundUpTo8(kBucketSizeBytes + size);
  const std::span<const std::byte> padding =
      bytes.subspan(kBucketSizeBytes + size, rows_at - kBucketSizeBytes - size);
  if (std::any_of(padding.begin(), padding.end(), [](std::byte b) { return b != std::byte{}; })) {
    return absl::DataLossError("the padding behind a bucket block is not zero");
  }
  bytes = bytes.subspan(rows_at);
  return bucket;
}

// All rows of the chunk, ascending; of a bucket, some of them.
bool HasRows(std::span<const RowId> rows, RowInterval interval, bool all) {
  if (all && rows.size() != static_cast<std::size_t>(interval.end - interval.begin)) return false;
  std::int64_t next = interval.begin;
  for (const RowId row : rows) {
    if (ToInt(row) < next || ToInt(row) >= interval.end) return false;
    next = ToInt(row) + 1;
  }
  return true;
}

}  // namespace

RowInterval RowsOfChunk(const UnitShape& shape, std::uint32_t chunk) {
  const std::int64_t begin = shape.row_begin + chunk * shape.chunk_rows;
  return {begin, std::min(begin + shape.chunk_rows, shape.row_end)};
}

void MatchBucket(OwnSlice& own, RowInterval rows) {
  if (own.ids == nullptr) return;
  const std::uint32_t bucket = own.ids->BucketAt(rows.begin);
  if (own.present.ContainsAll(rows)) {
    own.ids->AddBucket(bucket);
  } else if (!own.staged.ContainsAll(rows)) {
    own.ids->RemoveBucket(bucket);
  }
}

absl::StatusOr<Buffer> EncodeChunk(const TableShard& table, const OwnSlice& own,
                                   const UnitShape& shape, std::uint32_t chunk, BufferPool* pool) {
  if (own.ids != nullptr) return EncodeBucketChunk(table, own, shape);
  const RowInterval interval = RowsOfChunk(shape, chunk);
  std::vector<RowId> rows;
  for (std::int64_t row = interval.begin; row < interval.end; ++row) rows.push_back(RowId{row});
  return EncodeRowsAt(table, own, rows, pool);
}

absl::StatusOr<UnitChunk> DecodeChunk(std::span<const std::byte> bytes, const TableShard& table,
                                      const UnitShape& shape, std::uint32_t chunk) {
  UnitChunk decoded;
  const bool hashed = table.id_rows().hashed();
  if (hashed) {
    EMBLA_ASSIGN_OR_RETURN(decoded.bucket, TakeBucket(bytes));
  }
  EMBLA_ASSIGN_OR_RETURN(decoded.rows, DecodeRowBlock(bytes));
  const RowBlockShape& block = decoded.rows.shape;
  const RowInterval interval = RowsOfChunk(shape, chunk);
  if (block.table == table.id() && block.column_begin == shape.column_begin &&
      block.column_end == shape.column_end && HasRows(decoded.rows.rows, interval, !hashed)) {
    return decoded;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("row block of table ", ToInt(block.table), ", columns [", block.column_begin,
                   ", ", block.column_end, "), ", decoded.rows.rows.size(), " rows is not chunk ",
                   chunk, " of table ", table.name(), ", columns [", shape.column_begin, ", ",
                   shape.column_end, "), rows [", interval.begin, ", ", interval.end, ")"));
}

absl::Status WriteChunk(TableShard& table, OwnSlice& own, const UnitShape& shape,
                        const UnitChunk& chunk) {
  EMBLA_RETURN_IF_ERROR(CheckFits(table, own, chunk.rows.shape));
  if (own.ids != nullptr) {
    EMBLA_RETURN_IF_ERROR(own.ids->ReplaceBucket(own.ids->BucketAt(shape.row_begin), chunk.bucket));
  }
  return WriteRowBlock(table, own, chunk.rows);
}

}  // namespace embla
