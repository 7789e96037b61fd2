#include "server/shard/testing/local_cluster.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/check.h"
#include "core/base/testing/await.h"

namespace embla::testing {
namespace {

constexpr absl::Duration kWaitMax = absl::Seconds(60);
// How often the transport looks for messages whose time is over.
constexpr absl::Duration kLookAgain = absl::Milliseconds(20);
// Updates that are taken together.
constexpr std::uint64_t kTogetherMax = 8;
// How long a message that is to be overtaken waits for another one.
constexpr absl::Duration kOvertakenWait = absl::Milliseconds(2);

}  // namespace

LocalTransport::LocalTransport(std::uint32_t seed) : random_(seed) {
  thread_ = std::thread([this] { Loop(); });
}

LocalTransport::~LocalTransport() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void LocalTransport::SetNode(NodeId id, ShardNode* node) {
  MutexLock lock(mu_);
  nodes_[id] = node;
  while (delivering_) changed_.Wait(mu_);
}

void LocalTransport::SetFaults(Faults faults) {
  MutexLock lock(mu_);
  faults_ = faults;
}

std::uint64_t LocalTransport::messages(ReplicaMessage::Kind kind) const {
  MutexLock lock(mu_);
  const auto it = counts_.find(kind);
  return it == counts_.end() ? 0 : it->second;
}

LocalTransport::Delivery LocalTransport::CopyOf(NodeId node,
                                                std::span<const ReplicaMessage> messages) {
  Delivery delivery{.node = node, .messages = {}, .done = nullptr};
  for (const ReplicaMessage& message : messages) {
    ReplicaMessage& copy = delivery.messages.emplace_back(message);
    if (auto* const update = std::get_if<CopiedUpdate>(&copy.content)) {
      update->batch = Copy(update->batch);
    }
  }
  return delivery;
}

void LocalTransport::Send(const NodeSpec& node, std::span<const ReplicaMessage> messages,
                          absl::Duration timeout, ReplicaDone done) {
  Delivery delivery = CopyOf(node.id, messages);
  MutexLock lock(mu_);
  counts_[messages.front().kind()] += messages.size();
  const std::uint64_t number = ++last_open_;
  open_[number] = {absl::Now() + timeout, std::move(done)};
  delivery.done = [this, number](const absl::StatusOr<ReplicaAck>& ack) { Answer(number, ack); };
  const int fate = static_cast<int>(random_() % 1000);
  const int repeated_from = faults_.lost_request + faults_.lost_answer;
  const int overtaken_from = repeated_from + faults_.repeated_later;
  if (fate < faults_.lost_request) {
    delivery.node = NodeId{};  // No node.
  } else if (fate < repeated_from) {
    delivery.done = [this, number](const absl::StatusOr<ReplicaAck>&) {
      Answer(number, absl::UnavailableError("lost"));
    };
  } else if (fate < overtaken_from) {
    Delivery again = CopyOf(node.id, messages);
    again.after = static_cast<int>(random_() % 8);
    queue_.push_back(std::move(again));
  } else if (fate < overtaken_from + faults_.overtaken) {
    delivery.after = static_cast<int>(1 + random_() % 8);
    delivery.is_overtaken = true;
  }
  queue_.push_back(std::move(delivery));
  changed_.NotifyAll();
}

void LocalTransport::Answer(std::uint64_t number, const absl::StatusOr<ReplicaAck>& ack) {
  ReplicaDone done;
  {
    MutexLock lock(mu_);
    const auto open = open_.find(number);
    if (open == open_.end()) return;
    done = std::move(open->second.done);
    open_.erase(open);
  }
  done(ack);
}

void LocalTransport::EndOverdue() {
  std::vector<std::uint64_t> overdue;
  {
    MutexLock lock(mu_);
    for (const auto& [number, open] : open_) {
      if (open.deadline <= absl::Now()) overdue.push_back(number);
    }
  }
  for (const std::uint64_t number : overdue) {
    Answer(number, absl::DeadlineExceededError("no answer"));
  }
}

void LocalTransport::Loop() {
  for (;;) {
    EndOverdue();
    Delivery delivery;
    {
      MutexLock lock(mu_);
      if (queue_.empty() && !stopping_) changed_.WaitFor(mu_, kLookAgain);
      if (queue_.empty() && !stopping_) continue;
      if (queue_.empty()) return;
      delivery = std::move(queue_.front());
      queue_.pop_front();
      if (queue_.empty() && std::exchange(delivery.is_overtaken, false)) {
        queue_.push_back(std::move(delivery));
        changed_.WaitFor(mu_, kOvertakenWait);
        continue;
      }
      if (delivery.after > 0 && !queue_.empty()) {
        --delivery.after;
        queue_.push_back(std::move(delivery));
        continue;
      }
      delivering_ = true;
    }
    Deliver(std::move(delivery));
    MutexLock lock(mu_);
    delivering_ = false;
    changed_.NotifyAll();
  }
}

void LocalTransport::Deliver(Delivery delivery) {
  ShardNode* node = nullptr;
  {
    MutexLock lock(mu_);
    const auto it = nodes_.find(delivery.node);
    if (it != nodes_.end()) node = it->second;
  }
  const auto answer = [done = std::move(delivery.done)](absl::StatusOr<ReplicaAck> ack) {
    if (ack.ok()) ack->updates_max = kTogetherMax;
    if (done) done(std::move(ack));
  };
  if (node == nullptr) return answer(absl::UnavailableError("node is down"));
  for (ReplicaMessage& message : delivery.messages) {
    const bool is_last = &message == &delivery.messages.back();
    node->ApplyReplicated(
        std::move(message), absl::InfiniteFuture(),
        is_last ? ReplicaDone(answer) : [](const auto&) {});
  }
}

LocalCluster::LocalCluster(const Options& options)
    : options_(options), transport_(options.seed), plan_(std::make_shared<const Plan>()) {
  for (std::uint32_t n = 0; n < options_.nodes; ++n) {
    NodeSpec spec;
    spec.id = NodeId{n + 1};
    spec.name = absl::StrCat("n", n);
    spec.address = absl::StrCat("127.0.0.1:", 1 + n);
    spec.devices.resize(options_.devices_per_node,
                        DeviceSpec{DeviceKind::kCpu, options_.device_bytes});
    gpus_.emplace_back(options_.devices_per_node);
    for (std::uint32_t d = 0; d < options_.devices_per_node; ++d) {
      if (options_.is_gpu == nullptr || !options_.is_gpu(n, d)) continue;
      spec.devices[d].kind = DeviceKind::kGpu;
      gpus_[n][d] = std::make_unique<gpu::SimulatedDevice>(
          gpu::SimulatedDeviceOptions{.ordinal = d, .kernels = options_.gpu_kernels});
    }
    specs_.push_back(std::move(spec));
    nodes_.push_back(MakeNode(n));
    transport_.SetNode(specs_[n].id, nodes_[n].get());
  }
}

LocalCluster::~LocalCluster() {
  // Messages in flight to a node that is gone fail; those of a node that goes must come back.
  for (std::uint32_t n = 0; n < nodes_.size(); ++n) TakeDown(n);
}

std::unique_ptr<ShardNode> LocalCluster::MakeNode(std::uint32_t index) {
  ShardNodeOptions options;
  options.name = specs_[index].name;
  options.devices = specs_[index].devices;
  for (const auto& gpu : gpus_[index]) options.gpus.push_back(gpu.get());
  options.collectives = options_.collectives;
  const bool has_gpu = std::ranges::any_of(options.gpus, [](auto* gpu) { return gpu != nullptr; });
  options.gpu_cache_bytes = has_gpu ? options_.gpu_cache_bytes : 0;
  options.gpu_cache_policy = options_.gpu_cache_policy;
  // Small, so that batches of tests take several pieces, and rows are summed on both sides.
  options.gpu_piece_bytes = std::size_t{64} << 10;
  options.metrics = options_.metrics;
  options.threads_per_device = options_.threads_per_device;
  options.replica_backlog_max = 8;
  options.replica_backoff = absl::Milliseconds(1);
  options.replica_probe_interval = absl::Milliseconds(20);
  options.replica_timeout = absl::Seconds(1);
  options.replica_window_rows_max = 200;
  absl::StatusOr<std::unique_ptr<ShardNode>> node = ShardNode::Create(options, pool_);
  EMBLA_CHECK(node.ok());
  (*node)->set_replica_transport(&transport_);
  return *std::move(node);
}

absl::Status LocalCluster::Install(std::vector<TablePlan> tables) {
  const PlanVersion version{ToInt(plan_->version()) + 1};
  const auto plan = std::make_shared<const Plan>(version, "test", specs_, std::move(tables));
  if (absl::Status status = plan->Validate(); !status.ok()) return status;
  for (std::uint32_t n = 0; n < nodes_.size(); ++n) {
    if (nodes_[n] == nullptr) continue;
    absl::Status status = nodes_[n]->InstallPlan(plan, specs_[n].id);
    if (!status.ok()) return status;
  }
  plan_ = plan;
  return absl::OkStatus();
}

void LocalCluster::AwaitCopies(TableId table) {
  for (const std::vector<Slice>& copy : plan_->FindTable(table)->replicas) {
    auto& holder = node(copy.front().device.node);
    AwaitFor([&] { return holder.ViewCopy(table).serves; }, kWaitMax, "a copy serves lookups");
  }
}

void LocalCluster::AwaitUsedBytes(NodeId id, std::uint32_t device, std::int64_t bytes) {
  AwaitFor([&] { return UsedBytes(id, device) == bytes; }, kWaitMax, "memory is given back");
}

void LocalCluster::TakeDown(std::uint32_t index) {
  transport_.SetNode(specs_[index].id, nullptr);
  nodes_[index].reset();
}

void LocalCluster::Restart(std::uint32_t index) {
  TakeDown(index);
  nodes_[index] = MakeNode(index);
  EMBLA_CHECK(nodes_[index]->InstallPlan(plan_, specs_[index].id).ok());
  transport_.SetNode(specs_[index].id, nodes_[index].get());
}

absl::StatusOr<LookupResult> LocalCluster::Lookup(NodeId id, LookupBatch request,
                                                  std::size_t frame_bytes) {
  std::vector<SharedBuffer> pieces;
  LookupFrames frames;
  if (frame_bytes > 0) {
    frames.bytes = frame_bytes;
    frames.send = [&](PlanVersion, SharedBuffer rows) { pieces.push_back(std::move(rows)); };
  }
  absl::StatusOr<LookupResult> result = Await<LookupResult>([&](LookupDone done) {
    node(id).Lookup(std::move(request), absl::Now() + absl::Minutes(1), std::move(frames),
                    std::move(done));
  });
  if (!result.ok() || pieces.empty()) return result;
  EMBLA_CHECK(!result->rows.empty());  // The last rows always come with the end.
  pieces.push_back(result->rows);
  Buffer all = Buffer::Allocate(result->sent_bytes + result->rows.size());
  std::size_t at = 0;
  for (const SharedBuffer& piece : pieces) {
    EMBLA_CHECK(piece.size() <= all.size() - at);
    std::memcpy(all.data() + at, piece.data(), piece.size());
    at += piece.size();
  }
  EMBLA_CHECK(at == all.size());
  result->rows = std::move(all);
  return result;
}

absl::StatusOr<UpdateResult> LocalCluster::Update(NodeId id, UpdateBatch request,
                                                  absl::Duration timeout) {
  return Await<UpdateResult>([&](UpdateDone done) {
    node(id).Update(std::move(request), absl::Now() + timeout, std::move(done));
  });
}

}  // namespace embla::testing
