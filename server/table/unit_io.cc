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

// Before a block that another one follows: its bytes, a little-endian u64.
constexpr std::size_t kSizeBytes = 8;

std::size_t RoundUpTo8(std::size_t bytes) { return (bytes + 7) / 8 * 8; }
std::size_t SizedBytes(const Buffer& block) { return RoundUpTo8(kSizeBytes + block.size()); }

// The block with its size before it, padded with zeros to a multiple of 8.
void PutSized(const Buffer& block, std::byte* to) {
  const std::uint64_t size = block.size();
  std::memcpy(to, &size, sizeof(size));
  if (size > 0) std::memcpy(to + kSizeBytes, block.data(), size);
  std::memset(to + kSizeBytes + size, 0, SizedBytes(block) - kSizeBytes - size);
}

// Cuts off what PutSized wrote.
absl::StatusOr<std::span<const std::byte>> TakeSized(std::span<const std::byte>& bytes,
                                                     const char* what) {
  std::uint64_t size = 0;
  if (bytes.size() >= kSizeBytes) std::memcpy(&size, bytes.data(), sizeof(size));
  if (bytes.size() < kSizeBytes || size > bytes.size() - kSizeBytes ||
      RoundUpTo8(kSizeBytes + size) > bytes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a chunk with ", bytes.size(), " bytes for a ", what, " of ", size));
  }
  const std::span<const std::byte> block = bytes.subspan(kSizeBytes, size);
  const std::size_t end = RoundUpTo8(kSizeBytes + size);
  const std::span<const std::byte> padding =
      bytes.subspan(kSizeBytes + size, end - kSizeBytes - size);
  if (std::any_of(padding.begin(), padding.end(), [](std::byte b) { return b != std::byte{}; })) {
    return absl::DataLossError(absl::StrCat("the padding behind a ", what, " is not zero"));
  }
  bytes = bytes.subspan(end);
  return block;
}

// `among`: null, or the rows that are wanted, ascending.
absl::StatusOr<Buffer> EncodeBucket(const TableShard& table, const OwnSlice& own,
                                    std::int64_t row_begin, const std::vector<RowId>* among) {
  const std::uint32_t bucket = own.ids->BucketAt(row_begin);
  EMBLA_ASSIGN_OR_RETURN(const Buffer ids, own.ids->ExportBucket(bucket));
  EMBLA_ASSIGN_OR_RETURN(std::vector<RowId> rows_in_use, own.ids->RowsInUse(bucket));
  if (among != nullptr) {
    std::erase_if(rows_in_use,
                  [among](RowId row) { return !std::ranges::binary_search(*among, row); });
  }
  EMBLA_ASSIGN_OR_RETURN(const Buffer rows, EncodeRowsAt(table, own, rows_in_use, nullptr));
  const std::size_t rows_at = SizedBytes(ids);
  Buffer chunk = Buffer::Allocate(rows_at + rows.size());
  PutSized(ids, chunk.data());
  std::memcpy(chunk.data() + rows_at, rows.data(), rows.size());
  return chunk;
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
  if (own.ids != nullptr) return EncodeBucket(table, own, shape.row_begin, nullptr);
  const RowInterval interval = RowsOfChunk(shape, chunk);
  std::vector<RowId> rows;
  for (std::int64_t row = interval.begin; row < interval.end; ++row) rows.push_back(RowId{row});
  return EncodeRowsAt(table, own, rows, pool);
}

absl::StatusOr<Buffer> EncodeBucketRows(const TableShard& table, const OwnSlice& own,
                                        std::int64_t row_begin, const std::vector<RowId>& rows) {
  return EncodeBucket(table, own, row_begin, &rows);
}

Buffer JoinCopies(std::vector<Buffer> blocks) {
  if (blocks.size() == 1) return std::move(blocks.front());
  std::size_t size = 0;
  for (const Buffer& block : blocks) size += SizedBytes(block);
  Buffer chunk = Buffer::Allocate(size);
  std::byte* at = chunk.data();
  for (const Buffer& block : blocks) {
    PutSized(block, at);
    at += SizedBytes(block);
  }
  return chunk;
}

absl::StatusOr<std::vector<std::span<const std::byte>>> SplitCopies(
    std::span<const std::byte> bytes, std::size_t copies) {
  std::vector<std::span<const std::byte>> blocks;
  if (copies == 1) return std::vector{bytes};
  for (std::size_t i = 0; i < copies; ++i) {
    EMBLA_ASSIGN_OR_RETURN(blocks.emplace_back(), TakeSized(bytes, "row block"));
  }
  if (bytes.empty()) return blocks;
  return absl::InvalidArgumentError(
      absl::StrCat("a chunk of ", copies, " copies has ", bytes.size(), " bytes more"));
}

absl::StatusOr<UnitChunk> DecodeChunk(std::span<const std::byte> bytes, const TableShard& table,
                                      const UnitShape& shape, std::uint32_t chunk) {
  UnitChunk decoded;
  const bool hashed = table.id_rows().hashed();
  if (hashed) {
    EMBLA_ASSIGN_OR_RETURN(decoded.bucket, TakeSized(bytes, "bucket block"));
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
