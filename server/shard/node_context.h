// The services that the tasks of one node share.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/base/buffer.h"
#include "server/shard/node_devices.h"
#include "server/shard/shard_node.h"
#include "server/table/device_executor.h"

namespace embla {

class Journal;
class SessionGate;
struct NodeTables;

struct NodeContext {
  const ShardNodeOptions& options;
  BufferPool& pool;
  std::vector<std::unique_ptr<Device>>& devices;
  DeviceExecutors* executors = nullptr;   // Queues of follow-up tasks.
  Journal* journal = nullptr;             // Null: nothing is written down.
  const SessionGate* sessions = nullptr;  // Asked before updates of trainers.
  // The tables as they are now; those of a task may be older.
  const std::function<std::shared_ptr<const NodeTables>()>* tables = nullptr;
};

}  // namespace embla
