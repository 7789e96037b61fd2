// What the tasks of one node share: its devices, and where their memory comes from.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/buffer.h"
#include "core/plan/plan.h"
#include "server/collective/communicator.h"
#include "server/shard/shard_node.h"
#include "server/storage/memory_budget.h"
#include "server/storage/thread_pool.h"
#include "server/table/device_executor.h"
#include "server/table/lookup_share.h"
#include "server/table/update_share.h"

namespace embla {

class Journal;

// One device. Everything but `budget` belongs to the device's thread.
struct Device {
  Device(const DeviceSpec& spec, std::uint32_t threads)
      : budget(static_cast<std::size_t>(spec.memory_bytes)), pool(threads) {}

  MemoryBudget budget;
  ThreadPool pool;
  std::unique_ptr<Communicator> communicator;  // Rank == device.

  // Memory that one batch after the other uses.
  RowSelection row_selection;
  std::vector<BagSelection> bag_selections;
  std::vector<float> pooled;
  std::vector<float> pooled_more;
  std::vector<float> reduce_in;
  std::vector<float> reduce_out;
  std::vector<std::unique_ptr<UpdateShare>> update_shares;
  SumScratch sum_scratch;
};

struct NodeContext {
  const ShardNodeOptions& options;
  BufferPool& pool;
  std::vector<std::unique_ptr<Device>>& devices;
  DeviceExecutors* executors = nullptr;  // Where follow-up tasks go.
  Journal* journal = nullptr;            // Null: nothing is written down.
};

}  // namespace embla
