// Reading rows: one row per id (Gather), or one sum per bag of ids (Pool).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/row_kernels.h"

namespace embla::kernels {

// Output row i = row slots[i]: the same bits, or converted as in convert.h.
// kNoSlot gives a row of zeros (of every element, +0).
//
// Requires: out has rows.columns columns and does not overlap the rows.
void Gather(const Rows& rows, std::span<const std::uint32_t> slots, const Output& out,
            const PrefetchTuning& tuning = {});

// Jagged input: bag b has the next lengths[b] entries of slots.
struct Bags {
  std::span<const std::uint32_t> slots;
  std::span<const std::uint32_t> lengths;  // Sum == slots.size().
  const float* weights = nullptr;          // Null, or one per slot.
};

// Output row b = sum over bag b, in the order of its ids: sum += row, or sum += weight * row with
// the product rounded first. kNoSlot adds nothing, whatever its weight. An empty bag is zeros.
//
// Requires: out.element == kFloat32; out has rows.columns columns.
void Pool(const Rows& rows, const Bags& bags, const Output& out, const PrefetchTuning& tuning = {});

// Turns sums into means: row b is divided by lengths[b]; a row of length 0 becomes zeros.
//
// Requires: rows.element == kFloat32.
void DivideRows(const MutableRows& rows, std::span<const std::uint32_t> lengths);

}  // namespace embla::kernels
