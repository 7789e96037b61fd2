// The oracle: every verb of the kernels as a plain loop over elements, with formats decoded and
// encoded through double arithmetic. Slow and obvious; tests compare the kernels to it bit by bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/combine.h"
#include "kernels/initialize.h"
#include "kernels/lookup.h"
#include "kernels/optimizer_step.h"
#include "kernels/row_kernels.h"

namespace embla::kernels::reference {

// Element `column` of a row that starts at `row`.
float Decode(const void* row, Element element, std::size_t column);
// Writes `columns` values to the row that starts at `row`, to nearest even.
void EncodeRow(std::span<const float> values, Element element, void* row);
// fp16 or bf16 of `value`, rounded up with the probability that the 32 random bits decide.
std::uint16_t RoundStochastic(float value, Element element, std::uint32_t random);

void Gather(const Rows& rows, std::span<const std::uint32_t> slots, const Output& out);
void Pool(const Rows& rows, const Bags& bags, const Output& out);
void DivideRows(const MutableRows& rows, std::span<const std::uint32_t> lengths);
void Convert(const Input& in, const Output& out, std::size_t row_count, std::uint32_t columns);
bool HasNonFinite(const Input& in, std::size_t row_count, std::uint32_t columns);
void GroupIds(std::span<const std::int64_t> ids, Grouping& grouping);
void SumSegments(const Grouping& grouping, const Gradients& gradients, std::size_t first,
                 std::size_t last, std::span<float> sums, std::size_t stride);
void RowSumSquares(const Rows& rows, std::span<float> out);
void Step(const StepParameters& parameters, const StepRows& rows, const StepBatch& batch);
void Initialize(const InitParameters& parameters, const InitRows& rows, std::size_t first_slot,
                std::size_t row_count);

}  // namespace embla::kernels::reference
