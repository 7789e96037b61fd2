// Everything an embla-shard process consists of, built in order and taken down in reverse: also for
// programs that run a cluster inside themselves.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/buffer.h"
#include "core/base/cluster_key.h"
#include "core/base/heap.h"
#include "core/metrics/exposer.h"
#include "core/metrics/metrics.h"
#include "core/metrics/process_metrics.h"
#include "server/app/memory_return.h"
#include "server/app/readiness.h"
#include "server/journal/node_directory.h"
#include "server/journal/node_journal.h"
#include "server/log/log_storage.h"
#include "server/migration/move_orders.h"
#include "server/mover/move_log.h"
#include "server/mover/mover_thread.h"
#include "server/rpc/coordinator_link.h"
#include "server/rpc/data_service.h"
#include "server/rpc/inspect_service.h"
#include "server/rpc/move_report_outbox.h"
#include "server/rpc/node_key.h"
#include "server/rpc/peer_channel.h"
#include "server/rpc/rpc_server.h"
#include "server/shard/shard_node.h"
#include "server/storage/row_cache.h"

namespace embla {

struct ShardProcessOptions {
  std::string name;         // Stable across restarts. Empty: the host's name.
  std::string coordinator;  // host:port
  // File of the cluster's key. Empty: the one that the coordinator names, if this host has it.
  std::string cluster_key_file;
  ClusterKeyPtr cluster_key;  // Not null: the key itself, for programs that have no file.
  // Called once, on a thread of the process, when the coordinator can never take this node; must
  // not destroy it. May be empty: the process goes on without ever having tables.
  std::function<void(const absl::Status&)> on_refused;
  TlsFiles
      tls;  // Certificate: every connection is over TLS, and `name` is that of the certificate.
  RpcServerOptions server;
  std::string advertise;       // Address for peers and trainers. Empty: where it listens.
  std::string metrics_listen;  // Empty: no metrics endpoint.
  std::vector<DeviceSpec> devices;
  // See ShardNodeOptions.
  std::vector<gpu::Device*> gpus;
  Collectives collectives = Collectives::kHost;  // Not kAuto.
  std::size_t gpu_cache_bytes = 0;
  RowCache::Policy gpu_cache_policy = RowCache::Policy::kLru;
  std::uint32_t threads_per_device = 0;             // 0: the machine's cores / devices, at least 1.
  absl::Duration heartbeat = absl::ZeroDuration();  // Zero: what the coordinator says.
  absl::Duration stop_grace = absl::Seconds(10);    // For calls in flight.
  // Directory of the node's journal (docs/journal_format.md); made where it is missing. Empty: rows
  // live as long as the process.
  std::string data_dir;
  Durability durability = Durability::kWritten;  // Level of updates that are answered.
  SnapshotOptions snapshots;                     // When its snapshots are taken.
  // Rows that the node had and has not any more begin at their initial values; without this the
  // coordinator refuses the node.
  bool accept_loss = false;
  // Answer nobody before the coordinator has said that nothing here is another node's. So it is
  // always after a loss, and from a directory that was copied.
  bool await_coordinator = false;
  // Free memory that the process keeps while requests come: what was given to KeepHeap.
  std::size_t kept_heap_bytes = kKeptHeapBytes;
  DataServiceOptions data;
  MoverOptions mover;
};

class ShardProcess {
 public:
  // Listens when it returns; the coordinator is found in the background.
  // With a data directory, the node is what it was before it listens or registers.
  // Errors: those of Tls::Load, RpcServer, MetricsExposer, ShardNode::Create and NodeJournal::Open.
  static absl::StatusOr<std::unique_ptr<ShardProcess>> Start(const ShardProcessOptions& options);
  // Finishes calls in flight, for at most stop_grace.
  ~ShardProcess();

  const std::string& address() const { return server_->address(); }
  // Empty without a metrics endpoint.
  const Metrics& metrics() const { return metrics_; }
  std::string metrics_address() const { return exposer_ ? exposer_->address() : ""; }
  // OK: this node serves; else what is missing, as /readyz says.
  absl::Status ready() const { return readiness_.Get(); }
  bool registered() const { return link_->registered(); }
  // Why the coordinator can never take this node; OK: as far as is known, it can.
  absl::Status refusal() const { return link_->refusal(); }

 private:
  ShardProcess(const ShardProcessOptions& options, TlsPtr tls);
  absl::StatusOr<std::unique_ptr<ShardNode>> MakeEmptyNode();
  absl::Status MakeNode();
  absl::Status Recover();
  absl::Status ExposeMetrics();
  absl::Status Listen();
  // OK, or what is missing until this node serves.
  void SetReady(absl::Status status);
  // Whether the process may not know what its predecessors have handed over.
  bool IsInDoubt() const;
  // Until then, whoever calls is told so.
  absl::Status AnswerThatItWaits(RpcServerOptions options);
  // The coordinator has said that it may.
  void Serve();
  absl::Status Join();
  // Fills in the data directory's past for the link, and writes what it learns there.
  void DescribePast(NodeRegistration& registration) const;
  absl::Status NoteRegistered(const v1::Registered& registered);
  absl::Status NotePlan(const Plan& plan);
  // Answers those of `orders` that ask about copies of data_parallel tables.
  void AnswerAboutCopies(std::span<const UnitOrder> orders);

  const ShardProcessOptions options_;
  const TlsPtr tls_;  // Null: plaintext.
  Readiness readiness_;
  Metrics metrics_;
  ProcessMetrics process_metrics_{metrics_};
  BufferPool pool_;  // Pinned, where the node has a GPU.
  NodeKey key_;
  PeerChannel peers_;
  ForgetfulMoveLog move_log_;
  MoveReportOutbox move_reports_;
  std::unique_ptr<LogStorage> storage_;  // Null, like the next two, without a data directory.
  std::unique_ptr<NodeDirectory> directory_;
  std::unique_ptr<NodeJournal> journal_;
  std::unique_ptr<ShardNode> node_;
  std::unique_ptr<MoverThread> mover_;
  std::unique_ptr<DataService> service_;
  std::unique_ptr<InspectService> inspect_;
  ListeningSockets listening_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<RpcServer> waiting_;  // In front of server_ while nobody is served yet.
  std::unique_ptr<MetricsExposer> exposer_;
  std::unique_ptr<CoordinatorLink> link_;
  std::unique_ptr<MemoryReturn> memory_return_;
  std::atomic<bool> is_held_ = false;  // Nobody is answered yet.
};

}  // namespace embla
