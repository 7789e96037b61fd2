// A plan's number format, as the kernels call it.
#pragma once

#include "core/plan/table_spec.h"
#include "kernels/row_kernels.h"

namespace embla {

constexpr kernels::Element ElementOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return kernels::Element::kFloat32;
    case DType::kFloat16:
      return kernels::Element::kFloat16;
    case DType::kBFloat16:
      return kernels::Element::kBFloat16;
    case DType::kInt8Rowwise:
      return kernels::Element::kInt8Rowwise;
  }
  return kernels::Element::kFloat32;
}

}  // namespace embla
