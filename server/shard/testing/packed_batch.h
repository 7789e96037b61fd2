// Batches with their memory, for tests: what the wire decoder makes of a request.
#pragma once

#include <cstdint>
#include <vector>

#include "core/rows/request.h"

namespace embla::testing {

// A part of either kind whose arrays are its own.
struct LookupPartData {
  LookupPart part;  // Without spans.
  std::vector<RowId> ids;
  std::vector<std::uint32_t> lengths;
  std::vector<float> weights;
};
struct UpdatePartData {
  UpdatePart part;  // Without spans.
  std::vector<RowId> ids;
  std::vector<std::uint32_t> lengths;
  std::vector<float> weights;
  std::vector<std::byte> gradients;
  std::vector<float> row_sum_squares;
};

// `gap_bytes` stand between the gradients of two parts; 0: one array, as on the wire.
LookupBatch Pack(const LookupBatch& header, const std::vector<LookupPartData>& parts);
UpdateBatch Pack(const UpdateBatch& header, const std::vector<UpdatePartData>& parts,
                 std::size_t gap_bytes = 0);
// A batch with memory of its own.
UpdateBatch Copy(const UpdateBatch& batch);

// fp32 values as rows of `columns` in `dtype`.
std::vector<std::byte> EncodeRows(const std::vector<float>& values, std::uint32_t columns,
                                  DType dtype);

}  // namespace embla::testing
