// The CUDA twin of kernels/initialize.h. Contract of all verbs: launch.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/initialize.h"

namespace embla::kernels::cuda {

// kernels::Initialize.
int InitializeAsync(const InitParameters& parameters, const InitRows& rows, std::size_t first_slot,
                    std::size_t row_count, StreamHandle stream);

// Slot slots[i] becomes row ids[i] of the table; with null slots, slot i does. kNoSlot is left out;
// other slots are unique. rows.first_row is not read.
int InitializeIdsAsync(const InitParameters& parameters, const InitRows& rows,
                       const std::uint32_t* slots, const std::int64_t* ids, std::size_t count,
                       StreamHandle stream);

}  // namespace embla::kernels::cuda
