// Several shard nodes in one process, for tests, with the network between them played by a thread
// that can lose, delay, reorder and repeat messages.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/mutex.h"
#include "server/gpu/pinned_buffers.h"
#include "server/gpu/testing/simulated_device.h"
#include "server/shard/shard_node.h"
#include "server/shard/testing/packed_batch.h"

namespace embla::testing {

// Delivers replica messages to nodes of this process. Thread safety: full.
class LocalTransport final : public ReplicaTransport {
 public:
  // Number of messages in 1000 that meet each fate. The rest arrive once and are answered.
  struct Faults {
    int lost_request = 0;
    int lost_answer = 0;
    int repeated_later = 0;  // Arrives, and once more after some later ones.
    int overtaken = 0;       // Arrives once, after some later ones.
  };
  explicit LocalTransport(std::uint32_t seed);
  ~LocalTransport() override;

  // Null: the node is down. Waits until nothing is being delivered.
  void SetNode(NodeId id, ShardNode* node);
  void SetFaults(Faults faults);

  void Send(const NodeSpec& node, std::span<const ReplicaMessage> messages, absl::Duration timeout,
            ReplicaDone done) override;

  // Counts messages, also those that were sent together.
  std::uint64_t messages(ReplicaMessage::Kind kind) const;

 private:
  struct Delivery {
    NodeId node;
    std::vector<ReplicaMessage> messages;
    ReplicaDone done;           // Null: no answer is expected.
    int after = 0;              // Later messages that go first.
    bool is_overtaken = false;  // Waits a little for later messages, if there are none.
  };
  // A message without an answer.
  struct Open {
    absl::Time deadline;
    ReplicaDone done;
  };

  void Loop();
  // Answers the sender, unless it has been answered.
  void Answer(std::uint64_t open, const absl::StatusOr<ReplicaAck>& ack);
  void EndOverdue();
  static Delivery CopyOf(NodeId node, std::span<const ReplicaMessage> messages);
  void Deliver(Delivery delivery);

  mutable Mutex mu_;
  CondVar changed_;
  Faults faults_ ABSL_GUARDED_BY(mu_);
  std::mt19937 random_ ABSL_GUARDED_BY(mu_);
  std::map<NodeId, ShardNode*> nodes_ ABSL_GUARDED_BY(mu_);
  std::map<ReplicaMessage::Kind, std::uint64_t> counts_ ABSL_GUARDED_BY(mu_);
  std::deque<Delivery> queue_ ABSL_GUARDED_BY(mu_);
  std::map<std::uint64_t, Open> open_ ABSL_GUARDED_BY(mu_);  // By number, from the oldest.
  std::uint64_t last_open_ ABSL_GUARDED_BY(mu_) = 0;
  bool delivering_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

// Nodes "n0", "n1", ... with ids from 1.
class LocalCluster {
 public:
  struct Options {
    std::uint32_t nodes = 1;
    std::uint32_t devices_per_node = 1;
    std::uint32_t threads_per_device = 1;
    std::int64_t device_bytes = std::int64_t{1} << 30;
    std::uint32_t seed = 1;
    // Devices that are simulated GPUs; null: none.
    std::function<bool(std::uint32_t node, std::uint32_t device)> is_gpu = nullptr;
    const gpu::KernelTable* gpu_kernels = nullptr;  // Like SimulatedDeviceOptions::kernels.
    Collectives collectives = Collectives::kHost;
    std::size_t gpu_cache_bytes = 0;  // Like ShardNodeOptions, for nodes that have a GPU.
    RowCache::Policy gpu_cache_policy = RowCache::Policy::kLru;
    Metrics* metrics = nullptr;  // Metrics of all nodes. Not owned; outlives the cluster.
  };
  explicit LocalCluster(const Options& options);
  ~LocalCluster();

  const std::vector<NodeSpec>& specs() const { return specs_; }
  ShardNode& node(std::uint32_t index) { return *nodes_[index]; }
  ShardNode& node(NodeId id) { return node(ToInt(id) - 1); }
  LocalTransport& transport() { return transport_; }
  BufferPool& pool() { return pool_; }
  // Null for CPU devices. Stays when the node restarts, as a machine's GPUs do.
  gpu::SimulatedDevice* gpu(std::uint32_t node, std::uint32_t device) {
    return gpus_[node][device].get();
  }
  std::int64_t UsedBytes(NodeId id, std::uint32_t device) {
    return node(id).device_used_bytes()[device];
  }
  // Nodes give memory back on a thread of their own.
  void AwaitUsedBytes(NodeId id, std::uint32_t device, std::int64_t bytes);

  // Installs the next plan with these tables on every node; the first error, if any.
  absl::Status Install(std::vector<TablePlan> tables);
  const PlanPtr& plan() const { return plan_; }

  // Waits until every copy of the data_parallel table serves lookups.
  void AwaitCopies(TableId table);
  // A node that lost its memory.
  void Restart(std::uint32_t index);
  void TakeDown(std::uint32_t index);

  // Waits for the answer. The deadline is a minute away.
  // With frame_bytes > 0 through LookupFrames; `rows` has all rows either way.
  absl::StatusOr<LookupResult> Lookup(NodeId node, LookupBatch request,
                                      std::size_t frame_bytes = 0);
  absl::StatusOr<UpdateResult> Update(NodeId node, UpdateBatch request,
                                      absl::Duration timeout = absl::Minutes(1));

 private:
  std::unique_ptr<ShardNode> MakeNode(std::uint32_t index);

  const Options options_;
  // Replies are pinned, as those of a node with a GPU are.
  gpu::SimulatedDevice pinning_device_;
  BufferPool pool_{
      BufferPool::kRetainedBytesMax,
      std::make_shared<gpu::PinnedBuffers>(pinning_device_, BufferPool::kRetainedBytesMax)};
  std::vector<NodeSpec> specs_;
  std::vector<std::vector<std::unique_ptr<gpu::SimulatedDevice>>> gpus_;  // By node, by device.
  LocalTransport transport_;
  PlanPtr plan_;
  std::vector<std::unique_ptr<ShardNode>> nodes_;
};

// Calls `start(done)` and waits for what is given to `done`.
template <typename Result>
absl::StatusOr<Result> Await(
    const std::function<void(std::function<void(absl::StatusOr<Result>)>)>& start) {
  struct Slot {
    Mutex mu;
    CondVar changed;
    std::unique_ptr<absl::StatusOr<Result>> result ABSL_GUARDED_BY(mu);
  };
  const auto slot = std::make_shared<Slot>();
  start([slot](absl::StatusOr<Result> result) {
    MutexLock lock(slot->mu);
    slot->result = std::make_unique<absl::StatusOr<Result>>(std::move(result));
    slot->changed.NotifyAll();
  });
  MutexLock lock(slot->mu);
  while (slot->result == nullptr) slot->changed.Wait(slot->mu);
  return std::move(*slot->result);
}

}  // namespace embla::testing
