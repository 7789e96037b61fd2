// One call's request to one node. The batch's parts view the buffers, which hold the arrays of all
// parts one after the other, as they travel.
//
// Gradients of an update that travel as the caller gave them are not copied: they are borrowed
// while NodeChannel::Update runs, or longer by its leave. Who keeps the request longer calls Own.
#pragma once

#include <cstddef>
#include <span>

#include "core/base/buffer.h"
#include "core/rows/request.h"

namespace embla::client {

struct NodeLookup {
  LookupBatch batch;
  Buffer ids;      // int64[]
  Buffer lengths;  // uint32[], of pooled parts
  Buffer weights;  // fp32[], of weighted parts
  // Memory for the answered rows, not owned: exactly as many bytes as the parts ask for.
  std::span<std::byte> reply_rows;

  std::size_t bytes() const { return ids.size() + lengths.size() + weights.size(); }
};

struct NodeUpdate {
  UpdateBatch batch;
  Buffer ids;
  Buffer lengths;                  // Lengths of the kBags parts.
  Buffer weights;                  // Weights of the weighted parts.
  Buffer row_sum_squares;          // fp32[], of parts that have them
  Buffer gradients;                // In the batch's wire dtype; of parts that do not borrow them.
  std::size_t borrowed_bytes = 0;  // Gradients of the other parts, in the caller's memory.

  std::size_t bytes() const {
    return ids.size() + lengths.size() + weights.size() + row_sum_squares.size() +
           gradients.size() + borrowed_bytes;
  }
  // Copies what is borrowed.
  void Own();
};

}  // namespace embla::client
