#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/coordinator/coordinator.h"

namespace embla {
namespace {

constexpr std::size_t kTablesNamedMax = 8;
constexpr absl::Duration kTellInterval = absl::Seconds(5);

// `table t1 (1000 rows), table t2 (5 rows)`.
std::string Names(const std::vector<LostRows>& lost) {
  std::vector<std::string> names;
  for (const LostRows& rows : lost) {
    if (names.size() == kTablesNamedMax) {
      names.push_back(absl::StrCat("and ", lost.size() - names.size(), " more tables"));
      break;
    }
    names.push_back(absl::StrCat("table ", rows.table, " (", rows.rows, " rows)"));
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace

absl::Status Coordinator::HearTestimony(const NodeRegistration& registration) {
  witnesses_.insert(registration.name);
  if (registration.testimony.empty()) return absl::OkStatus();
  const absl::StatusOr<Testimony> testimony = ParseTestimony(registration.testimony);
  if (!testimony.ok()) {
    LogWarning("coordinator", "testimony ignored node=", registration.name,
               " reason=", Message(testimony.status()));
    return absl::OkStatus();
  }
  // Said by a coordinator that this store has forgotten.
  const bool is_newer =
      testimony->boot != options_.boot && std::pair(testimony->generation, testimony->revision) >
                                              std::pair(opened_generation_, opened_revision_);
  for (const auto& [node, told] : testimony->records) {
    const NodeSpec* const spec = plan_->FindNode(node);
    if (IsForgotten(node)) continue;
    // A late node was let in before a testimony of it arrived.
    const bool is_late = heard_.contains(node);
    if (is_late && is_newer && spec != nullptr && directories_.IsOlder(node, told)) {
      LogError("coordinator",
               "a node goes on from an older copy of its directory: updates are "
               "lost node=",
               spec->name, " witness=", registration.name,
               " log_position_seen=", told.log_position);
    }
    const bool takes_all = is_newer && !is_late;
    EMBLA_RETURN_IF_ERROR(directories_.Heed(store_, node, told, takes_all));
    if (takes_all) testified_.insert(node);
  }
  return absl::OkStatus();
}

absl::Status Coordinator::AwaitTestimonies(const NodeRegistration& registration,
                                           absl::Time now) const {
  const NodeSpec* const known = plan_->FindNode(registration.name);
  if (known == nullptr || now >= wait_for_nodes_until_ || registration.accept_loss) {
    return absl::OkStatus();
  }
  // A process that was let in before goes on; rows in memory end with their process.
  if (directories_.IsKnownProcess(known->id, registration.boot_id, registration.past) ||
      registration.past.directory_id.empty()) {
    return absl::OkStatus();
  }
  std::vector<std::string> names;
  for (const NodeSpec& node : plan_->nodes()) {
    if (!witnesses_.contains(node.name) && !IsForgotten(node.id)) names.push_back(node.name);
  }
  if (names.empty()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the coordinator has just started, and its state may be older than the "
                   "directory of node ",
                   registration.name,
                   ": it waits for what these nodes know of that: ", absl::StrJoin(names, ", ")));
}

void Coordinator::SendTestimonies(absl::Time now) {
  if (now - told_at_ < kTellInterval) return;
  told_at_ = now;
  for (const NodeView& node : membership_.Views()) {
    if (!node.live()) continue;
    const Testimony testimony{.boot = options_.boot,
                              .generation = records_.head().generation,
                              .revision = store_.revision(),
                              .records = directories_.RecordsFor(node.spec.id)};
    if (testimony.records.empty()) continue;
    std::string text = FormatTestimony(testimony);
    std::string& last = told_[node.spec.id];
    if (text == last) continue;
    last = text;
    effects_.emplace_back(SendTestimony{node.spec.id, std::move(text)});
  }
}

absl::Status Coordinator::CheckDirectory(const NodeRegistration& registration) const {
  const NodeSpec* const known = plan_->FindNode(registration.name);
  const NodeId owner = registration.past.node;
  // An id that was not given out yet is from a store that was newer than this one.
  const bool was_given = ToInt(owner) < records_.head().next_node_id;
  if (owner != NodeId{} && was_given && (known == nullptr || known->id != owner)) {
    const NodeSpec* const other = plan_->FindNode(owner);
    return absl::FailedPreconditionError(absl::StrCat(
        "the --data-dir of node ", registration.name, " belongs to ",
        other != nullptr ? absl::StrCat("node ", other->name)
                         : absl::StrCat("node id ", ToInt(owner), ", which is forgotten"),
        ": give the node its own directory, or an empty one"));
  }
  if (known == nullptr) return absl::OkStatus();
  const std::string missing =
      directories_.WhatIsMissing(known->id, registration.boot_id, registration.past);
  if (missing.empty() || registration.accept_loss) return absl::OkStatus();
  const std::vector<LostRows> lost = RowsOnlyOn(*plan_, known->id);
  // No list of tables names rows that it got later than this store knows.
  const bool is_forgotten = testified_.contains(known->id);
  const std::string coming = TablesOnTheirWayTo(known->id);
  if (lost.empty() && !is_forgotten && coming.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "node ", registration.name, " may not have all of its rows: ", missing,
      lost.empty() ? "" : absl::StrCat(". They are nowhere else: ", Names(lost)),
      coming.empty() ? ""
                     : absl::StrCat(". It was taking units over, and may have had some that are "
                                    "nowhere else: of table ",
                                    coming),
      lost.empty() && coming.empty() ? ". Which ones they are this coordinator has forgotten, too"
                                     : "",
      ". Start it with the directory that it had; or with --accept-loss, at the price that rows "
      "which are not there begin at their initial values"));
}

std::string Coordinator::TablesOnTheirWayTo(NodeId node) const {
  std::vector<std::string> names;
  for (const TablePlan& table : plan_->tables()) {
    const auto units = embla::ListUnits(store_, table.spec.id);
    const bool may_come = !units.ok() || std::ranges::any_of(*units, [&](const auto& entry) {
      return entry.second.phase == MovePhase::kOpen && entry.second.target == node;
    });
    if (may_come) names.push_back(table.spec.name);
  }
  return absl::StrJoin(names, ", ");
}

// A heartbeat comes after whoever hears of it listens. While moves of its predecessor end, the node
// may have taken units from an older plan, so it says once more what it has.
absl::Status Coordinator::LetServeIfItMay(NodeId node) {
  if (!held_.contains(node)) return absl::OkStatus();
  if (!HaveLostMovesEnded(node)) {
    unsure_.insert(node);
    return absl::OkStatus();
  }
  if (unsure_.erase(node) > 0) {
    return absl::UnavailableError("moves of the node's predecessor have ended: register again");
  }
  if (!settler_.IsSettled(node)) return absl::OkStatus();
  held_.erase(node);
  effects_.emplace_back(LetServe{node});
  return absl::OkStatus();
}

bool Coordinator::HaveLostMovesEnded(NodeId node) const {
  if (!directories_.HasLost(node)) return true;
  for (const TablePlan& table : plan_->tables()) {
    const auto units = embla::ListUnits(store_, table.spec.id);
    if (!units.ok()) return false;
    for (const auto& [unit, record] : *units) {
      if (record.phase != MovePhase::kOpen || record.source != node) continue;
      const absl::StatusOr<StoredUnit> stored = ReadUnit(store_, *plan_, unit);
      const bool may = stored.ok() && embla::MayServe(record, node, StandingOf(node, unit),
                                                      IsLost(node, stored->revision));
      if (!may) return false;
    }
  }
  return true;
}

absl::Status Coordinator::TakeDirectory(const NodeSpec& node, const NodeRegistration& registration,
                                        bool was_known) {
  const std::string missing =
      was_known ? directories_.WhatIsMissing(node.id, registration.boot_id, registration.past) : "";
  EMBLA_RETURN_IF_ERROR(directories_.Register(store_, node.id, registration.boot_id,
                                              registration.past,
                                              /*has_lost=*/!missing.empty()));
  testified_.erase(node.id);
  if (missing.empty()) return absl::OkStatus();
  for (const LostRows& lost : RowsOnlyOn(*plan_, node.id)) {
    rows_lost_ += static_cast<std::uint64_t>(lost.rows);
    LogWarning("coordinator", "rows are lost, as --accept-loss allows node=", node.name,
               " table=", lost.table, " rows=", lost.rows, " reason=", missing);
  }
  return absl::OkStatus();
}

}  // namespace embla
