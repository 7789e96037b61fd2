#include "client/zch_table.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace embla::client {
namespace {

absl::StatusOr<std::shared_ptr<NodeChannel>> ChannelOf(NodeId node, NodeDirectory& nodes) {
  std::shared_ptr<NodeChannel> channel = nodes.Find(node);
  if (channel != nullptr) return channel;
  return absl::UnavailableError("a node of the table is in no plan any more");
}

// Returns the step before which a touch is `older_than` steps ago, or longer.
std::uint64_t BeforeStep(std::uint64_t at_step, std::uint64_t older_than) {
  if (at_step < older_than) return 0;
  const std::uint64_t last = at_step - older_than;
  return last + (last < std::numeric_limits<std::uint64_t>::max() ? 1 : 0);
}

}  // namespace

absl::Status CheckZch(const TableSpec& spec) {
  if (spec.zch.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("table ", spec.name, " is no zch table: its ids are its rows"));
}

absl::StatusOr<TableSurvey> SurveyNodes(const TablePlan& table, NodeDirectory& nodes,
                                        std::uint64_t step, absl::Time deadline) {
  TableSurvey all;
  for (const NodeId node : HoldersOf(table)) {
    EMBLA_ASSIGN_OR_RETURN(const std::shared_ptr<NodeChannel> channel, ChannelOf(node, nodes));
    EMBLA_ASSIGN_OR_RETURN(const TableSurvey part,
                           channel->SurveyTable(table.spec.id, step, deadline));
    all.slots += part.slots;
    all.residents += part.residents;
    all.full_groups += part.full_groups;
    all.waiting += part.waiting;
    all.age_sum += part.age_sum;
    all.oldest_age = std::max(all.oldest_age, part.oldest_age);
    all.latest_step = std::max(all.latest_step, part.latest_step);
  }
  return all;
}

TableSweep::TableSweep(const TableSpec& spec, const SweepOptions& options, std::uint64_t at_step)
    : rows_per_bucket_(spec.rows / spec.zch->buckets), done_(spec.zch->buckets, false) {
  query_.table = spec.id;
  query_.expired = !options.older_than_steps.has_value();
  query_.step = at_step;
  query_.before_step = BeforeStep(at_step, options.older_than_steps.value_or(0));
  report_.at_step = at_step;
}

std::vector<NodeChannel::RowRange> TableSweep::RowsLeft() const {
  std::vector<NodeChannel::RowRange> left;
  for (std::size_t bucket = 0; bucket < done_.size(); ++bucket) {
    if (done_[bucket]) continue;
    const std::int64_t begin = static_cast<std::int64_t>(bucket) * rows_per_bucket_;
    if (!left.empty() && left.back().second == begin) {
      left.back().second += rows_per_bucket_;
    } else {
      left.emplace_back(begin, begin + rows_per_bucket_);
    }
  }
  return left;
}

absl::Status TableSweep::AskNodes(const TablePlan& table, NodeDirectory& nodes,
                                  absl::Time deadline) {
  for (const NodeId node : HoldersOf(table)) {
    EMBLA_ASSIGN_OR_RETURN(const std::shared_ptr<NodeChannel> channel, ChannelOf(node, nodes));
    query_.rows = RowsLeft();
    if (query_.rows.empty()) return absl::OkStatus();
    EMBLA_ASSIGN_OR_RETURN(const NodeChannel::SweepReply reply,
                           channel->SweepTable(query_, deadline));
    report_.evicted += reply.evicted;
    for (const auto& [begin, end] : reply.swept) {
      for (std::int64_t row = begin; row < end; row += rows_per_bucket_) {
        const std::int64_t bucket = row / rows_per_bucket_;
        if (bucket < static_cast<std::int64_t>(done_.size())) done_[bucket] = true;
      }
    }
  }
  const auto left = std::count(done_.begin(), done_.end(), false);
  if (left == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("table ", table.spec.name, ": ", left, " of its ",
                                             done_.size(), " buckets are on the move, ",
                                             report_.evicted, " ids have lost their rows so far"));
}

}  // namespace embla::client
