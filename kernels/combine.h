// Duplicates of a batch become one gradient per row.
//
// GroupIds sorts positions by id, stably, so that a row's gradients stay in arrival order.
// SumSegments adds them: from +0, in arrival order, in pieces of kCombinePiece; the pieces are
// added, from +0, in order. Summing sums that were already combined changes nothing, so client
// and server may both combine. The order depends on nothing but the batch, so results do not
// depend on threads, slices or devices.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/row_kernels.h"

namespace embla::kernels {

// The positions of a batch by id. Reuse one object for many batches: it keeps its memory.
struct Grouping {
  std::vector<std::int64_t> ids;         // Unique, ascending.
  std::vector<std::uint32_t> offsets;    // ids.size() + 1 entries; empty batch: {0}.
  std::vector<std::uint32_t> positions;  // Segment i: [offsets[i], offsets[i+1]), ascending.

  // Scratch memory of GroupIds: (id, position) in one word where the ids' range allows, else in
  // two.
  std::vector<std::uint64_t> narrow[2];
  std::vector<std::array<std::uint64_t, 2>> wide[2];
};

// Groups the positions 0..ids.size()-1 by ids[position]. A least-significant-digit radix sort over
// the digits in which the ids differ; ids that are ascending already are not sorted.
//
// Requires: ids.size() < 2^32.
void GroupIds(std::span<const std::int64_t> ids, Grouping& grouping);

// For gradients of pooled outputs: entry p gets its bag's number, and its factor 1 / length.
//
// Requires: bag_of.size() == sum of lengths; inverse_lengths is empty or has the same size.
void ExpandBags(std::span<const std::uint32_t> lengths, std::span<std::uint32_t> bag_of,
                std::span<float> inverse_lengths);

// The gradient of position p: row row_of[p] of `rows` (row p when row_of is null), every element
// clamped to +-clip (clip > 0), then times factors[p] (when not null).
struct Gradients {
  Input rows;
  std::uint32_t columns = 0;
  const std::uint32_t* row_of = nullptr;
  const float* factors = nullptr;
  float clip = 0.0f;
};

// Writes the sums of segments [first, last) of `grouping` to sums + (i - first) * stride.
//
// Requires: stride >= gradients.columns; sums does not overlap the gradients.
void SumSegments(const Grouping& grouping, const Gradients& gradients, std::size_t first,
                 std::size_t last, std::span<float> sums, std::size_t stride);

// out[i] = sum of squares of row i, by the 16-lane tree of row_kernels.h.
// `rows` has whole rows: a sum over a part of the columns is no partial result of this one.
//
// Requires: rows.element == kFloat32; out.size() rows.
void RowSumSquares(const Rows& rows, std::span<float> out);

}  // namespace embla::kernels
