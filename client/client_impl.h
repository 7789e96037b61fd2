// Client: one session with one cluster.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "client/call.h"
#include "client/include/embla/client.h"
#include "client/row_reader.h"
#include "client/step_rank.h"
#include "client/transport/coordinator_channel.h"
#include "core/base/buffer.h"
#include "core/base/mutex.h"
#include "core/metrics/metrics.h"
#include "core/socket/poller.h"

namespace embla::client {

class ClientImpl final : public Client {
 public:
  // Connections, time and address lookup of the client; tests replace them.
  struct World {
    std::unique_ptr<Timer> timer;
    std::unique_ptr<CoordinatorChannel> coordinator;
    // Makes the channel to a node; the timer is World::timer.
    std::function<std::unique_ptr<NodeChannel>(const NodeSpec& node, Timer& timer)> connect;
    std::unique_ptr<Poller> poller = nullptr;  // For the channels; may be null.
  };

  // Opens the session and fetches the first plan. Errors as Client::Connect.
  static absl::StatusOr<std::unique_ptr<Client>> Open(ConnectOptions options, World world);

  ~ClientImpl() override;

  absl::Status Lookup(std::span<const FeatureLookup> features, const CallOptions& options) override;
  void LookupAsync(std::vector<FeatureLookup> features, const CallOptions& options,
                   DoneCallback done) override;
  absl::Status Update(std::span<const FeatureGradient> features,
                      const CallOptions& options) override;
  void UpdateAsync(std::vector<FeatureGradient> features, const CallOptions& options,
                   DoneCallback done) override;

  absl::StatusOr<std::vector<std::uint64_t>> JoinSteps(const std::vector<std::string>& tables,
                                                       absl::Duration timeout) override;

  absl::Status ReadRows(std::string_view table, std::span<const std::int64_t> ids,
                        std::span<float> rows_out) override;
  absl::Status ReadState(std::string_view table, std::span<const std::int64_t> ids,
                         std::span<float> state_out) override;
  absl::StatusOr<std::size_t> StateFloatsPerRow(std::string_view table) override;
  absl::Status WriteRows(std::string_view table, std::span<const std::int64_t> ids,
                         std::span<const float> weights, std::span<const float> state,
                         const CallOptions& options) override;
  absl::Status ScanTable(std::string_view table, bool with_state, const RowSink& sink) override;
  absl::Status ExportTable(std::string_view table, const std::string& npy_path) override;

  absl::StatusOr<std::vector<TableSyncReport>> Sync(const std::vector<std::string>& tables,
                                                    const CallOptions& options) override;

  absl::StatusOr<IdExplanation> ExplainId(std::string_view table, std::int64_t id) override;

  absl::StatusOr<TableSurvey> SurveyTable(std::string_view table) override;
  absl::StatusOr<SweepReport> SweepTable(std::string_view table,
                                         const SweepOptions& options) override;
  absl::Status ReadEvictions(std::string_view table, bool follow,
                             const EvictionSink& sink) override;

  std::vector<TableInfo> Tables() override;
  absl::Status RefreshPlan() override;
  std::uint64_t plan_version() const override;
  std::uint64_t session() const override { return ToInt(session_); }
  bool has_taken_over() const override { return step_rank_.is_taken_over(); }
  absl::Status Close(absl::Duration timeout) override;
  std::string MetricsText() const override { return metrics_.Text(); }

 private:
  ClientImpl(ConnectOptions options, World world);

  absl::Status OpenSession();
  absl::Status AskForSession(SessionRequest& request, absl::Time deadline);
  absl::Time DeadlineOf(const CallOptions& options) const;
  // The span that a call which begins now, on this thread, belongs to.
  TraceContext CallersTrace() const;
  // With the timeout of an update of the features' tables, if none is stated.
  CallOptions WithTimeout(std::span<const FeatureGradient> features, CallOptions options) const;
  // Counts a call. FailedPrecondition: the client is closed.
  absl::Status BeginCall();
  void EndCall();
  std::unique_ptr<CallWork> WorkFor(std::span<const FeatureLookup> features,
                                    const CallOptions& options);
  std::unique_ptr<CallWork> WorkFor(std::span<const FeatureGradient> features,
                                    const CallOptions& options);
  std::unique_ptr<CallWork> WorkFor(UpdateWork::MakeRoute make_route, const CallOptions& options);
  // One piece, into every copy of the table.
  absl::Status WritePiece(const TableSpec& spec, const RowWrite& piece, const CallOptions& options);
  absl::Status RunCall(std::unique_ptr<CallWork> work, const CallOptions& options,
                       MethodMetrics& metrics);
  void StartCall(std::unique_ptr<CallWork> work, const CallOptions& options, MethodMetrics& metrics,
                 DoneCallback done);
  // The table under the newest plan; asks the coordinator when it is not known.
  absl::StatusOr<RoutesPtr> RoutesWith(std::string_view table);
  absl::Status ScanResidents(const TableSpec& spec, bool with_state, const RowSink& sink);
  absl::Status ExportResidents(const TableSpec& spec, const std::string& npy_path);
  // Runs `read` until it succeeds, fails for good, or the time of a call is over.
  absl::Status ReadWithRetries(
      std::string_view table,
      const std::function<absl::Status(const RowReader&, const TableRoute&, absl::Time)>& read);

  const ConnectOptions options_;
  const std::unique_ptr<Metrics> own_metrics_;  // Null: the options have one.
  Metrics& metrics_;
  ClientMetrics client_metrics_;
  MethodMetrics lookup_metrics_;
  MethodMetrics update_metrics_;
  BufferPool pool_;
  SessionId session_{};  // This and what follows: constant once the session is open.
  SessionProof proof_{};
  GroupChoice groups_;

  // Destroyed in reverse: members that call into others come after them.
  const std::unique_ptr<Timer> timer_;
  const std::unique_ptr<Poller> poller_;  // May be null.
  const std::unique_ptr<CoordinatorChannel> coordinator_;
  RetryBudget budget_;
  Backoff backoff_;
  NodeDirectory nodes_;
  UpdateWindow window_;
  StepRank step_rank_;
  PlanKeeper plans_;
  Executor executor_;
  std::atomic<bool> cut_off_ = false;
  SpanLog spans_{"client"};
  CallServices services_;

  Mutex mu_;
  CondVar idle_;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  std::int64_t calls_ ABSL_GUARDED_BY(mu_) = 0;  // Lookups and updates in flight.
};

}  // namespace embla::client
