// Rows of any format at any address to any format: between gather.cu and convert.cu.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/row_kernels.h"

namespace embla::kernels::cuda {

struct Move;

int MoveAnyAsync(Element in, Element out, const Move& move, StreamHandle stream);

}  // namespace embla::kernels::cuda
