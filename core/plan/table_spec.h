// A table's definition: shape, number format, optimizer, initial values. An immutable value that
// the coordinator checks once (Validate) and everyone else trusts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "core/base/ids.h"
#include "core/optimizer/optimizer_kind.h"
#include "core/plan/sharding_type.h"
#include "core/plan/sync_spec.h"
#include "core/plan/zch_spec.h"

namespace embla {

inline constexpr std::uint32_t kDimMax = 2048;
inline constexpr std::int64_t kRowsMax = std::int64_t{1} << 40;
inline constexpr std::uint32_t kRowGranulesDefault = 4096;
inline constexpr std::uint32_t kRowGranulesMax = std::uint32_t{1} << 20;
inline constexpr std::uint32_t kReplicaGroupsMax = 64;

// Number format of weights, or of rows and gradients on the wire.
enum class DType : std::uint8_t { kFloat32 = 1, kFloat16 = 2, kBFloat16 = 3, kInt8Rowwise = 4 };

// How weight decay enters the step. Formulas: docs/optimizers.md.
enum class WeightDecayMode : std::uint8_t { kNone = 0, kL2 = 1, kDecoupled = 2 };

// The step number in Adam's bias correction.
//   kRow   t = number of steps this row has taken: independent of plan and of other trainers
//   kStep  t = the step number that the update carries
enum class BiasCorrection : std::uint8_t { kRow = 0, kStep = 1 };

// Rounding of fp16 and bf16 weights after a step; fp32 tables ignore it.
enum class Rounding : std::uint8_t { kNearest = 0, kStochastic = 1 };

// Treatment of an id outside 0..rows-1.
//   kError   the whole call fails with OUT_OF_RANGE and changes nothing
//   kIgnore  it counts in embla_ids_out_of_range_total, reads as zeros, and its gradient is dropped
enum class BoundsMode : std::uint8_t { kError = 0, kIgnore = 1 };

// Treatment of a NaN or infinite gradient.
//   kReject  the whole update fails with INVALID_ARGUMENT and changes nothing
//   kAllow   it is applied as it is
enum class NanPolicy : std::uint8_t { kReject = 0, kAllow = 1 };

// How far the record of an update of the table must have come when the update is acknowledged.
// docs/consistency.md#durability.
//   kNode     as far as the node that has the rows says (embla-shard --durability)
//   kQueued   it waits to be written: survives a clean stop
//   kWritten  the operating system has it: survives the death of the process
//   kSynced   the disk has it: survives the loss of power
enum class TableDurability : std::uint8_t { kNode = 0, kQueued = 1, kWritten = 2, kSynced = 3 };

// Hyper-parameters. All but `kind` can be changed while training goes on (`embla table set`).
struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::kRowwiseAdagrad;
  float learning_rate = 0.01f;
  float eps = 1e-8f;                 // Adagrad, Adam.
  float beta1 = 0.9f;                // Adam.
  float beta2 = 0.999f;              // Adam.
  float initial_accumulator = 0.0f;  // Adagrad: what a row's accumulator starts from.
  float weight_decay = 0.0f;
  WeightDecayMode weight_decay_mode = WeightDecayMode::kNone;
  // Element-wise clamp of incoming gradients to +-gradient_clip, before bags are expanded and
  // duplicates summed. 0 turns it off.
  float gradient_clip = 0.0f;
  BiasCorrection bias_correction = BiasCorrection::kRow;

  absl::Status Validate() const;
  bool operator==(const OptimizerSpec&) const = default;
};

// Initial weights; a function of (table seed, global row id, column) only, never of the plan.
enum class InitKind : std::uint8_t { kDefault = 0, kConstant = 1, kUniform = 2, kNormal = 3 };
struct InitSpec {
  // kDefault   uniform in +-sqrt(1/rows)          kConstant  every weight is `a`
  // kUniform   uniform in [a, b)                  kNormal    mean a, standard deviation b
  InitKind kind = InitKind::kDefault;
  float a = 0.0f;
  float b = 0.0f;

  absl::Status Validate() const;
  bool operator==(const InitSpec&) const = default;
};

inline constexpr std::size_t kCallersMax = 64;

struct TableSpec {
  TableId id{};
  std::string name;               // [A-Za-z0-9._-]{1,128}, no leading dot.
  std::int64_t rows = 0;          // 1..kRowsMax.
  std::uint32_t dim = 0;          // 1..kDimMax columns.
  DType dtype = DType::kFloat32;  // kFloat32, kFloat16 or kBFloat16; fixed at creation.
  // Units, fixed at creation: row granule i covers rows [floor(i*rows/G), floor((i+1)*rows/G)),
  // column granule j covers columns [j*W, min((j+1)*W, dim)).
  std::uint32_t row_granules = 0;          // G, 1..min(rows, kRowGranulesMax); 0 asks for 4096
                                           // (ZCH: one per bucket).
  std::uint32_t column_granule_width = 0;  // W, a multiple of 4 (or >= dim); 0 asks for 4
                                           // (ZCH: dim).
  OptimizerSpec optimizer{};
  InitSpec init{};
  std::uint64_t seed = 0;  // Seeds initial values and stochastic rounding.
  Rounding rounding = Rounding::kNearest;
  BoundsMode bounds = BoundsMode::kError;
  NanPolicy nan_policy = NanPolicy::kReject;
  TableDurability durability = TableDurability::kNode;  // Can be changed while training goes on.
  // Trainers and readers that may use the table, by the names in their certificates; at most
  // kCallersMax. Empty: all of them. Can be changed while training goes on.
  std::vector<std::string> callers = {};
  // How many whole copies of the table there are, one per replica group (docs/consistency.md);
  // fixed at creation. 1: the table has no groups.
  std::uint32_t replica_groups = 1;
  // A node averages the groups' copies when each of them has applied this many updates since it
  // last did. 0: only when asked to.
  std::uint32_t sync_every_steps = 0;
  // Ids that one training sample looks up here, as far as is known: the planner's measure of load.
  float lookups_per_sample = 1.0f;
  // Ids are any 64-bit numbers, and get rows as they come (docs/zch.md). Then `rows` is the number
  // of ids that can have one, a row granule is a bucket, and columns are never cut.
  std::optional<ZchSpec> zch{};
  // The table steps once per training step, with the sum over all ranks. Else: once per update.
  std::optional<SyncSpec> sync{};

  // Fills in row_granules and column_granule_width where they are 0, and rounds the rows of a ZCH
  // table up to whole groups.
  void SetDefaults();
  // InvalidArgument names the field, its value and the allowed range. Call SetDefaults before.
  absl::Status Validate() const;

  std::uint32_t column_granules() const {
    return (dim + column_granule_width - 1) / column_granule_width;
  }
  // First row of row granule `granule`; granule == row_granules gives `rows`.
  std::int64_t RowGranuleBegin(std::uint32_t granule) const;
  // First column of column granule `granule`; granule == column_granules() gives `dim`.
  std::uint32_t ColumnGranuleBegin(std::uint32_t granule) const;
  // Whether a slice may begin or end at this row or column; 0 and the end are borders.
  bool IsRowBorder(std::int64_t row) const;
  bool IsColumnBorder(std::uint32_t column) const;

  // Bytes of one full row: weights, and optimizer state (fp32).
  std::int64_t WeightBytesPerRow() const;
  std::int64_t StateBytesPerRow() const;

  bool operator==(const TableSpec&) const = default;
};

// Bytes of one element. kInt8Rowwise: 1, plus 8 bytes (scale, bias as fp32) per row.
std::uint32_t ElementBytes(DType dtype);
// Bytes of a row of `columns` elements, the int8 row header included.
std::size_t RowBytes(DType dtype, std::uint32_t columns);

StateShape StateShapeOf(const OptimizerSpec& optimizer);

// Letters, digits, '.', '_' and '-', 1 to 128 of them, no leading dot: a name is safe as a file
// name, a label and an argument. `what` says what it names, for the message.
absl::Status ValidateName(std::string_view what, std::string_view name);

bool NeedsRowStatistic(const OptimizerSpec& optimizer);

}  // namespace embla
