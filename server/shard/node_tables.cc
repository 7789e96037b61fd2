#include "server/shard/node_tables.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/replica_groups.h"
#include "core/plan/table_options.h"
#include "server/shard/node_image.h"
#include "server/shard/table_steps.h"

namespace embla {
namespace {

bool IsOn(const Slice& slice, NodeId node) { return slice.device.node == node; }

// Whether its copies are kept equal by a primary, be there one now or several.
bool HasCopies(const TablePlan& table) {
  return table.replicated() || TraitsOf(table.sharding).has_copies;
}

using GroupSlices = std::vector<std::vector<Slice>>;

// The slices of every replica group. `devices` are the node's.
absl::StatusOr<GroupSlices> SlicesOfGroups(const Plan& plan, const TablePlan& table, NodeId self,
                                           std::uint32_t devices) {
  EMBLA_RETURN_IF_ERROR(CheckGroupCount(table));
  EMBLA_RETURN_IF_ERROR(CheckGroupsMatch(table, plan.nodes()));
  const NodeSpec* const node = plan.FindNode(self);
  GroupSlices own(table.replicas.size());
  for (std::size_t group = 0; group < own.size(); ++group) {
    std::copy_if(table.replicas[group].begin(), table.replicas[group].end(),
                 std::back_inserter(own[group]),
                 [&](const Slice& slice) { return IsOn(slice, self); });
  }
  if (own.front().empty()) return GroupSlices();
  if (node != nullptr && node->devices.size() == devices) return own;
  return absl::FailedPreconditionError(
      absl::StrCat("table ", table.spec.name, " is planned for a node of ",
                   node == nullptr ? 0 : node->devices.size(), " devices, this one has ", devices));
}

// The slices of `table` on `self`: of its only tiling, or of the replica that is here.
absl::StatusOr<std::vector<Slice>> OwnSlices(const TablePlan& table, NodeId self) {
  std::vector<Slice> own;
  for (const std::vector<Slice>& tiling : table.replicas) {
    const auto here = std::count_if(tiling.begin(), tiling.end(),
                                    [&](const Slice& slice) { return IsOn(slice, self); });
    if (here == 0) continue;
    if (!own.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("table ", table.spec.name, " has two copies on one node"));
    }
    if (HasCopies(table) && here != static_cast<std::ptrdiff_t>(tiling.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("table ", table.spec.name, " has a copy that is spread over several nodes"));
    }
    std::copy_if(tiling.begin(), tiling.end(), std::back_inserter(own),
                 [&](const Slice& slice) { return IsOn(slice, self); });
  }
  return own;
}

absl::Status CheckDevices(const TablePlan& table, const std::vector<Slice>& slices,
                          std::uint32_t devices) {
  for (const Slice& slice : slices) {
    if (slice.device.index < devices) continue;
    return absl::InvalidArgumentError(absl::StrCat("table ", table.spec.name,
                                                   " has a slice on device ", slice.device.index,
                                                   ", this node has ", devices));
  }
  return absl::OkStatus();
}

absl::Status DescribeCopies(const Plan& plan, const TablePlan& table, NodeId self,
                            NodeTable& node_table) {
  const NodeId primary = table.primary().front().device.node;
  node_table.is_primary = primary == self;
  const NodeSpec* const primary_node = plan.FindNode(primary);
  if (primary_node != nullptr) node_table.primary = *primary_node;
  if (!node_table.is_primary) return absl::OkStatus();
  node_table.primary_since = plan.version();
  for (std::size_t r = 1; r < table.replicas.size(); ++r) {
    const NodeSpec* const node = plan.FindNode(table.replicas[r].front().device.node);
    if (node == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("table ", table.spec.name, " has a copy on an unknown node"));
    }
    node_table.replicas.push_back(*node);
  }
  return absl::OkStatus();
}

// The kernels' precondition: with L2 decay the statistic is made of gradients and weights.
absl::Status CheckSpecFits(const TableSpec& spec, const std::vector<Slice>& slices) {
  const OptimizerSpec& optimizer = spec.optimizer;
  if (!NeedsRowStatistic(optimizer) || optimizer.weight_decay_mode != WeightDecayMode::kL2 ||
      optimizer.weight_decay == 0.0f) {
    return absl::OkStatus();
  }
  for (const Slice& slice : slices) {
    if (slice.columns() == spec.dim) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("table ", spec.name, " has slices of ", slice.columns(), " of its ", spec.dim,
                     " columns, so its optimizer cannot use L2 decay; use decoupled decay"));
  }
  return absl::OkStatus();
}

// Slices may differ from what is here: units move by themselves, and the plan only says where they
// are (docs/migration.md).
absl::Status CheckKept(const NodeTable& old, const TablePlan& table, const GroupSlices& groups) {
  if (!SameShape(old.spec, table.spec)) {
    return absl::InvalidArgumentError(absl::StrCat("table ", table.spec.name,
                                                   " would change its shape, number format or "
                                                   "optimizer"));
  }
  if (old.copy == nullptr && !HasCopies(table)) return absl::OkStatus();
  const bool unmoved =
      std::equal(old.shards.begin(), old.shards.end(), groups.begin(), groups.end(),
                 [](const auto& shard, const auto& slices) { return shard->slices() == slices; });
  if (unmoved) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "slices of table ", table.spec.name, " would move: ", old.shard()->slices().size(),
      " slices are here, the plan says ", groups.empty() ? 0 : groups.front().size(),
      ". Slices of a data_parallel table cannot move while it is in use"));
}

bool HasReleased(const NodeTable& table) {
  return std::ranges::any_of(table.shards, [](const auto& shard) { return shard->has_released(); });
}

// Without the slices whose last unit has moved away.
std::vector<std::shared_ptr<TableShard>> CurrentShards(const NodeTable& old) {
  std::vector<std::shared_ptr<TableShard>> shards = old.shards;
  for (std::shared_ptr<TableShard>& shard : shards) {
    if (shard->has_released()) shard = shard->With(nullptr, old.spec, PlanVersion{});
  }
  return shards;
}

// The copy goes on as it was, and its devices learn its role by the plan in their turn.
absl::Status KeepCopy(const NodeTable& old, bool has_copies, NodeTable& next) {
  if ((old.copy != nullptr) != has_copies) {
    return absl::FailedPreconditionError(absl::StrCat(
        "table ", next.spec.name, " is in use and would begin, or cease, to be data_parallel"));
  }
  next.copy = old.copy;
  next.inbox = old.inbox;
  return absl::OkStatus();
}

void KeepHistory(const NodeTable* old, PlanVersion version, NodeTable& table) {
  if (table.copy == nullptr) return;
  if (old != nullptr) table.spec_history = old->spec_history;
  if (!table.spec_history.empty() && table.spec_history.back().second == table.spec) return;
  if (table.spec_history.size() == kSpecHistoryMax) {
    table.spec_history.erase(table.spec_history.begin());
  }
  table.spec_history.emplace_back(version, table.spec);
}

// Slices of the image's places. DataLoss: these are of another table.
absl::StatusOr<GroupSlices> SlicesOf(const std::vector<std::vector<PlacedRows>>& places,
                                     const TableSpec& spec) {
  GroupSlices groups;
  for (const std::vector<PlacedRows>& of_group : places) {
    std::vector<Slice>& slices = groups.emplace_back();
    for (const PlacedRows& place : of_group) {
      const Slice& slice = slices.emplace_back(place.slice);
      if (slice.row_end <= spec.rows && slice.column_end <= spec.dim) continue;
      return absl::DataLossError(
          absl::StrCat("the image of table ", spec.name, " has rows that are none of it"));
    }
  }
  if (groups.size() == spec.replica_groups) return groups;
  return absl::DataLossError(absl::StrCat("the image of table ", spec.name, " has places of ",
                                          groups.size(), " replica groups"));
}

// The groups of `table` that are here; none when nothing of it is.
absl::StatusOr<GroupSlices> SlicesHere(const Plan& plan, const TablePlan& table, NodeId self,
                                       std::uint32_t devices, const NodeImage* image) {
  if (image != nullptr) {
    const auto it = std::ranges::find(image->tables, table.spec.id, &TableImage::table);
    if (it != image->tables.end() && it->places.has_value()) {
      return SlicesOf(*it->places, table.spec);
    }
  }
  if (table.grouped()) return SlicesOfGroups(plan, table, self, devices);
  EMBLA_ASSIGN_OR_RETURN(std::vector<Slice> slices, OwnSlices(table, self));
  if (slices.empty()) return GroupSlices();
  return GroupSlices{std::move(slices)};
}

absl::Status MakeShards(const TableSpec& spec, PlanVersion version, const GroupSlices& groups,
                        const TableMaker& maker, NodeTable& table) {
  const std::uint32_t per_group = maker.devices / spec.replica_groups;
  for (const std::vector<Slice>& slices : groups) {
    if (slices.empty()) {  // All units have left, or are on the way, whatever the plan says.
      const auto group = static_cast<std::uint32_t>(table.shards.size());
      table.shards.push_back(TableShard::CreateAround(
          spec, version, DeviceOfGroup(0, group, per_group), nullptr, maker.metrics));
      continue;
    }
    auto shard = TableShard::Create(spec, version, slices, maker.make_memory, maker.metrics);
    if (!shard.ok()) return Annotate(shard.status(), "table " + spec.name);
    table.shards.push_back(*std::move(shard));
  }
  if (spec.replica_groups == 1) return absl::OkStatus();
  table.group_copies = maker.MakeGroupCopies(spec);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TableShard*> NodeTable::ShardOf(std::uint32_t group) const {
  EMBLA_RETURN_IF_ERROR(CheckGroup(spec, group));
  return shards[group].get();
}

DeviceSet NodeTable::devices() const {
  DeviceSet all;
  for (const std::shared_ptr<TableShard>& copy : shards) all |= copy->devices();
  return all;
}

absl::StatusOr<const NodeTable*> NodeTables::Find(TableId id, PlanVersion senders_plan) const {
  const auto it = tables.find(ToInt(id));
  if (it != tables.end()) return it->second.get();
  if (ToInt(senders_plan) > ToInt(plan->version())) {
    return absl::UnavailableError(absl::StrCat("table ", ToInt(id), " is not here yet: plan ",
                                               ToInt(senders_plan), " is not installed"));
  }
  const TablePlan* const elsewhere = plan->FindTable(id);
  if (elsewhere == nullptr) {
    return absl::NotFoundError(absl::StrCat("there is no table with id ", ToInt(id)));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("no slice of table ", elsewhere->spec.name, " is on this node"));
}

absl::StatusOr<const NodeTable*> NodeTables::FindServed(TableId id,
                                                        PlanVersion senders_plan) const {
  EMBLA_ASSIGN_OR_RETURN(const NodeTable* table, Find(id, senders_plan));
  if (!table->is_aside) return table;
  return absl::FailedPreconditionError(absl::StrCat(
      "table ", table->spec.name, " (id ", ToInt(id),
      ") is kept aside: the coordinator's state was restored from a copy that did not know it; "
      "embla table adopt ",
      table->spec.name, " --id ", ToInt(id), " serves it again"));
}

absl::StatusOr<NodeTablesPtr> NextTables(const NodeTables& old, const PlanPtr& plan, NodeId self,
                                         const TableMaker& maker, const NodeImage* image) {
  auto next = std::make_shared<NodeTables>();
  next->plan = plan;
  next->self = self;
  const bool has_same_nodes = self == old.self && plan->nodes() == old.plan->nodes();
  next->tables.reserve(old.tables.size());
  const std::vector<TablePtr>& before = old.plan->tables().pointers();
  auto known = before.begin();
  for (const TablePtr& pointer : plan->tables().pointers()) {
    const TablePlan& table = *pointer;
    while (known != before.end() && *known != pointer && (*known)->spec.id < table.spec.id) ++known;
    const bool is_same = has_same_nodes && known != before.end() && *known == pointer;
    if (table.spec.sync.has_value()) {
      const auto it = old.steps.find(ToInt(table.spec.id));
      next->steps.emplace(ToInt(table.spec.id), it != old.steps.end()
                                                    ? it->second
                                                    : std::make_shared<TableSteps>(
                                                          table.spec, *maker.clock, maker.metrics));
    }
    const auto it = old.tables.find(ToInt(table.spec.id));
    const NodeTable* const existing = it == old.tables.end() ? nullptr : it->second.get();
    if (is_same) {
      if (existing == nullptr) continue;
      if (!HasReleased(*existing)) {
        next->tables.insert(*it);
        continue;
      }
    }
    EMBLA_ASSIGN_OR_RETURN(const GroupSlices groups,
                           SlicesHere(*plan, table, self, maker.devices, image));
    const bool has_copies = HasCopies(table);
    // A copy that the plan does not have any more goes with its last request.
    if (groups.empty() && (existing == nullptr || has_copies)) continue;
    NodeTable node_table;
    node_table.spec = table.spec;
    node_table.is_aside = table.aside;
    for (const std::vector<Slice>& slices : groups) {
      EMBLA_RETURN_IF_ERROR(CheckDevices(table, slices, maker.devices));
      EMBLA_RETURN_IF_ERROR(CheckSpecFits(table.spec, slices));
    }
    if (has_copies) EMBLA_RETURN_IF_ERROR(DescribeCopies(*plan, table, self, node_table));
    if (existing != nullptr) {
      EMBLA_RETURN_IF_ERROR(CheckKept(*existing, table, groups));
      EMBLA_RETURN_IF_ERROR(KeepCopy(*existing, has_copies, node_table));
      // In a plan that this node has not had, another one may have been the primary.
      const bool is_next = ToInt(plan->version()) == ToInt(old.plan->version()) + 1;
      if (existing->is_primary && node_table.is_primary && is_next) {
        node_table.primary_since = existing->primary_since;
      }
      node_table.shards = CurrentShards(*existing);
      node_table.group_copies = existing->group_copies;
    } else {
      EMBLA_RETURN_IF_ERROR(MakeShards(table.spec, plan->version(), groups, maker, node_table));
      if (has_copies) {
        node_table.copy = std::make_shared<CopyState>(node_table.is_primary);
        node_table.inbox = std::make_shared<CopyInbox>();
      }
    }
    KeepHistory(existing, plan->version(), node_table);
    next->tables.emplace(ToInt(table.spec.id),
                         std::make_shared<const NodeTable>(std::move(node_table)));
  }
  return next;
}

}  // namespace embla
