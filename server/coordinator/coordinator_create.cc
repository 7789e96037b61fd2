// Creation of tables: a change that nodes must confirm.
//
// All tables of one request are placed together, written in one commit as one version of the plan,
// and published with it. The commit also writes down which tables are pending. They are created
// when every node with a slice has installed the version; when one cannot, is dead, or lets the
// deadline pass, the next version drops all of them. A coordinator that opens the store in between
// finds the pending tables and goes on waiting for the nodes. Tests: coordinator_create_test.cc,
// coordinator_tables_test.cc, coordinator_model_test.cc.
#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/json_fields.h"
#include "core/plan/names.h"
#include "core/plan/plan_json.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/move_jobs.h"

namespace embla {
namespace {

constexpr std::size_t kNamesShown = 3;

// "table a", "tables a, b", "tables a, b, c and 388 more".
std::string NamesText(std::span<const std::string_view> names) {
  const auto shown = names.first(std::min(names.size(), kNamesShown));
  std::string text =
      absl::StrCat(names.size() == 1 ? "table " : "tables ",
                   absl::StrJoin(shown, ", ", [](std::string* out, const auto& name) {
                     absl::StrAppend(out, ToAbsl(name));
                   }));
  if (shown.size() < names.size()) {
    absl::StrAppend(&text, " and ", names.size() - shown.size(), " more");
  }
  return text;
}

std::vector<std::string_view> NamesOf(std::span<const planner::TableToPlace> tables) {
  std::vector<std::string_view> names;
  names.reserve(tables.size());
  for (const planner::TableToPlace& table : tables) names.push_back(table.spec.name);
  return names;
}

// "optimizer.learning_rate is 0.1, asked for is 0.2" for every field that differs.
std::vector<std::string> Differences(const TablePlan& existing,
                                     const planner::TableToPlace& wanted) {
  TableSpec spec = wanted.spec;
  spec.id = existing.spec.id;
  Json has = Json::parse(TableSpecToJson(existing.spec)).flatten();
  Json asked = Json::parse(TableSpecToJson(spec)).flatten();
  has["/sharding"] = std::string(NameOf(existing.sharding));
  asked["/sharding"] = wanted.request.automatic
                           ? has["/sharding"]
                           : Json(std::string(NameOf(wanted.request.sharding)));
  std::set<std::string> fields;
  for (const Json& document : {has, asked}) {
    for (const auto& [field, value] : document.items()) fields.insert(field);
  }
  const auto text_of = [](const Json& document, const std::string& field) {
    return document.contains(field) ? document[field].dump() : std::string("not there");
  };
  std::vector<std::string> differences;
  for (const std::string& field : fields) {
    if (has.contains(field) && asked.contains(field) && has[field] == asked[field]) continue;
    std::string name = field.substr(1);
    std::ranges::replace(name, '/', '.');
    differences.push_back(
        absl::StrCat(name, " is ", text_of(has, field), ", asked for is ", text_of(asked, field)));
  }
  return differences;
}

}  // namespace

absl::Status Coordinator::CheckNewTables(const CreateRequest& request) const {
  if (request.tables.empty()) return absl::InvalidArgumentError("no table is named");
  if (request.wait < absl::ZeroDuration()) {
    return absl::InvalidArgumentError("the wait is negative");
  }
  absl::flat_hash_set<std::string_view> queued;
  for (const QueuedCreate& create : queue_) {
    for (const std::string_view name : NamesOf(create.request.tables)) queued.insert(name);
  }
  absl::flat_hash_set<std::string_view> asked;
  for (const planner::TableToPlace& table : request.tables) {
    const TableSpec& spec = table.spec;
    if (spec.id != TableId{}) {
      return absl::InvalidArgumentError(absl::StrCat("table ", spec.name, " states the id ",
                                                     ToInt(spec.id), "; the coordinator gives it"));
    }
    EMBLA_RETURN_IF_ERROR(Annotate(spec.Validate(), "table " + spec.name));
    if (queued.contains(spec.name)) {
      return absl::AlreadyExistsError(
          absl::StrCat("there is already a table ", spec.name, " that waits to be created"));
    }
    if (!asked.insert(spec.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("table ", spec.name, " is asked for twice"));
    }
  }
  return FindExisting(request).status();
}

absl::StatusOr<std::vector<TablePtr>> Coordinator::FindExisting(
    const CreateRequest& request) const {
  std::vector<TablePtr> existing;
  std::vector<std::string> problems;
  for (const planner::TableToPlace& wanted : request.tables) {
    TablePtr& found = existing.emplace_back();
    const TablePlan* const table = plan_->FindTable(wanted.spec.name);
    if (table == nullptr) continue;
    if (!request.if_not_exists) {
      return absl::AlreadyExistsError(absl::StrCat("there is already a table ", wanted.spec.name));
    }
    found = plan_->tables().pointers()[plan_->tables().IndexOf(table->spec.id)];
    const std::vector<std::string> differences = Differences(*table, wanted);
    if (differences.empty()) continue;
    problems.push_back(
        absl::StrCat("table ", wanted.spec.name, ": ", absl::StrJoin(differences, "; ")));
  }
  if (problems.empty()) return existing;
  return absl::FailedPreconditionError(absl::StrCat(
      "nothing is created, as tables exist and differ: ", absl::StrJoin(problems, ". "),
      ". Ask for what there is, or drop or rename these tables"));
}

absl::Status Coordinator::CheckRoomInQueue(const QueuedCreate& create) const {
  if (queue_.empty()) return absl::OkStatus();
  std::size_t tables = 0;
  for (const QueuedCreate& queued : queue_) tables += queued.request.tables.size();
  if (tables + create.request.tables.size() <= options_.tables_queued_max) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(tables, " tables are waiting to be created; try again later"));
}

absl::StatusOr<ChangeId> Coordinator::StartCreateTables(CreateRequest request, absl::Time now) {
  for (planner::TableToPlace& table : request.tables) table.spec.SetDefaults();
  EMBLA_RETURN_IF_ERROR(CheckNewTables(request));
  absl::Duration wait = request.wait;
  if (wait == absl::ZeroDuration()) wait = options_.create_wait_default;
  QueuedCreate create{.id = ChangeId{last_change_ + 1},
                      .request = std::move(request),
                      .deadline = absl::FromUnixMillis(
                          absl::ToUnixMillis(now + std::min(wait, options_.create_wait_max)))};
  if (!records_.pending() && MayGiveNumbers(now).ok()) {
    EMBLA_RETURN_IF_ERROR(BeginCreate(create, now));
  } else {
    EMBLA_RETURN_IF_ERROR(CheckRoomInQueue(create));
    queue_.push_back(std::move(create));
  }
  return ChangeId{++last_change_};
}

absl::Status Coordinator::CheckNamedNodes(const PlacementRequest& request) const {
  for (const std::string& name : request.nodes) {
    const NodeSpec* const node = plan_->FindNode(name);
    if (node == nullptr) continue;  // The planner says so.
    if (!IsLive(node->id)) {
      return absl::UnavailableError(
          absl::StrCat("node ", name, " at ", node->address, " is down; start it and try again"));
    }
    if (drained_.contains(node->id)) {
      return absl::FailedPreconditionError(
          absl::StrCat("node ", name, " is drained; undrain it first"));
    }
    if (const std::string stopped = membership_.Find(node->id)->stopped(); !stopped.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("node ", name, " serves no new slices: ", stopped, "; restart it first"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<NodeSpec>> Coordinator::NodesForPlacement() const {
  std::vector<NodeSpec> live;
  std::string without;
  for (const NodeSpec& node : plan_->nodes()) {
    if (!IsLive(node.id) || drained_.contains(node.id)) continue;
    const std::string stopped = membership_.Find(node.id)->stopped();
    if (stopped.empty()) {
      live.push_back(node);
    } else {
      absl::StrAppend(&without, "; restart node ", node.name, ": ", stopped);
    }
  }
  if (live.empty()) {
    return absl::UnavailableError(absl::StrCat("no node is live",
                                               drained_.empty() ? "" : " and not drained",
                                               without.empty() ? "" : " with all its devices",
                                               ", of ", plan_->nodes().size(), " known", without));
  }
  for (const auto& [device, bytes] : jobs_->Incoming()) {
    for (NodeSpec& node : live) {
      if (node.id == device.node) node.devices[device.index].memory_bytes -= bytes;
    }
  }
  return live;
}

std::vector<std::string> Coordinator::LeftOut(std::span<const planner::TableToPlace> tables) const {
  std::vector<std::string> left_out;
  for (const NodeSpec& node : plan_->nodes()) {
    if (drained_.contains(node.id)) continue;
    const std::string why = IsLive(node.id) ? membership_.Find(node.id)->stopped() : "down";
    if (why.empty()) continue;
    const bool is_allowed = std::ranges::any_of(tables, [&node](const auto& table) {
      const std::vector<std::string>& names = table.request.nodes;
      return names.empty() || std::ranges::count(names, node.name) > 0;
    });
    if (is_allowed) left_out.push_back(absl::StrCat("node ", node.name, ": ", why));
  }
  return left_out;
}

absl::StatusOr<std::vector<TablePlan>> Coordinator::Place(
    std::span<const planner::TableToPlace> tables) const {
  for (const planner::TableToPlace& table : tables) {
    EMBLA_RETURN_IF_ERROR(Annotate(CheckNamedNodes(table.request), "table " + table.spec.name));
  }
  EMBLA_ASSIGN_OR_RETURN(const std::vector<NodeSpec> nodes, NodesForPlacement());
  return planner::PlaceTables(tables, nodes, plan_->tables());
}

absl::Status Coordinator::BeginCreate(const QueuedCreate& create, absl::Time now) {
  const std::vector<planner::TableToPlace>& wanted = create.request.tables;
  EMBLA_ASSIGN_OR_RETURN(const std::vector<TablePtr> existing, FindExisting(create.request));
  std::vector<planner::TableToPlace> missing;
  AwaitedCreate awaited{.id = create.id, .tables = {}, .left_out = {}};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    awaited.tables.push_back({.table = existing[i], .existed = existing[i] != nullptr});
    if (existing[i] == nullptr) missing.push_back(wanted[i]);
  }
  if (missing.empty()) {
    Complete(std::move(awaited), absl::OkStatus());
    return absl::OkStatus();
  }
  const std::string text = NamesText(NamesOf(missing));
  PlanEdit edit{.cause = absl::StrCat(text, " created"), .at = now};
  EMBLA_ASSIGN_OR_RETURN(edit.tables, Place(missing));
  edit.pending_until = create.deadline;
  EMBLA_RETURN_IF_ERROR(Annotate(CommitPlan(std::move(edit)), text + " cannot be created"));
  for (CreatedTable& table : awaited.tables) {
    if (table.existed) continue;
    const std::string& name = wanted[&table - awaited.tables.data()].spec.name;
    table.table =
        plan_->tables().pointers()[plan_->tables().IndexOf(plan_->FindTable(name)->spec.id)];
  }
  awaited.left_out = LeftOut(missing);
  awaited_ = std::move(awaited);
  FindPendingHolders();
  LogInfo("coordinator", "creating ", text, " plan_version=", ToInt(plan_->version()));
  return absl::OkStatus();
}

void Coordinator::FindPendingHolders() {
  pending_holders_.clear();
  if (!records_.pending()) return;
  const PendingCreate& pending = *records_.pending();
  for (std::uint32_t i = 0; i < pending.count; ++i) {
    pending_holders_.merge(HoldersOf(*plan_->FindTable(TableId{ToInt(pending.first) + i})));
  }
}

std::string Coordinator::PendingText() const {
  std::vector<std::string_view> names;
  for (std::uint32_t i = 0; i < records_.pending()->count; ++i) {
    names.push_back(plan_->FindTable(TableId{ToInt(records_.pending()->first) + i})->spec.name);
  }
  return NamesText(names);
}

std::optional<absl::Status> Coordinator::JudgePending(absl::Time now) const {
  const PendingCreate& pending = *records_.pending();
  std::vector<std::string> waiting_for;
  for (const NodeId id : pending_holders_) {
    const NodeView& node = *membership_.Find(id);
    if (node.plan_version >= pending.version) continue;
    if (node.failed_plan_version >= pending.version) {
      const absl::StatusCode code =
          node.failure.ok() ? absl::StatusCode::kUnavailable : node.failure.code();
      return absl::Status(code, absl::StrCat("node ", node.spec.name, " could not install ",
                                             PendingText(), ": ", node.failure.message()));
    }
    if (node.state == NodeState::kDead) {
      return absl::UnavailableError(absl::StrCat("node ", node.spec.name, " at ", node.spec.address,
                                                 " went down before it had installed ",
                                                 PendingText()));
    }
    waiting_for.push_back(node.spec.name);
  }
  if (waiting_for.empty()) return absl::OkStatus();
  const bool is_old = pending.version <= opened_at_;
  if (now < (is_old ? std::max(pending.deadline, pending_grace_) : pending.deadline)) {
    return std::nullopt;
  }
  return absl::DeadlineExceededError(absl::StrCat("node ", absl::StrJoin(waiting_for, ", node "),
                                                  " did not install ", PendingText(),
                                                  " in time; nothing was created"));
}

void Coordinator::SettlePending(absl::Time now) {
  if (records_.pending() || !queue_.empty()) {
    if (!MayGiveNumbers(now).ok()) return;
  }
  if (records_.pending()) {
    const std::optional<absl::Status> verdict = JudgePending(now);
    if (!verdict) return;
    const std::string text = PendingText();
    absl::Status recorded;
    if (verdict->ok()) {
      recorded = records_.ClearPending(store_);
    } else {
      PlanEdit edit{.cause = absl::StrCat("creation of ", text, " given up"), .at = now};
      for (std::uint32_t i = 0; i < records_.pending()->count; ++i) {
        edit.drop_tables.push_back(TableId{ToInt(records_.pending()->first) + i});
      }
      edit.pending_done = true;
      recorded = CommitPlan(std::move(edit));
    }
    LogInfo("coordinator", "creation ended of ", text, " outcome=", verdict->ToString());
    Complete(std::exchange(awaited_, {}), recorded.ok() ? *verdict : recorded);
    if (!recorded.ok()) {  // The store cannot write: tried again at the next event.
      LogError("coordinator", "cannot record the creation's end: ", recorded.message());
      return;
    }
  }
  StartQueued(now);
}

void Coordinator::StartQueued(absl::Time now) {
  while (!queue_.empty() && !records_.pending()) {
    const QueuedCreate create = std::move(queue_.front());
    queue_.pop_front();
    absl::Status status = absl::DeadlineExceededError(
        absl::StrCat(NamesText(NamesOf(create.request.tables)),
                     " waited too long for others; nothing was created"));
    if (now < create.deadline) status = BeginCreate(create, now);
    if (!status.ok()) Complete({.id = create.id, .tables = {}, .left_out = {}}, status);
  }
}

void Coordinator::Complete(AwaitedCreate create, absl::Status status) {
  if (create.id == ChangeId{}) return;
  CompleteChange change{
      .id = create.id, .status = std::move(status), .tables = {}, .plan_version = plan_->version()};
  if (change.status.ok()) {
    change.tables = std::move(create.tables);
    change.left_out = std::move(create.left_out);
  }
  effects_.push_back(std::move(change));
}

absl::StatusOr<ChangeProgress> Coordinator::ChangeState(ChangeId change) const {
  ChangeProgress progress;
  if (change != ChangeId{} && change == awaited_.id && records_.pending()) {
    progress.plan_version = records_.pending()->version;
    progress.nodes = pending_holders_.size();
    for (const NodeId id : pending_holders_) {
      const NodeView& node = *membership_.Find(id);
      if (node.plan_version < progress.plan_version) progress.waiting_for.push_back(node.spec.name);
    }
    return progress;
  }
  progress.queued = std::any_of(queue_.begin(), queue_.end(),
                                [&](const QueuedCreate& create) { return create.id == change; });
  if (progress.queued) return progress;
  return absl::NotFoundError(absl::StrCat("change ", ToInt(change), " is not running"));
}

bool Coordinator::IsPending(const TablePlan& table) const {
  return records_.pending() && records_.pending()->Has(table.spec.id);
}

}  // namespace embla
