#include "client/group_sync.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/retry.h"
#include "core/base/text.h"

namespace embla::client {

absl::Status GroupSync::Select(const std::vector<std::string>& tables) {
  const Plan& plan = routes_->plan();
  for (const std::string& name : tables) {
    const TablePlan* const table = plan.FindTable(name);
    if (table == nullptr) {
      return absl::NotFoundError(
          absl::StrCat("no table ", name, " in plan ", ToInt(plan.version())));
    }
    tables_.push_back(table);
  }
  for (const TablePlan& table : plan.tables()) {
    if (tables.empty() && table.grouped()) tables_.push_back(&table);
  }
  for (const TablePlan* const table : tables_) {
    if (!table->grouped()) continue;
    for (const NodeId node : HoldersOf(*table)) open_[node].push_back(table->spec.id);
  }
  return absl::OkStatus();
}

GroupSync::NodeResult GroupSync::AskNode(NodeId node, absl::Time deadline) const {
  NodeChannel* const channel = nodes_.Find(node);
  if (channel == nullptr) return absl::UnavailableError("the node is in no plan any more");
  return channel->Sync({routes_->plan().version(), open_.at(node)}, deadline);
}

absl::Status GroupSync::AskNodes(absl::Time deadline) {
  std::vector<NodeId> nodes;
  for (const auto& [node, tables] : open_) nodes.push_back(node);
  std::vector<NodeResult> results(nodes.size(), absl::UnknownError("not asked"));
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < nodes.size(); ++i) {
    threads.emplace_back([&, i] { results[i] = AskNode(nodes[i], deadline); });
  }
  if (!nodes.empty()) results[0] = AskNode(nodes[0], deadline);
  for (std::thread& thread : threads) thread.join();
  absl::StatusCode code = absl::StatusCode::kOk;
  bool given_up = false;
  std::string failures;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (results[i].ok()) {
      done_.insert(done_.end(), results[i]->begin(), results[i]->end());
      open_.erase(nodes[i]);
      continue;
    }
    const bool hopeless = RemedyFor(results[i].status()) == Remedy::kGiveUp;
    if (code == absl::StatusCode::kOk || (hopeless && !given_up)) {
      code = results[i].status().code();
      given_up = hopeless;
    }
    const NodeSpec* const node = routes_->plan().FindNode(nodes[i]);
    absl::StrAppend(&failures, failures.empty() ? "" : "; ", "node ",
                    node == nullptr ? "?" : node->name, " at ",
                    node == nullptr ? "?" : node->address,
                    " did not average: ", results[i].status().message());
  }
  return absl::Status(code, failures);
}

std::vector<TableSyncReport> GroupSync::Report() const {
  std::vector<TableSyncReport> reports;
  for (const TablePlan* const table : tables_) {
    TableSyncReport& report = reports.emplace_back();
    report.table = table->spec.name;
    report.replica_groups = table->spec.replica_groups;
    double values = 0.0;
    double squares = 0.0;
    for (const NodeChannel::TableSync& sync : done_) {
      if (sync.table != table->spec.id) continue;
      report.divergence_max = std::max(report.divergence_max, sync.divergence_max);
      values += static_cast<double>(sync.values);
      squares += sync.squares;
    }
    if (values > 0.0) report.divergence_rms = std::sqrt(squares / values);
  }
  return reports;
}

}  // namespace embla::client
