// A shard node with a journal on a disk in memory, for tests: it can be killed and started again.
#pragma once

#include <memory>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "server/journal/node_journal.h"
#include "server/log/testing/simulated_storage.h"
#include "server/shard/shard_node.h"

namespace embla::testing {

class JournaledNode {
 public:
  struct Options {
    ShardNodeOptions node;
    NodeJournalOptions journal;
  };
  explicit JournaledNode(const Options& options) : options_(options) { Start(); }
  ~JournaledNode() { Stop(); }

  ShardNode& node() { return *node_; }
  NodeJournal& journal() { return *journal_; }
  SimulatedStorage& disk() { return disk_; }

  // A snapshot of a node without a mover.
  absl::Status TakeSnapshot() {
    return journal_->TakeSnapshot([](const auto& work) {
      work([] { return std::vector<RestoredUnit>(); });
      return true;
    });
  }
  // Ends the process: the next one finds the disk as it is now.
  void Kill() {
    disk_.FailAt(1, DiskFault::kDeath);
    Stop();
    disk_.Restart();
  }
  // The last start made more than one where snapshots proved damaged.
  int nodes_made() const { return nodes_made_; }
  // The error of the start, if any.
  absl::Status TryStart() {
    nodes_made_ = 0;
    EMBLA_ASSIGN_OR_RETURN(NodeJournal::Opened opened,
                           NodeJournal::Open(disk_, options_.journal, [this] {
                             ++nodes_made_;
                             return ShardNode::Create(options_.node, pool_);
                           }));
    journal_ = std::move(opened.journal);
    node_ = std::move(opened.node);
    return absl::OkStatus();
  }
  void Start() {
    const absl::Status started = TryStart();
    if (!started.ok()) LogError("test", started.message());
    EMBLA_CHECK(started.ok());
  }
  // Clean. Calls that wait for the journal are answered while the node still exists.
  void Stop() {
    if (journal_ != nullptr) static_cast<void>(journal_->Close());
    node_.reset();
    journal_.reset();
  }

 private:
  const Options options_;
  int nodes_made_ = 0;
  BufferPool pool_;
  SimulatedStorage disk_;
  std::unique_ptr<NodeJournal> journal_;
  std::unique_ptr<ShardNode> node_;
};

}  // namespace embla::testing
