#include "client/eviction_reader.h"

#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/route/feature.h"
#include "core/base/clock.h"
#include "core/base/status_macros.h"
#include "core/rows/row_block.h"
#include "kernels/convert.h"

namespace embla::client {
namespace {

// How long a call waits for evictions, so how soon the end is noticed; also between two looks at
// the plan for new nodes.
constexpr absl::Duration kPatience = absl::Seconds(1);

// Nodes come, go, restart, and move the table: they are asked again. Not after these.
bool IsFinal(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsDataLoss(status) ||
         absl::IsUnimplemented(status);
}

}  // namespace

absl::Status EvictionReader::Take(const NodeChannel::Evictions& evictions) {
  std::vector<EvictedRow> rows = evictions.rows;
  std::vector<float> weights;
  RowBlock block;
  if (!rows.empty()) {
    EMBLA_ASSIGN_OR_RETURN(block, DecodeRowBlock(evictions.row_block));
    if (block.rows.size() != rows.size() || block.shape.columns() != spec_.dim) {
      return absl::DataLossError(absl::StrCat("table ", spec_.name, ": ", rows.size(),
                                              " evictions with ", block.rows.size(), " rows of ",
                                              block.shape.columns(), " columns"));
    }
    weights.resize(rows.size() * spec_.dim);
    kernels::Convert({block.weights.data(), RowBytes(block.shape.dtype, spec_.dim),
                      ElementOf(block.shape.dtype)},
                     {weights.data(), spec_.dim * sizeof(float), kernels::Element::kFloat32},
                     rows.size(), spec_.dim);
  }
  MutexLock lock(sink_mu_);
  std::uint64_t missed = evictions.missed;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (ended()) return absl::CancelledError("another node's row was the last");
    rows[i].weights = std::span(weights).subspan(i * spec_.dim, spec_.dim);
    rows[i].state = block.state.subspan(i * block.shape.state_floats, block.shape.state_floats);
    rows[i].missed = std::exchange(missed, 0);
    if (absl::Status status = sink_(rows[i]); !status.ok()) {
      End(status);
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status EvictionReader::ReadNode(NodeId node, bool follow, absl::Time deadline) {
  const std::shared_ptr<NodeChannel> channel = nodes_.Find(node);
  if (channel == nullptr) return absl::UnavailableError("the node is in no plan any more");
  NodeChannel::EvictionsPosition position;
  {
    MutexLock lock(mu_);
    position = positions_[node];
  }
  const absl::Status status =
      channel->ReadEvictions(spec_.id, follow, position, deadline,
                             [this](const NodeChannel::Evictions& e) { return Take(e); });
  MutexLock lock(mu_);
  positions_[node] = position;
  return status;
}

void EvictionReader::End(const absl::Status& status) {
  MutexLock lock(mu_);
  if (ended_) return;
  ended_ = true;
  result_ = status;
  changed_.NotifyAll();
}

absl::Status EvictionReader::ReadKept(absl::Time deadline) {
  const RoutesPtr routes = plans_.routes();
  const TablePlan* const table = routes->plan().FindTable(spec_.id);
  if (table == nullptr) return absl::NotFoundError(absl::StrCat("no table ", spec_.name));
  for (const NodeId node : HoldersOf(*table)) {
    EMBLA_RETURN_IF_ERROR(ReadNode(node, /*follow=*/false, deadline));
  }
  return absl::OkStatus();
}

void EvictionReader::FollowNode(NodeId node) {
  while (!ended()) {
    const absl::Status status = ReadNode(node, /*follow=*/true, Clock::Real().Now() + kPatience);
    if (IsFinal(status)) return End(status);
    if (absl::IsDeadlineExceeded(status)) continue;
    MutexLock lock(mu_);
    if (!ended_) changed_.WaitFor(mu_, kPatience);
  }
}

absl::Status EvictionReader::Follow() {
  std::map<NodeId, std::thread> threads;
  while (!ended()) {
    const RoutesPtr routes = plans_.routes();
    const TablePlan* const table = routes->plan().FindTable(spec_.id);
    if (table == nullptr) {
      End(absl::NotFoundError(absl::StrCat("table ", spec_.name, " is gone")));
      break;
    }
    for (const NodeId node : HoldersOf(*table)) {
      if (threads.count(node) != 0) continue;
      threads.emplace(node, [this, node] { FollowNode(node); });
    }
    MutexLock lock(mu_);
    if (!ended_) changed_.WaitFor(mu_, kPatience);
  }
  for (auto& [node, thread] : threads) thread.join();
  MutexLock lock(mu_);
  return result_;
}

}  // namespace embla::client
