#include "core/wire/plan_codec.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/names.h"
#include "core/wire/plan_bytes.h"

namespace embla::wire {
namespace {

// Reads enums, and remembers the first value that means nothing.
class EnumReader {
 public:
  template <typename Enum>
  Enum Read(const char* field, std::uint32_t value) {
    if (value <= std::numeric_limits<std::uint8_t>::max()) {
      const auto as_enum = static_cast<Enum>(value);
      if (!NameOf(as_enum).empty()) return as_enum;
    }
    if (status_.ok()) {
      status_ = absl::InvalidArgumentError(
          absl::StrCat(field, " has the value ", value, ", which nothing is known of"));
    }
    return Enum{};
  }
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

template <typename Enum>
std::uint32_t NumberOf(Enum value) {
  return static_cast<std::uint32_t>(value);
}

// The granule whose first row is `row`; the one after the last for all rows. Slices of valid plans
// are cut on such rows.
std::uint32_t GranuleAt(const TableSpec& spec, std::int64_t row) {
  const auto granule = static_cast<std::uint32_t>(static_cast<double>(row) * spec.row_granules /
                                                  static_cast<double>(spec.rows));
  const std::uint32_t first = granule == 0 ? 0 : granule - 1;
  for (std::uint32_t at = first; at < std::min(granule + 2, spec.row_granules); ++at) {
    if (spec.RowGranuleBegin(at) == row) return at;
  }
  return spec.row_granules;
}

// The granule that slice `index` of `slices` begins with where they are dealt out evenly.
std::uint32_t DealtBegin(const TableSpec& spec, std::size_t index, std::size_t slices) {
  const std::size_t each = spec.row_granules / slices;
  const std::size_t more = spec.row_granules % slices;
  return static_cast<std::uint32_t>(index * each + std::min(index, more));
}

bool AreDealtOut(const TableSpec& spec, const std::vector<Slice>& slices) {
  for (std::size_t i = 0; i < slices.size(); ++i) {
    if (slices[i].row_begin != spec.RowGranuleBegin(DealtBegin(spec, i, slices.size())) ||
        slices[i].row_end != spec.RowGranuleBegin(DealtBegin(spec, i + 1, slices.size()))) {
      return false;
    }
  }
  return true;
}

void Encode(const TableSpec& spec, const std::vector<Slice>& slices, v1::Tiling* message) {
  for (const Slice& slice : slices) {
    message->add_nodes(ToInt(slice.device.node));
    message->add_devices(slice.device.index);
  }
  if (CutsColumns(spec, slices)) {
    for (const Slice& slice : slices) {
      message->add_column_begin(slice.column_begin);
      message->add_column_end(slice.column_end);
    }
  }
  if (AreDealtOut(spec, slices)) return;
  for (const Slice& slice : slices) {
    message->add_granule_begin(GranuleAt(spec, slice.row_begin));
    message->add_granule_end(GranuleAt(spec, slice.row_end));
  }
}

absl::StatusOr<std::vector<Slice>> Decode(const TableSpec& spec, const v1::Tiling& message) {
  const int count = message.nodes_size();
  const bool has_columns = message.column_begin_size() > 0;
  const bool has_granules = message.granule_begin_size() > 0;
  if (count == 0 || message.devices_size() != count ||
      message.column_begin_size() != (has_columns ? count : 0) ||
      message.column_end_size() != message.column_begin_size() ||
      message.granule_begin_size() != (has_granules ? count : 0) ||
      message.granule_end_size() != message.granule_begin_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tiling of ", count, " slices whose lists have other lengths"));
  }
  if (spec.row_granules == 0 || spec.row_granules > kRowGranulesMax || spec.rows > kRowsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(spec.rows, " rows in ", spec.row_granules, " row granules"));
  }
  std::vector<Slice> slices(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::uint32_t begin =
        has_granules ? message.granule_begin(i) : DealtBegin(spec, at, slices.size());
    const std::uint32_t end =
        has_granules ? message.granule_end(i) : DealtBegin(spec, at + 1, slices.size());
    if (begin > spec.row_granules || end > spec.row_granules) {
      return absl::InvalidArgumentError(
          absl::StrCat("a slice of row granules ", begin, "-", end, " of ", spec.row_granules));
    }
    Slice& slice = slices[at];
    slice.row_begin = spec.RowGranuleBegin(begin);
    slice.row_end = spec.RowGranuleBegin(end);
    slice.column_begin = has_columns ? message.column_begin(i) : 0;
    slice.column_end = has_columns ? message.column_end(i) : spec.dim;
    slice.device = {NodeId{message.nodes(i)}, message.devices(i)};
  }
  return slices;
}

void Encode(const OptimizerSpec& optimizer, v1::OptimizerSpec* message) {
  message->set_kind(NumberOf(optimizer.kind));
  message->set_learning_rate(optimizer.learning_rate);
  message->set_eps(optimizer.eps);
  message->set_beta1(optimizer.beta1);
  message->set_beta2(optimizer.beta2);
  message->set_initial_accumulator(optimizer.initial_accumulator);
  message->set_weight_decay(optimizer.weight_decay);
  message->set_weight_decay_mode(NumberOf(optimizer.weight_decay_mode));
  message->set_gradient_clip(optimizer.gradient_clip);
  message->set_bias_correction(NumberOf(optimizer.bias_correction));
}

OptimizerSpec Decode(const v1::OptimizerSpec& message, EnumReader& enums) {
  OptimizerSpec optimizer;
  optimizer.kind = enums.Read<OptimizerKind>("optimizer", message.kind());
  optimizer.learning_rate = message.learning_rate();
  optimizer.eps = message.eps();
  optimizer.beta1 = message.beta1();
  optimizer.beta2 = message.beta2();
  optimizer.initial_accumulator = message.initial_accumulator();
  optimizer.weight_decay = message.weight_decay();
  optimizer.weight_decay_mode =
      enums.Read<WeightDecayMode>("weight_decay_mode", message.weight_decay_mode());
  optimizer.gradient_clip = message.gradient_clip();
  optimizer.bias_correction =
      enums.Read<BiasCorrection>("bias_correction", message.bias_correction());
  return optimizer;
}

void Encode(const ZchSpec& zch, v1::ZchSpec* message) {
  message->set_buckets(zch.buckets);
  message->set_policy(NumberOf(zch.policy));
  message->set_distance_exponent(zch.distance_exponent);
  message->set_ttl_steps(zch.ttl_steps);
  message->set_evict_unexpired(zch.evict_unexpired);
  message->set_admission(NumberOf(zch.admission));
  message->set_admission_count(zch.admission_count);
  message->set_admission_probability(zch.admission_probability);
  message->set_reserved_lanes(zch.reserved_lanes);
  message->set_unseen(NumberOf(zch.unseen));
  message->set_eviction_buffer_bytes(zch.eviction_buffer_bytes);
}

ZchSpec Decode(const v1::ZchSpec& message, EnumReader& enums) {
  ZchSpec zch;
  zch.buckets = message.buckets();
  zch.policy = enums.Read<zch::Policy>("policy", message.policy());
  zch.distance_exponent = message.distance_exponent();
  zch.ttl_steps = message.ttl_steps();
  zch.evict_unexpired = message.evict_unexpired();
  zch.admission = enums.Read<zch::Admission>("admission", message.admission());
  zch.admission_count = message.admission_count();
  zch.admission_probability = message.admission_probability();
  zch.reserved_lanes = message.reserved_lanes();
  zch.unseen = enums.Read<zch::Unseen>("unseen", message.unseen());
  zch.eviction_buffer_bytes = message.eviction_buffer_bytes();
  return zch;
}

void Encode(const TableSpec& spec, v1::TableSpec* message) {
  message->set_id(ToInt(spec.id));
  message->set_name(spec.name);
  message->set_rows(spec.rows);
  message->set_dim(spec.dim);
  message->set_dtype(NumberOf(spec.dtype));
  message->set_row_granules(spec.row_granules);
  message->set_column_granule_width(spec.column_granule_width);
  Encode(spec.optimizer, message->mutable_optimizer());
  message->mutable_init()->set_kind(NumberOf(spec.init.kind));
  message->mutable_init()->set_a(spec.init.a);
  message->mutable_init()->set_b(spec.init.b);
  message->set_seed(spec.seed);
  message->set_rounding(NumberOf(spec.rounding));
  message->set_bounds(NumberOf(spec.bounds));
  message->set_nan_policy(NumberOf(spec.nan_policy));
  message->set_replica_groups(spec.replica_groups);
  message->set_sync_every_steps(spec.sync_every_steps);
  message->set_lookups_per_sample(spec.lookups_per_sample);
  message->set_durability(NumberOf(spec.durability));
  message->mutable_callers()->Add(spec.callers.begin(), spec.callers.end());
  if (spec.zch.has_value()) Encode(*spec.zch, message->mutable_zch());
  if (!spec.sync.has_value()) return;
  message->mutable_sync()->set_step_timeout_ms(spec.sync->step_timeout_ms);
  message->mutable_sync()->set_on_silence(NumberOf(spec.sync->on_silence));
  message->mutable_sync()->set_steps_ahead_max(spec.sync->steps_ahead_max);
}

TableSpec Decode(const v1::TableSpec& message, EnumReader& enums) {
  TableSpec spec;
  spec.id = TableId{message.id()};
  spec.name = message.name();
  spec.rows = message.rows();
  spec.dim = message.dim();
  spec.dtype = enums.Read<DType>("dtype", message.dtype());
  spec.row_granules = message.row_granules();
  spec.column_granule_width = message.column_granule_width();
  spec.optimizer = Decode(message.optimizer(), enums);
  spec.init = {enums.Read<InitKind>("init", message.init().kind()), message.init().a(),
               message.init().b()};
  spec.seed = message.seed();
  spec.rounding = enums.Read<Rounding>("rounding", message.rounding());
  spec.bounds = enums.Read<BoundsMode>("bounds", message.bounds());
  spec.nan_policy = enums.Read<NanPolicy>("nan_policy", message.nan_policy());
  spec.replica_groups = message.replica_groups();
  spec.sync_every_steps = message.sync_every_steps();
  spec.lookups_per_sample = message.lookups_per_sample();
  spec.durability = enums.Read<TableDurability>("durability", message.durability());
  spec.callers.assign(message.callers().begin(), message.callers().end());
  if (message.has_zch()) spec.zch = Decode(message.zch(), enums);
  if (message.has_sync()) {
    spec.sync = {.step_timeout_ms = message.sync().step_timeout_ms(),
                 .on_silence = enums.Read<OnSilence>("on_silence", message.sync().on_silence()),
                 .steps_ahead_max = message.sync().steps_ahead_max()};
  }
  return spec;
}

template <typename Field>
void Encode(const std::vector<Rank>& ranks, Field* field) {
  for (const Rank rank : ranks) field->Add(ToInt(rank));
}

template <typename Field>
std::vector<Rank> DecodeRanks(const Field& field) {
  std::vector<Rank> ranks;
  for (const std::uint32_t rank : field) ranks.push_back(Rank{rank});
  return ranks;
}

void Encode(const StepPlan& steps, v1::StepMembership* message) {
  message->set_version(ToInt(steps.version));
  message->set_changes(steps.changes);
  for (const StepMembers& members : steps.members) {
    v1::StepMembers* const entry = message->add_members();
    entry->set_first_step(members.first_step);
    Encode(members.ranks, entry->mutable_ranks());
    Encode(members.optional, entry->mutable_optional());
  }
  if (!steps.open.has_value()) return;
  v1::MembershipChange* const open = message->mutable_open();
  open->set_number(steps.open->number);
  open->set_kind(NumberOf(steps.open->kind));
  open->set_step(steps.open->step);
  Encode(steps.open->ranks, open->mutable_ranks());
}

StepPlan Decode(const v1::StepMembership& message, EnumReader& enums) {
  StepPlan steps;
  steps.version = PlanVersion{message.version()};
  steps.changes = message.changes();
  for (const v1::StepMembers& entry : message.members()) {
    steps.members.push_back({.first_step = entry.first_step(),
                             .ranks = DecodeRanks(entry.ranks()),
                             .optional = DecodeRanks(entry.optional())});
  }
  if (message.has_open()) {
    steps.open = {.number = message.open().number(),
                  .kind = enums.Read<MemberChange::Kind>("kind", message.open().kind()),
                  .step = message.open().step(),
                  .ranks = DecodeRanks(message.open().ranks())};
  }
  return steps;
}

void Encode(const NodeSpec& node, v1::PlanNode* message) {
  message->set_id(ToInt(node.id));
  message->set_name(node.name);
  message->set_address(node.address);
  for (const DeviceSpec& device : node.devices) {
    v1::PlanDevice* const entry = message->add_devices();
    entry->set_kind(NumberOf(device.kind));
    entry->set_memory_bytes(device.memory_bytes);
    entry->set_memory_bytes_per_second(device.memory_bytes_per_second);
    entry->set_peer_access(device.peer_access);
  }
}

absl::StatusOr<NodeSpec> Decode(const v1::PlanNode& message) {
  EnumReader enums;
  NodeSpec node{.id = NodeId{message.id()}, .name = message.name(), .address = message.address()};
  for (const v1::PlanDevice& entry : message.devices()) {
    node.devices.push_back({.kind = enums.Read<DeviceKind>("kind", entry.kind()),
                            .memory_bytes = entry.memory_bytes(),
                            .memory_bytes_per_second = entry.memory_bytes_per_second(),
                            .peer_access = entry.peer_access()});
  }
  EMBLA_RETURN_IF_ERROR(Annotate(enums.status(), "node " + node.name));
  return node;
}

}  // namespace

v1::PlanTable ToMessage(const TablePlan& table) {
  v1::PlanTable message;
  Encode(table.spec, message.mutable_spec());
  message.set_sharding(NumberOf(table.sharding));
  for (const std::vector<Slice>& slices : table.replicas) {
    Encode(table.spec, slices, message.add_tilings());
  }
  message.set_aside(table.aside);
  if (table.steps != StepPlan()) Encode(table.steps, message.mutable_steps());
  return message;
}

absl::StatusOr<TablePlan> FromMessage(const v1::PlanTable& message) {
  EnumReader enums;
  TablePlan table;
  table.spec = Decode(message.spec(), enums);
  table.sharding = enums.Read<ShardingType>("sharding", message.sharding());
  table.aside = message.aside();
  if (message.has_steps()) table.steps = Decode(message.steps(), enums);
  const std::string where = "table " + table.spec.name;
  EMBLA_RETURN_IF_ERROR(Annotate(enums.status(), where));
  for (const v1::Tiling& tiling : message.tilings()) {
    absl::StatusOr<std::vector<Slice>> slices = Decode(table.spec, tiling);
    if (!slices.ok()) return Annotate(slices.status(), where);
    table.replicas.push_back(*std::move(slices));
  }
  return table;
}

v1::PlanDelta ToMessage(const PlanDelta& delta) {
  v1::PlanDelta message;
  message.set_base(ToInt(delta.base));
  message.set_version(ToInt(delta.version));
  message.set_cluster_id(delta.cluster_id);
  for (const NodeSpec& node : delta.nodes) Encode(node, message.add_nodes());
  for (const TablePtr& table : delta.tables) *message.add_tables() = ToMessage(*table);
  for (const NodeId node : delta.dropped_nodes) message.add_dropped_nodes(ToInt(node));
  for (const TableId table : delta.dropped_tables) message.add_dropped_tables(ToInt(table));
  return message;
}

absl::StatusOr<PlanDelta> FromMessage(const v1::PlanDelta& message) {
  PlanDelta delta{.base = PlanVersion{message.base()},
                  .version = PlanVersion{message.version()},
                  .cluster_id = message.cluster_id()};
  for (const v1::PlanNode& node : message.nodes()) {
    EMBLA_ASSIGN_OR_RETURN(delta.nodes.emplace_back(), Decode(node));
  }
  for (const v1::PlanTable& table : message.tables()) {
    EMBLA_ASSIGN_OR_RETURN(TablePlan plan, FromMessage(table));
    delta.tables.push_back(std::make_shared<const TablePlan>(std::move(plan)));
  }
  for (const std::uint32_t node : message.dropped_nodes()) {
    delta.dropped_nodes.push_back(NodeId{node});
  }
  for (const std::uint32_t table : message.dropped_tables()) {
    delta.dropped_tables.push_back(TableId{table});
  }
  return delta;
}

std::string ToBytes(const PlanDelta& delta) { return ToMessage(delta).SerializeAsString(); }

absl::StatusOr<PlanDelta> PlanDeltaFromBytes(std::span<const char> bytes) {
  v1::PlanDelta message;
  if (bytes.size() > std::numeric_limits<std::int32_t>::max() ||
      !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError("it is no PlanDelta");
  }
  return FromMessage(message);
}

absl::StatusOr<PlanPtr> ApplyMessage(const v1::PlanDelta& message, const Plan& from) {
  const absl::StatusOr<PlanDelta> delta = FromMessage(message);
  const absl::StatusOr<PlanPtr> plan =
      delta.ok() ? Apply(*delta, from) : absl::StatusOr<PlanPtr>(delta.status());
  if (plan.ok()) return plan;
  return Annotate(plan.status(), absl::StrCat("plan ", message.version()));
}

}  // namespace embla::wire
