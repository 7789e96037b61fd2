#include "tools/embla/unit_check.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace embla::cli {
namespace {

using client::UnitOnNode;

// A unit of one copy, or replica group.
struct UnitKey {
  std::uint32_t row_granule = 0;
  std::uint32_t column_begin = 0;
  std::uint32_t group = 0;
  auto operator<=>(const UnitKey&) const = default;
};

struct Holder {
  NodeId node{};
  const UnitOnNode* unit = nullptr;
};

class Checker {
 public:
  Checker(const Plan& plan, const TablePlan& table, const TableEvidence& evidence)
      : plan_(plan), table_(table), evidence_(evidence) {}

  TableVerdict Check() {
    CollectHolders();
    for (std::size_t copy = 0; copy < table_.replicas.size(); ++copy) {
      for (const Slice& slice : table_.replicas[copy]) CheckSlice(copy, slice);
    }
    CheckStrangers();
    CheckRecords();
    if (!evidence_.job_runs) CheckLeftovers();
    return std::move(verdict_);
  }

 private:
  std::string NameOf(NodeId id) const {
    const NodeSpec* const node = plan_.FindNode(id);
    return node == nullptr ? absl::StrCat("node id ", ToInt(id))
                           : absl::StrCat("node ", node->name);
  }

  std::string UnitText(std::uint32_t granule, std::uint32_t column_begin,
                       std::uint32_t column_end) const {
    const TableSpec& spec = table_.spec;
    return absl::StrCat("unit ", granule, " of table ", spec.name, " (rows ",
                        spec.RowGranuleBegin(granule), "-", spec.RowGranuleBegin(granule + 1) - 1,
                        ", columns ", column_begin, "-", column_end - 1, ")");
  }

  void Add(UnitFinding::Kind kind, std::uint32_t granule, std::uint32_t column_begin,
           std::string what, std::string remedy) {
    if (kind == UnitFinding::Kind::kOwners) ++verdict_.several_owners;
    verdict_.findings.push_back({kind, granule, column_begin, std::move(what), std::move(remedy)});
  }

  void CollectHolders() {
    for (const auto& [node, units] : evidence_.units) {
      for (const UnitOnNode& unit : units) {
        if (unit.state != UnitOnNode::State::kServed) continue;
        holders_[{unit.row_granule, unit.column_begin, unit.replica_group}].push_back(
            {node, &unit});
        verdict_.rows += unit.rows;
      }
    }
  }

  void CheckSlice(std::size_t copy, const Slice& slice) {
    const TableSpec& spec = table_.spec;
    for (std::uint32_t granule = 0; granule < spec.row_granules; ++granule) {
      const std::int64_t row = spec.RowGranuleBegin(granule);
      if (row < slice.row_begin || row >= slice.row_end) continue;
      ++verdict_.units;
      if (table_.replicated()) {
        CheckCopy(granule, slice, copy);
      } else {
        CheckOwner(granule, slice, table_.grouped() ? static_cast<std::uint32_t>(copy) : 0);
      }
    }
  }

  // Checks a unit that one device has.
  void CheckOwner(std::uint32_t granule, const Slice& slice, std::uint32_t group) {
    const std::vector<Holder>& holders = holders_[{granule, slice.column_begin, group}];
    const std::string unit = UnitText(granule, slice.column_begin, slice.column_end);
    const std::string owner = NameOf(slice.device.node);
    if (holders.empty()) {
      return Add(UnitFinding::Kind::kOwners, granule, slice.column_begin,
                 absl::StrCat(unit, " is served by nobody; the plan says ", owner),
                 absl::StrCat("look at the log of ", owner, " and restart it"));
    }
    if (holders.size() > 1) {
      std::string names;
      for (const Holder& holder : holders) {
        absl::StrAppend(&names, names.empty() ? "" : " and by ", NameOf(holder.node));
      }
      return Add(
          UnitFinding::Kind::kOwners, granule, slice.column_begin,
          absl::StrCat(unit, " is served by ", names, "; the plan says ", owner),
          absl::StrCat("stop training, restart all of them but ", owner, ", and keep their logs"));
    }
    const Holder& holder = holders.front();
    if (holder.node != slice.device.node || holder.unit->device != slice.device.index) {
      return Add(
          UnitFinding::Kind::kOwners, granule, slice.column_begin,
          absl::StrCat(unit, " is served by ", NameOf(holder.node), " device ", holder.unit->device,
                       "; the plan says ", owner, " device ", slice.device.index),
          absl::StrCat("restart ", NameOf(holder.node)));
    }
    if (group == 0) verdict_.digest += holder.unit->crc32c;
    CheckRows(granule, slice, *holder.unit);
    if (evidence_.groups_synced && group > 0) CheckGroup(granule, slice, group, holder);
  }

  // Checks a table with replica groups that were averaged: the group's copy must equal group 0's.
  void CheckGroup(std::uint32_t granule, const Slice& slice, std::uint32_t group,
                  const Holder& holder) {
    const std::vector<Holder>& first = holders_[{granule, slice.column_begin, 0}];
    if (first.size() != 1 || first.front().unit->crc32c == holder.unit->crc32c) return;
    const auto copy = [this](std::uint32_t of_group, const Holder& of) {
      return absl::StrCat("in replica group ", of_group, " on ", NameOf(of.node), " device ",
                          of.unit->device);
    };
    Add(UnitFinding::Kind::kContent, granule, slice.column_begin,
        absl::StrCat(UnitText(granule, slice.column_begin, slice.column_end), " is not the same ",
                     copy(0, first.front()), " and ", copy(group, holder)),
        "average the groups once more (Client::Sync) and run verify again while nobody trains");
  }

  void CheckRows(std::uint32_t granule, const Slice& slice, const UnitOnNode& held) {
    const TableSpec& spec = table_.spec;
    const std::int64_t rows = spec.RowGranuleBegin(granule + 1) - spec.RowGranuleBegin(granule);
    if (spec.zch.has_value() ? held.rows <= rows : held.rows == rows) return;
    Add(UnitFinding::Kind::kContent, granule, slice.column_begin,
        absl::StrCat(UnitText(granule, slice.column_begin, slice.column_end), " has ", held.rows,
                     " rows of ", rows, " on ", NameOf(slice.device.node)),
        absl::StrCat("run verify again; if it stays so, restart ", NameOf(slice.device.node)));
  }

  // Checks a data_parallel table: the copy must exist and equal the primary's.
  void CheckCopy(std::uint32_t granule, const Slice& slice, std::size_t copy) {
    const UnitOnNode* const held = HeldBy(slice.device, granule, slice.column_begin);
    const std::string unit = UnitText(granule, slice.column_begin, slice.column_end);
    if (held == nullptr) {
      return Add(UnitFinding::Kind::kOwners, granule, slice.column_begin,
                 absl::StrCat(unit, " has no copy on ", NameOf(slice.device.node)),
                 absl::StrCat("restart ", NameOf(slice.device.node)));
    }
    if (copy == 0) verdict_.digest += held->crc32c;
    CheckRows(granule, slice, *held);
    const UnitOnNode* const first =
        HeldBy(table_.primary().front().device, granule, slice.column_begin);
    if (copy == 0 || first == nullptr || first->crc32c == held->crc32c) return;
    Add(UnitFinding::Kind::kContent, granule, slice.column_begin,
        absl::StrCat(unit, " is not the same on ", NameOf(slice.device.node), " and on ",
                     NameOf(table_.primary().front().device.node), ", which has the primary copy"),
        absl::StrCat("run verify again while nobody trains; if it stays so, restart ",
                     NameOf(slice.device.node), ": it gets a new copy"));
  }

  const UnitOnNode* HeldBy(DeviceId device, std::uint32_t granule, std::uint32_t column) {
    for (const Holder& holder : holders_[{granule, column, 0}]) {
      if (holder.node == device.node && holder.unit->device == device.index) return holder.unit;
    }
    return nullptr;
  }

  // Units that are in no tiling: of columns that are not cut like that, or copies nobody knows.
  void CheckStrangers() {
    std::map<UnitKey, std::size_t> expected;
    for (std::size_t copy = 0; copy < table_.replicas.size(); ++copy) {
      for (const Slice& slice : table_.replicas[copy]) {
        expected[{0, slice.column_begin,
                  table_.grouped() ? static_cast<std::uint32_t>(copy) : 0}]++;
      }
    }
    for (const auto& [key, holders] : holders_) {
      if (holders.empty() || expected.contains({0, key.column_begin, key.group})) continue;
      const UnitOnNode& unit = *holders.front().unit;
      Add(UnitFinding::Kind::kOwners, key.row_granule, key.column_begin,
          absl::StrCat(UnitText(key.row_granule, unit.column_begin, unit.column_end), " is on ",
                       NameOf(holders.front().node), " and in no plan"),
          absl::StrCat("restart ", NameOf(holders.front().node)));
    }
  }

  void CheckRecords() {
    for (const client::UnitOwner& owner : evidence_.owners) {
      const std::uint32_t column = table_.spec.ColumnGranuleBegin(owner.column_granule);
      const std::int64_t row = table_.spec.RowGranuleBegin(owner.row_granule);
      for (const Slice& slice : table_.primary()) {
        if (slice.column_begin != column || row < slice.row_begin || row >= slice.row_end) continue;
        const std::string unit = UnitText(owner.row_granule, column, slice.column_end);
        if (ToInt(slice.device.node) != owner.node) {
          Add(UnitFinding::Kind::kRecord, owner.row_granule, column,
              absl::StrCat(unit, " belongs to ", NameOf(NodeId{owner.node}),
                           " by its record, and to ", NameOf(slice.device.node), " by the plan"),
              "stop the coordinator and keep a copy of its state directory");
        } else if (!evidence_.job_runs && owner.phase == "open") {
          Add(UnitFinding::Kind::kRecord, owner.row_granule, column,
              absl::StrCat(unit, " has a move that is ", owner.phase, ", and no job runs"),
              "move it anywhere with embla move: that ends the move, too");
        }
      }
    }
  }

  void CheckLeftovers() {
    for (const auto& [node, units] : evidence_.units) {
      for (const UnitOnNode& unit : units) {
        if (unit.state == UnitOnNode::State::kServed) continue;
        const bool is_staged = unit.state == UnitOnNode::State::kStaged;
        Add(UnitFinding::Kind::kLeftover, unit.row_granule, unit.column_begin,
            absl::StrCat(UnitText(unit.row_granule, unit.column_begin, unit.column_end),
                         is_staged ? " has memory reserved on " : " has rows that are kept on ",
                         NameOf(node), ", and no job runs"),
            is_staged
                ? absl::StrCat("run verify again in some seconds; if it stays so, restart ",
                               NameOf(node))
                : absl::StrCat("run verify again in some seconds; if it stays so, the node "
                               "was restored from a copy older than a move of the unit: "
                               "embla table drop-leftovers --table ",
                               table_.spec.name, " --", NameOf(node), " gives these rows up"));
      }
    }
  }

  const Plan& plan_;
  const TablePlan& table_;
  const TableEvidence& evidence_;
  std::map<UnitKey, std::vector<Holder>> holders_;
  TableVerdict verdict_;
};

}  // namespace

TableVerdict CheckUnits(const Plan& plan, const TablePlan& table, const TableEvidence& evidence) {
  return Checker(plan, table, evidence).Check();
}

}  // namespace embla::cli
