#include "client/group_sync.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/retry.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla::client {

namespace {

// The first of several errors, or the first that is not worth repeating.
class Failures {
 public:
  void Add(const absl::Status& status, const std::string& who) {
    const bool hopeless = RemedyFor(status) == Remedy::kGiveUp;
    if (code_ == absl::StatusCode::kOk || (hopeless && !given_up_)) {
      code_ = status.code();
      given_up_ = hopeless;
    }
    absl::StrAppend(&messages_, messages_.empty() ? "" : "; ", who, status.message());
  }
  absl::Status status() const { return absl::Status(code_, messages_); }

 private:
  absl::StatusCode code_ = absl::StatusCode::kOk;
  bool given_up_ = false;
  std::string messages_;
};

}  // namespace

absl::Status GroupSync::Select(const Plan& plan, const std::vector<std::string>& names) {
  std::vector<const TablePlan*> tables;
  for (const std::string& name : names) {
    const TablePlan* const table = plan.FindTable(name);
    if (table == nullptr) {
      return absl::NotFoundError(
          absl::StrCat("no table ", name, " in plan ", ToInt(plan.version())));
    }
    tables.push_back(table);
  }
  for (const TablePlan& table : plan.tables()) {
    if (names.empty() && table.grouped() && !table.aside) tables.push_back(&table);
  }
  for (const TablePlan* const table : tables) {
    Table& selected = tables_.emplace_back();
    selected.spec = table->spec;
    if (!table->grouped()) continue;
    for (const Slice& slice : table->primary()) {
      selected.done[slice.column_begin].assign(table->spec.row_granules, false);
    }
  }
  return absl::OkStatus();
}

void GroupSync::Table::Add(const NodeChannel::TableSync::Rows& rows) {
  const auto cut = done.find(rows.column_begin);
  if (cut == done.end()) return;
  for (std::uint32_t granule = 0; granule < spec.row_granules; ++granule) {
    if (rows.row_begin <= spec.RowGranuleBegin(granule) &&
        spec.RowGranuleBegin(granule + 1) <= rows.row_end) {
      cut->second[granule] = true;
    }
  }
}

bool GroupSync::Table::HasAll(const Slice& slice) const {
  const auto cut = done.find(slice.column_begin);  // No entry: the table has no groups.
  for (std::uint32_t granule = 0; cut != done.end() && granule < spec.row_granules; ++granule) {
    const std::int64_t row = spec.RowGranuleBegin(granule);
    if (slice.row_begin <= row && row < slice.row_end && !cut->second[granule]) return false;
  }
  return true;
}

std::size_t GroupSync::Table::units_left() const {
  std::size_t left = 0;
  for (const auto& [column, averaged] : done) {
    left += static_cast<std::size_t>(std::count(averaged.begin(), averaged.end(), false));
  }
  return left;
}

absl::StatusOr<std::map<NodeId, std::vector<TableId>>> GroupSync::OpenNodes(
    const Plan& plan) const {
  std::map<NodeId, std::vector<TableId>> open;
  for (const Table& table : tables_) {
    const TablePlan* const planned = plan.FindTable(table.spec.id);
    if (planned == nullptr) {
      return absl::NotFoundError(
          absl::StrCat("table ", table.spec.name, " was dropped while it was averaged"));
    }
    for (const Slice& slice : planned->primary()) {
      std::vector<TableId>& tables = open[slice.device.node];
      const bool is_named = !tables.empty() && tables.back() == table.spec.id;
      if (!is_named && !table.HasAll(slice)) tables.push_back(table.spec.id);
    }
  }
  std::erase_if(open, [](const auto& entry) { return entry.second.empty(); });
  return open;
}

GroupSync::NodeResult GroupSync::AskNode(NodeId node, const NodeChannel::SyncQuery& query,
                                         absl::Time deadline) const {
  const std::shared_ptr<NodeChannel> channel = nodes_.Find(node);
  if (channel == nullptr) return absl::UnavailableError("the node is in no plan any more");
  return channel->Sync(query, deadline);
}

void GroupSync::Take(const NodeChannel::TableSync& sync) {
  for (Table& table : tables_) {
    if (table.spec.id != sync.table) continue;
    for (const NodeChannel::TableSync::Rows& rows : sync.averaged) table.Add(rows);
  }
  done_.push_back(sync);
}

absl::Status GroupSync::AskNodes(const Plan& plan, absl::Time deadline) {
  EMBLA_ASSIGN_OR_RETURN(const auto open, OpenNodes(plan));
  std::vector<NodeId> nodes;
  for (const auto& [node, tables] : open) nodes.push_back(node);
  std::vector<NodeResult> results(nodes.size(), absl::UnknownError("not asked"));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    threads.emplace_back([&, i] {
      results[i] = AskNode(nodes[i], {plan.version(), open.at(nodes[i])}, deadline);
    });
  }
  for (std::thread& thread : threads) thread.join();
  Failures failures;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (results[i].ok()) {
      for (const NodeChannel::TableSync& sync : *results[i]) Take(sync);
      continue;
    }
    const NodeSpec* const node = plan.FindNode(nodes[i]);
    failures.Add(results[i].status(),
                 absl::StrCat("node ", node == nullptr ? "?" : node->name, " at ",
                              node == nullptr ? "?" : node->address, " did not average: "));
  }
  if (!failures.status().ok()) return failures.status();
  for (const Table& table : tables_) {
    const std::size_t left = table.units_left();
    if (left == 0) continue;
    failures.Add(absl::UnavailableError(absl::StrCat(
                     left, " units were being handed over from node to node, and not averaged")),
                 absl::StrCat("table ", table.spec.name, ": "));
  }
  return failures.status();
}

std::vector<TableSyncReport> GroupSync::Report() const {
  std::vector<TableSyncReport> reports;
  for (const Table& table : tables_) {
    TableSyncReport& report = reports.emplace_back();
    report.table = table.spec.name;
    report.replica_groups = table.spec.replica_groups;
    double values = 0.0;
    double squares = 0.0;
    for (const NodeChannel::TableSync& sync : done_) {
      if (sync.table != table.spec.id) continue;
      report.divergence_max = std::max(report.divergence_max, sync.divergence_max);
      values += static_cast<double>(sync.values);
      squares += sync.squares;
    }
    if (values > 0.0) report.divergence_rms = std::sqrt(squares / values);
  }
  return reports;
}

}  // namespace embla::client
