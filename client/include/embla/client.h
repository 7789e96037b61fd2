// Embla's C++ client: batched lookups and updates of embedding tables that no single machine holds.
//
//   auto client = embla::client::Client::Connect({.coordinator = "10.0.0.1:7070"});
//   std::vector<float> rows(ids.size() * 64);
//   FeatureLookup clicks{.table = "clicks", .ids = ids, .rows_out = rows};
//   absl::Status status = (*client)->Lookup({&clicks, 1});
//
// Rows and gradients are fp32, row-major, in the caller's own arrays: nothing here keeps or returns
// a view of a second copy. Number formats on the wire are chosen per call.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "embla/tls.h"

namespace embla {
class Metrics;  // core/metrics: for programs that are built with this tree.
}  // namespace embla

namespace embla::client {

// Number format of rows or gradients on the wire. kInt8 is row-wise: a byte per column and 8 per
// row.
enum class WireFormat : std::uint8_t { kFp32 = 1, kFp16 = 2, kBf16 = 3, kInt8 = 4 };

// kNone: one row per id. kSum, kMean: one row per bag; the mean of an empty bag is zeros.
enum class Pooling : std::uint8_t { kNone = 1, kSum = 2, kMean = 3 };

// kStream: one long-lived stream per node, many requests in flight. kUnary: one call per request.
// kAuto: as kStream, and calls go on by a data socket, which is faster (docs/data_sockets.md): a
// unix socket to nodes on this host, and a connection to the node's port elsewhere. kTcp: the same,
// but by the port everywhere.
enum class Transport : std::uint8_t { kStream = 1, kUnary = 2, kAuto = 3, kTcp = 4 };

struct ConnectOptions {
  // host:port; of several coordinators all, with commas in between.
  std::string coordinator = {};
  std::string name = {};  // For people; empty: host name and process id.
  // A name of [A-Za-z0-9._-]{1,128} that this trainer keeps over its restarts: its session before
  // is closed, and Connect waits until every node refuses what may still come of it. So what
  // happened to the updates that were in flight does not change any more. Empty: no other session
  // is touched.
  std::string trainer = {};
  absl::Duration timeout = absl::Seconds(10);  // Deadline of a call that states none.
  Transport transport = Transport::kAuto;
  int connections_per_node = 1;
  // Requests wait once this many bytes are on their way to or from one node.
  std::int64_t in_flight_bytes_max_per_node = std::int64_t{64} << 20;
  // Retries may be at most this share of requests, plus some per second: more of them wait, as long
  // as their calls have time.
  double retry_budget_ratio = 0.1;
  double retry_budget_per_second = 10.0;
  int threads = 2;  // Threads that merge replies and run callbacks.
  // The replica group whose copies this client trains and reads. None: the coordinator gives the
  // sessions that are open turns.
  std::optional<std::uint32_t> replica_group = {};
  // Whether Connect waits, for `timeout`, for a coordinator that does not answer: it may be about
  // to start. False: it fails at once if nobody listens there or the name has no address.
  bool waits_for_coordinator = true;
  // Counts the client's metrics; not owned, and outlives the client. Several clients may share one.
  // Null: the client makes one of its own, see Client::MetricsText.
  Metrics* metrics = nullptr;
  // For tables with synchronous steps: this trainer's number, and how many trainers there are. Both
  // or none; rank < ranks. A rank is one open session's; a trainer that is started again under its
  // name has its rank back at once.
  std::optional<std::uint32_t> rank = {};
  std::uint32_t ranks = 0;
  TlsOptions tls = {};  // Without a certificate and a token: plaintext.
  // Asked by every lookup and update, on the caller's thread: a W3C traceparent, such as
  // OpenTelemetry's propagator makes, whose trace the call belongs to (docs/tracing.md); anything
  // else is none. Must not throw. Null: no call is traced.
  std::function<std::string()> traceparent = nullptr;

  // InvalidArgument names the field.
  absl::Status Validate() const;
};

struct CallOptions {
  // Zero: ConnectOptions::timeout, and for updates of tables with synchronous steps, twice their
  // step_timeout more.
  absl::Duration timeout = absl::ZeroDuration();
  WireFormat wire = WireFormat::kFp32;  // Rows of a Lookup, gradients of an Update.
  // Lookup: an id that occurs several times in a feature that is not pooled, or whose bags have one
  // id each, travels once. Update: duplicate ids are summed before they travel. Both where at least
  // one in 32 ids is a duplicate; below that it costs more than it saves. Results are the same
  // bits either way, but updates in another wire format than fp32: their sums are rounded, not
  // their terms, so their duplicates are always summed.
  bool combine_duplicates = true;
  // Update: the training step (keys stochastic rounding). 0: the update's own sequence number; of
  // tables with synchronous steps: step 0, the first.
  std::uint64_t step = 0;
};

// One input of a lookup: jagged ids into one table. Give `lengths` or `offsets`, or neither when
// pooling is kNone. All spans must stay valid until the call is done.
struct FeatureLookup {
  std::string_view table = {};
  std::span<const std::int64_t> ids = {};
  std::span<const std::uint32_t> lengths = {};  // Bag b has lengths[b] ids.
  std::span<const std::int64_t> offsets = {};   // Bag b is ids[offsets[b] .. offsets[b+1]).
  std::span<const float> weights = {};          // Empty, or one per id; kSum only.
  Pooling pooling = Pooling::kNone;
  std::span<float> rows_out = {};  // (ids or bags) x dim.
  // Floats from one row of rows_out to the next, at least dim; 0: dim. So several features fill
  // columns of one array, each with a span that begins at its first column.
  std::size_t rows_out_stride = 0;
};

// One input of an update: the gradient of what the matching lookup returned.
struct FeatureGradient {
  std::string_view table = {};
  std::span<const std::int64_t> ids = {};
  std::span<const std::uint32_t> lengths = {};
  std::span<const std::int64_t> offsets = {};
  std::span<const float> weights = {};
  Pooling pooling = Pooling::kNone;
  std::span<const float> gradients = {};  // (ids or bags) x dim.
  std::size_t gradients_stride = 0;       // Like FeatureLookup::rows_out_stride.
  // In place of the table's for this update: finite, at least 0. Features of one table agree.
  std::optional<float> learning_rate = {};
  // ZCH tables with policy ttl: how many training steps the ids live after this one; 0: as the
  // table says. An id of several features lives as long as the longest.
  std::uint32_t ttl_steps = 0;
};

struct TableInfo {
  std::string name;
  std::int64_t rows = 0;
  std::uint32_t dim = 0;
  std::string dtype;      // fp32, fp16 or bf16
  std::string sharding;   // row_wise, ...
  std::string optimizer;  // rowwise_adagrad, ...
  std::uint32_t replica_groups = 1;
  std::uint32_t replica_group = 0;  // This client's.
  bool zch = false;                 // Ids are any 64-bit numbers; `rows` of them can have a row.
  bool sync = false;  // Synchronous steps: one per training step, with the sum over all ranks.
};

// How far the copies of a table had come apart when they were averaged.
struct TableSyncReport {
  std::string table;
  std::uint32_t replica_groups = 1;
  double divergence_max = 0.0;  // Largest distance of a weight from the mean of its copies.
  double divergence_rms = 0.0;  // Root of the mean square of those distances.
};

// Everything the cluster knows about one id of a ZCH table.
struct IdExplanation {
  std::string node;  // Name of the node that has the id's bucket.
  std::uint32_t device = 0;
  std::uint32_t bucket = 0;
  std::optional<std::int64_t> row;         // The id's own.
  std::optional<std::int64_t> shared_row;  // The reserved one that it shares while it has none.
  // The id's row:
  std::uint64_t last_step = 0;        // Its latest touch.
  std::uint32_t touches = 0;          // Policies lfu and distance_lfu.
  std::uint32_t expires_at_step = 0;  // Policy ttl.

  std::uint32_t seen = 0;             // Towards admission by count, without a row.
  std::uint32_t group_residents = 0;  // Ids with a row among the 64 that it may have.
  // Why it lost its row, if its bucket still knows: replaced, expired, idle or removed.
  std::string evicted_reason;
  std::uint64_t evicted_at_step = 0;
  std::uint64_t evicted_last_step = 0;  // Step of its latest touch before that.
  // Its bucket remembers no evictions before this step; 0: it remembers all.
  std::uint64_t evictions_known_since = 0;
};

// The contents of a ZCH table on all nodes. While buckets move, one may count twice or not at all.
struct TableSurvey {
  std::uint64_t slots = 0;      // Slots that ids may have.
  std::uint64_t residents = 0;  // Ids with a row.
  // Groups of 64 slots without a free one; a new id needs a victim there.
  std::uint64_t full_groups = 0;
  std::uint64_t waiting = 0;  // Ids that are counted towards admission.
  std::uint64_t age_sum = 0;  // Over ids with a row: steps from their latest touch to latest_step.
  std::uint64_t oldest_age = 0;
  std::uint64_t latest_step = 0;  // Step of the latest touch of any id.
};

// Selects the ids that a sweep takes the rows from.
struct SweepOptions {
  // Ids whose latest touch is at least so many steps ago. None: ids whose TTL is over, in a
  // table with policy ttl.
  std::optional<std::uint64_t> older_than_steps = {};
  // The step that counts as now; none: the latest step at which any id of the table was touched.
  std::optional<std::uint64_t> at_step = {};
};
struct SweepReport {
  std::uint64_t at_step = 0;
  std::uint64_t evicted = 0;  // Ids that lost their rows.
};

// An id of a ZCH table that lost its row, and the row as it was.
struct EvictedRow {
  std::int64_t id = 0;
  std::string reason;           // replaced, expired, idle or removed.
  std::uint64_t step = 0;       // When.
  std::uint64_t last_step = 0;  // Step of the id's latest touch.
  std::span<const float> weights;
  std::span<const float> state;  // In ReadState's layout.
  std::uint64_t missed = 0;      // Evictions of the same node right before, which it had not kept.
};

// A stretch of a table.
struct TableRows {
  // First row of the stretch; in a ZCH table a running count of its ids.
  std::int64_t first_row = 0;
  std::span<const std::int64_t> ids = {};  // Ascending.
  std::span<const float> weights = {};     // ids x dim
  std::span<const float> state = {};       // In ReadState's layout; empty: not asked for.
};

using DoneCallback = std::function<void(absl::Status)>;

// The subject of a call's error, for programs; its message says all of it to people.
struct ErrorDetails {
  std::string table;             // Empty: none, or several.
  std::string node;              // Empty: none, or several.
  bool retryable = false;        // The same call may succeed later.
  bool outcome_unknown = false;  // An update that may be applied in part.
};
ErrorDetails DetailsOf(const absl::Status& status);

// A lookup that runs while the caller does something else.
class PendingLookup {
 public:
  PendingLookup() = default;
  explicit PendingLookup(std::future<absl::Status> done) : done_(std::move(done)) {}
  // Waits until rows_out of every feature is filled. Call once.
  absl::Status Wait() { return done_.get(); }
  bool valid() const { return done_.valid(); }

 private:
  std::future<absl::Status> done_;
};

// Thread safety: every method may be called from any thread. Callbacks run on the client's threads;
// they may start calls, but must neither wait for one nor destroy the client.
//
// Errors of Lookup and Update:
//   InvalidArgument    the call is wrong (sizes, names, NaN gradients): fix it
//   NotFound           no such table
//   OutOfRange         an id is outside the table and its bounds mode is error
//   Unavailable        a node cannot be reached, or the retry budget is used up; names the node.
//                      Lookups may be repeated; an update's outcome is unknown
//   ResourceExhausted  the node is overloaded, or too many calls wait for the client's threads
//   DeadlineExceeded   the call's time is over; names the node that was awaited
//   FailedPrecondition the client is closed; or, of a synchronous step: it is over, it has failed,
//                      or this rank is no member of it: join again
//   Cancelled          the client was closed while the call ran; an update's outcome is unknown
//   PermissionDenied   the session is closed: another client has connected as the same trainer, or
//                      the coordinator has not heard of this one for its lease.
//                      A process that was replaced ends; one that was not, connects again
class Client {
 public:
  // Waits until the coordinator answers and gives a session, at most options.timeout. Errors of
  // options.tls: InvalidArgument, NotFound, Unauthenticated name the file and what is wrong with
  // it.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(ConnectOptions options);

  virtual ~Client() = default;  // Waits for calls in flight.

  // Fills rows_out of every feature, or changes none of it in a way that may be relied on.
  virtual absl::Status Lookup(std::span<const FeatureLookup> features,
                              const CallOptions& options) = 0;
  virtual void LookupAsync(std::vector<FeatureLookup> features, const CallOptions& options,
                           DoneCallback done) = 0;

  // One optimizer step on every touched row, exactly once, although the client retries inside.
  // Features of one table are one step: gradients of an id are summed over all of them first.
  //
  // Features of tables with synchronous steps are this rank's contribution to the step that
  // `options` name: to be made for every step and table once, by every rank, also when there is
  // nothing to say (a feature without ids). It ends when the step is made, with the sum over all
  // ranks. Steps may be started before the ones before have ended, up to the table's
  // steps_ahead_max.
  virtual absl::Status Update(std::span<const FeatureGradient> features,
                              const CallOptions& options) = 0;
  virtual void UpdateAsync(std::vector<FeatureGradient> features, const CallOptions& options,
                           DoneCallback done) = 0;

  // Makes this client's rank a member of the tables' synchronous steps, and waits for it. Returns
  // the first step, by table, that it contributes to (of a rank that was a member already: that it
  // has been one since), as far as is known.
  // InvalidArgument: a table without synchronous steps, or a client without a rank.
  // DeadlineExceeded names the ranks that are missing.
  virtual absl::StatusOr<std::vector<std::uint64_t>> JoinSteps(
      const std::vector<std::string>& tables, absl::Duration timeout) = 0;

  // Starts the next batch's lookup. It sees every update that was acknowledged before this call.
  PendingLookup Prefetch(std::vector<FeatureLookup> features, const CallOptions& options);

  // Copies the weights of `ids`, in their order, to rows_out (ids x dim, fp32): as a lookup does.
  virtual absl::Status ReadRows(std::string_view table, std::span<const std::int64_t> ids,
                                std::span<float> rows_out) = 0;
  // Copies the optimizer state of `ids` to state_out: per row first the scalars, then the arrays of
  // `dim` (docs/row_block.md). OutOfRange: an id that has no row. Requires state_out.size() ==
  // ids.size() * StateFloatsPerRow(table).
  virtual absl::Status ReadState(std::string_view table, std::span<const std::int64_t> ids,
                                 std::span<float> state_out) = 0;
  virtual absl::StatusOr<std::size_t> StateFloatsPerRow(std::string_view table) = 0;
  // Replaces the weights (ids x dim) and the optimizer state (as ReadState gives it) of `ids`; what
  // is empty stays as it is. Journaled, replicated and exactly once as updates are, also while rows
  // move; tables with replica groups: in all copies. Numbers are rounded to the table's dtype. In a
  // ZCH table the ids get rows whatever its admission is; one whose group of 64 is full of ids that
  // its policy keeps is left out. Sent in pieces of 4 MiB: after an error some rows may be written,
  // and calling again does no harm. InvalidArgument, with nothing written: sizes; an id twice; a
  // number that is NaN or infinite (nan_policy reject).
  virtual absl::Status WriteRows(std::string_view table, std::span<const std::int64_t> ids,
                                 std::span<const float> weights, std::span<const float> state,
                                 const CallOptions& options) = 0;
  // Calls `sink` with every row of `table`, about 16 MiB at a time, or with every id that has a row
  // in a ZCH table, until it returns an error, which is the result. Each row is as it is when it is
  // read: of an update that is made meanwhile some rows may be old and some new.
  using RowSink = std::function<absl::Status(const TableRows&)>;
  virtual absl::Status ScanTable(std::string_view table, bool with_state, const RowSink& sink) = 0;
  // Writes all weights of `table` as a NumPy file: rows x dim, little-endian fp32, C order. A ZCH
  // table's file has only the rows that belong to an id; their ids go as int64 to `npy_path` +
  // ".ids.npy".
  virtual absl::Status ExportTable(std::string_view table, const std::string& npy_path) = 0;

  // Averages weights and all optimizer state of `tables` over their replica groups, on every node
  // that holds them; tables without groups stay as they are. Empty: all tables that have groups.
  // Nodes average each for itself: call it while no group updates, or expect the nodes to do it
  // between different updates. After an error, which names the nodes, others may have averaged;
  // calling again does no harm.
  virtual absl::StatusOr<std::vector<TableSyncReport>> Sync(const std::vector<std::string>& tables,
                                                            const CallOptions& options) = 0;

  // Tells which node and row have `id`, or why it has none. InvalidArgument: not a ZCH table.
  virtual absl::StatusOr<IdExplanation> ExplainId(std::string_view table, std::int64_t id) = 0;

  // Asks every node that holds a part of the ZCH table `table`, which reads all that is known of
  // its ids. InvalidArgument: not a ZCH table.
  virtual absl::StatusOr<TableSurvey> SurveyTable(std::string_view table) = 0;
  // Takes the rows of a whole generation of ids away, in every bucket of the ZCH table `table`
  // once, wherever it is, between two updates. After an error some buckets may be done; calling
  // again with the same at_step does no harm. InvalidArgument: not a ZCH table, or one without TTLs
  // and no older_than_steps. Unavailable: buckets were on the move all the time.
  virtual absl::StatusOr<SweepReport> SweepTable(std::string_view table,
                                                 const SweepOptions& options) = 0;
  // Calls `sink`, one call at a time, with the evicted rows that the nodes still keep, each node's
  // in order; with `follow` also with those to come, until `sink` returns an error, which is the
  // result. FailedPrecondition: the table keeps no evicted rows (eviction_buffer_bytes).
  using EvictionSink = std::function<absl::Status(const EvictedRow& row)>;
  virtual absl::Status ReadEvictions(std::string_view table, bool follow,
                                     const EvictionSink& sink) = 0;

  virtual std::vector<TableInfo> Tables() = 0;
  virtual absl::Status RefreshPlan() = 0;
  virtual std::uint64_t plan_version() const = 0;
  virtual std::uint64_t session() const = 0;
  // Whether the session has taken the place of an earlier one of the same trainer: its rank then
  // continues with the step at which that one was, and else with what JoinSteps returns.
  virtual bool has_taken_over() const = 0;

  // Ends the client. Calls that begin from now on fail with FailedPrecondition; those in flight
  // have until `timeout` is over, then they fail with Cancelled, at most about 2 s later. Returns
  // when none is left: DeadlineExceeded, if some had to be ended. A client that was closed is
  // destroyed without waiting. Calling again does no harm.
  virtual absl::Status Close(absl::Duration timeout) = 0;

  // This client's metrics in the Prometheus text format.
  virtual std::string MetricsText() const = 0;
};

}  // namespace embla::client
