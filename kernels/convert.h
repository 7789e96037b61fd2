// Rows between number formats, for the wire.
//
// Narrowing to fp16 and bf16 is round-to-nearest-even; values too large become infinite.
// int8 row-wise: bias = the row's minimum, scale = (maximum - minimum) / 255, and
// code = nearest-even((value - bias) / scale) computed as (value - bias) * (1 / scale), so the
// error is at most scale * 0.501. A row whose scale would be below the smallest normal float has
// scale 0 and codes 0; a row with a NaN, an infinity, or a range above the largest float has
// scale NaN, so that all of it decodes as NaN.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/row_kernels.h"

namespace embla::kernels {

// Output row i = input row i, for row_count rows. Any of the four formats to any of them.
//
// Requires: in and out do not overlap.
void Convert(const Input& in, const Output& out, std::size_t row_count, std::uint32_t columns);

// Whether an element is NaN or infinite. int8 rows: whether code 0 or code 255 would decode so.
bool HasNonFinite(const Input& in, std::size_t row_count, std::uint32_t columns);

}  // namespace embla::kernels
