// Rows in transit: the one flat encoding of weights and optimizer state, for the wire, snapshots,
// checkpoints and migration. Little-endian, versioned, CRC32C; grammar and a worked example:
// docs/row_block.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/base/ids.h"
#include "core/plan/table_spec.h"

namespace embla {

inline constexpr std::size_t kRowBlockHeaderBytes = 32;
inline constexpr std::uint32_t kRowBlockRowsMax = 1u << 28;
inline constexpr std::uint32_t kRowBlockStateFloatsMax = 8 * kDimMax;

// Properties that all rows of a block share.
struct RowBlockShape {
  TableId table{};
  std::uint32_t column_begin = 0;  // Columns [column_begin, column_end) of the table.
  std::uint32_t column_end = 0;
  DType dtype = DType::kFloat32;   // Type of the weights; not kInt8Rowwise.
  std::uint32_t state_floats = 0;  // Optimizer state per row; 0: the block has none.

  std::uint32_t columns() const { return column_end - column_begin; }
  // Weights, state and id of one row.
  std::size_t RowBytesTotal() const;
  bool operator==(const RowBlockShape&) const = default;
};

// A decoded block: views over the encoded bytes. Row i is rows[i], the i-th RowBytes(dtype,
// columns()) bytes of weights and the i-th state_floats floats of state.
struct RowBlock {
  RowBlockShape shape;
  std::span<const RowId> rows;
  std::span<const std::byte> weights;
  std::span<const float> state;
};

// Encodes in place: fill rows(), weights() and state(), then Finish.
class RowBlockBuilder {
 public:
  // The memory comes from `pool`, if given. Requires: shape valid, row_count <= kRowBlockRowsMax.
  RowBlockBuilder(const RowBlockShape& shape, std::uint32_t row_count, BufferPool* pool = nullptr);

  std::span<RowId> rows();
  std::span<std::byte> weights();
  std::span<float> state();

  // Adds the checksum and gives the block away; the builder is empty after that.
  Buffer Finish();

 private:
  RowBlockShape shape_;
  std::uint32_t row_count_;
  Buffer buffer_;
};

// Errors: InvalidArgument (not a row block, unknown version, impossible sizes), DataLoss
// (checksum). Nothing is allocated. Requires: bytes.data() is 8-byte aligned, as buffers are.
absl::StatusOr<RowBlock> DecodeRowBlock(std::span<const std::byte> bytes);

}  // namespace embla
