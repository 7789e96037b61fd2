// Lookup and update batches as the shard server and the client see them. Their parts view memory:
// that of a received message, which all copies of the batch keep, or memory that whoever made the
// batch keeps for the duration of the call. core/wire fills them from messages; the field by field
// meaning is in proto/embla/v1/data.proto and docs/protocol.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/ids.h"
#include "core/base/session_proof.h"
#include "core/base/trace_context.h"
#include "core/plan/table_spec.h"
#include "core/plan/unit_set.h"
#include "core/rows/device_times.h"

namespace embla {

enum class Pooling : std::uint8_t { kNone = 1, kSum = 2, kMean = 3 };

// Rows of one table and one column range. `ids` is jagged: bag b has lengths[b] ids.
// kNone: lengths is empty, one output row per id. Otherwise: one output row per bag.
struct LookupPart {
  TableId table{};
  std::uint32_t replica_group = 0;  // Group of the copy; 0 without groups.
  Pooling pooling = Pooling::kNone;
  std::uint32_t column_begin = 0;
  std::uint32_t column_end = 0;
  std::span<const RowId> ids;
  std::span<const std::uint32_t> lengths;  // Sum == ids.size(); empty when pooling is kNone.
  std::span<const float> weights;          // Empty, or one per id (kSum only).

  std::uint32_t columns() const { return column_end - column_begin; }
  std::size_t output_rows() const {
    return pooling == Pooling::kNone ? ids.size() : lengths.size();
  }
};

struct LookupBatch {
  PlanVersion plan_version{};
  SessionId session{};  // The sender's session; 0: unknown.
  SessionProof proof{};
  DType wire_dtype = DType::kFloat32;  // Format of the answered rows.
  // Whether the sender understands an answer that names units on the move instead of rows.
  bool takes_refused = false;
  std::vector<LookupPart> parts;
  SharedBuffer memory = {};  // The parts' memory; empty: whoever made the batch keeps it.
  TraceContext trace = {};   // The span of the message; not set: it is not traced.
  // On a node: where devices say how long they have had it; null: nobody wants to know.
  std::shared_ptr<DeviceTimes> device_times = nullptr;
};

// Ids of all parts.
inline std::size_t RowsOf(const LookupBatch& batch) {
  std::size_t rows = 0;
  for (const LookupPart& part : batch.parts) rows += part.ids.size();
  return rows;
}

// Gradients of one table and one column range, row-major, `columns()` per row.
//   kRows    one gradient row per id
//   kBags    one gradient row per bag: the gradient of the pooled output
//   kImages  no gradients: each id's new weights and optimizer state, fp32, in place of a step
struct UpdatePart {
  enum class Form : std::uint8_t { kRows = 1, kBags = 2, kImages = 3 };

  TableId table{};
  std::uint32_t replica_group = 0;  // Group of the copy; 0 without groups.
  Form form = Form::kRows;
  Pooling pooling = Pooling::kSum;  // kBags: kSum, or kMean (each id gets 1/length).
  std::uint32_t column_begin = 0;
  std::uint32_t column_end = 0;
  std::span<const RowId> ids;
  std::span<const std::uint32_t> lengths;  // kBags only; sum == ids.size().
  std::span<const float> weights;          // kBags with kSum only: empty, or one per id.
  std::span<const std::byte> gradients;    // Gradients, or images; row_bytes(wire_dtype) per row.
  // kRows with unique ids only: the sum of squares of each id's gradient over all columns of the
  // table, for optimizers with a row statistic when this part has a part of the columns.
  std::span<const float> row_sum_squares;
  // The sender has clamped the gradients already (it combined duplicates after the clamp).
  bool clipped = false;
  // ZCH tables with policy ttl only: how many steps the ids live after this update; 0: as the table
  // says. An id of several parts lives as long as the longest.
  std::uint32_t ttl_steps = 0;
  // In place of the table's; the parts of a table agree. Not of kImages.
  std::optional<float> learning_rate = {};
  // kImages only. An image is the weights of the columns, unless state_only, and then state_floats
  // floats of state: the row's scalars, and each array's columns. 0: the state stays as it is.
  std::uint32_t state_floats = 0;
  bool state_only = false;

  std::uint32_t columns() const { return column_end - column_begin; }
  bool is_images() const { return form == Form::kImages; }
  std::size_t gradient_rows() const { return form == Form::kBags ? lengths.size() : ids.size(); }
  std::size_t image_floats() const { return (state_only ? 0 : columns()) + state_floats; }
  std::size_t row_bytes(DType wire_dtype) const {
    return is_images() ? image_floats() * sizeof(float) : RowBytes(wire_dtype, columns());
  }
};

// The session's updates below first_incomplete are acknowledged.
struct UpdateName {
  SessionId session{};
  UpdateSeq seq{};
  UpdateSeq first_incomplete{};
  bool operator==(const UpdateName&) const = default;
};

// In updates of tables with synchronous steps: the batch is what a rank contributes to `step`,
// and has no parts of other tables (docs/synchronous_steps.md).
struct StepClaim {
  TableId table{};
  Rank rank{};
  bool resumes = false;  // The rank's session before may have made the step.
  UnitSet units;         // All that the batch speaks for; of most it may have no rows.
};

struct UpdateBatch {
  PlanVersion plan_version{};
  PlanVersion routed_since{};  // The oldest one that any request of the seq was routed by; 0: any.
  SessionId session{};
  SessionProof proof{};  // Looked at where requests come in; nodes do not tell each other.
  UpdateSeq seq{};
  UpdateSeq first_incomplete{};  // Every seq below it is acknowledged: its record may go.
  std::uint64_t step = 0;        // Keys stochastic rounding; Adam's t with BiasCorrection::kStep.
  DType wire_dtype = DType::kFloat32;  // Format of the gradients.
  std::vector<UpdatePart> parts;       // Parts of one table are one step.
  SharedBuffer memory = {};            // The parts' memory; empty: whoever made the batch keeps it.
  bool gradients_are_finite = false;   // Seen as they came; false: nobody has looked.
  std::optional<StepClaim> claim = {};
  // A whole step, which a node makes of the contributions that have come; theirs may be none.
  bool is_step = false;
  std::vector<UpdateName> contributors = {};
  TraceContext trace = {};  // This and the next: those of LookupBatch.
  std::shared_ptr<DeviceTimes> device_times = nullptr;
};

// Ids of all parts.
inline std::size_t RowsOf(const UpdateBatch& batch) {
  std::size_t rows = 0;
  for (const UpdatePart& part : batch.parts) rows += part.ids.size();
  return rows;
}

}  // namespace embla
