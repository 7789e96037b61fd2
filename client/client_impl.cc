#include "client/client_impl.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/eviction_reader.h"
#include "client/group_sync.h"
#include "client/npy_file.h"
#include "client/route/distinct_ids.h"
#include "client/row_reader.h"
#include "client/step_join.h"
#include "client/zch_table.h"
#include "core/base/clock.h"
#include "core/base/random.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/names.h"

namespace embla::client {
namespace {

constexpr absl::Duration kConnectBackoff = absl::Milliseconds(100);
// Deadline of one question to the coordinator while connecting: a network may lose one silently.
constexpr absl::Duration kConnectAttempt = absl::Seconds(5);
constexpr absl::Duration kGoodbyeTimeout = absl::Milliseconds(500);
constexpr absl::Duration kReadBackoff = absl::Milliseconds(200);
constexpr std::size_t kScanBytes = std::size_t{16} << 20;
constexpr std::size_t kWriteBytes = std::size_t{4} << 20;  // Most bytes in one update of WriteRows.

// Looks at all rows before the first is sent: what is wrong with one of them writes none.
absl::Status CheckRows(const TableSpec& spec, const RowWrite& write) {
  const auto fail = [&spec](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat("table ", spec.name, ": ", parts...));
  };
  const auto check_finite = [&](const char* name, std::span<const float> values) {
    const auto bad = std::find_if_not(values.begin(), values.end(),
                                      [](float value) { return std::isfinite(value); });
    if (bad == values.end()) return absl::OkStatus();
    const std::size_t row = (bad - values.begin()) / (values.size() / write.ids.size());
    return fail(name, " of id ", write.ids[row], " is NaN or infinite");
  };
  if (spec.nan_policy == NanPolicy::kReject) {
    EMBLA_RETURN_IF_ERROR(check_finite("a weight", write.weights));
    EMBLA_RETURN_IF_ERROR(check_finite("a state", write.state));
  }
  const DistinctIds distinct = FindDistinct(write.ids);
  if (!distinct.has_duplicates) return absl::OkStatus();
  std::uint32_t next = 0;
  for (std::size_t i = 0; i < write.ids.size(); ++i) {
    if (distinct.entry_of[i] != next++) {
      return fail("id ", write.ids[i], " is written twice in one call");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSameTable(const TableSpec& now, const TableSpec& then) {
  if (now.id == then.id) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("table ", then.name, " was replaced meanwhile"));
}

bool WorthRepeating(const absl::Status& status) {
  const Remedy remedy = RemedyFor(status);
  return remedy == Remedy::kRetry || remedy == Remedy::kRefreshPlan || remedy == Remedy::kSlowDown;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> ClientImpl::Open(ConnectOptions options, World world) {
  EMBLA_RETURN_IF_ERROR(options.Validate());
  auto client = std::unique_ptr<ClientImpl>(new ClientImpl(std::move(options), std::move(world)));
  EMBLA_RETURN_IF_ERROR(client->OpenSession());
  return client;
}

ClientImpl::ClientImpl(ConnectOptions options, World world)
    : options_(std::move(options)),
      own_metrics_(options_.metrics == nullptr ? std::make_unique<Metrics>() : nullptr),
      metrics_(own_metrics_ != nullptr ? *own_metrics_ : *options_.metrics),
      client_metrics_(&metrics_),
      lookup_metrics_(&metrics_, MethodMetrics::Side::kClient, "Lookup"),
      update_metrics_(&metrics_, MethodMetrics::Side::kClient, "Update"),
      timer_(std::move(world.timer)),
      poller_(std::move(world.poller)),
      coordinator_(std::move(world.coordinator)),
      budget_(options_.retry_budget_ratio, options_.retry_budget_per_second, timer_->Now()),
      backoff_(RandomId64()),
      nodes_([connect = std::move(world.connect), timer = timer_.get()](const NodeSpec& node) {
        return connect(node, *timer);
      }),
      window_(*timer_),
      plans_(*coordinator_, nodes_, *timer_, client_metrics_),
      executor_(options_.threads),
      services_{*timer_,  executor_,       plans_,   nodes_, budget_,
                backoff_, client_metrics_, cut_off_, spans_} {}

ClientImpl::~ClientImpl() {
  {
    MutexLock lock(mu_);
    while (calls_ > 0) idle_.Wait(mu_);
  }
  coordinator_->StopWatch();
  // Lets the nodes forget the session. The reply is not awaited.
  if (session_ != SessionId{}) {
    (void)coordinator_->CloseSession(session_, proof_, timer_->Now() + kGoodbyeTimeout);
  }
}

// Names the session that is to be closed: so a question that arrives late closes none that is
// newer than itself.
absl::Status ClientImpl::AskForSession(SessionRequest& request, absl::Time deadline) {
  constexpr int kQuestions = 2;  // The first one may say what is to be replaced.
  for (int question = 0; question < kQuestions; ++question) {
    EMBLA_ASSIGN_OR_RETURN(const SessionGrant grant, coordinator_->OpenSession(request, deadline));
    if (grant.session != SessionId{}) {
      session_ = grant.session;
      proof_ = grant.proof;
      groups_ = {options_.replica_group, grant.turn};
      if (request.replaces != SessionId{}) step_rank_.SetTakenOver();
      return absl::OkStatus();
    }
    request.replaces = grant.latest;
  }
  return absl::UnavailableError(
      absl::StrCat("session ", ToInt(request.replaces), " of trainer ", options_.trainer,
                   " was opened meanwhile: other clients connect under this name"));
}

// Both steps until they succeed: the coordinator may be about to start.
absl::Status ClientImpl::OpenSession() {
  const absl::Time deadline = timer_->Now() + options_.timeout;
  SessionRequest request{options_.name, options_.trainer, RandomId64(), {}, {}, options_.ranks};
  if (options_.rank.has_value()) request.rank = Rank{*options_.rank};
  absl::Status status;
  while (true) {
    const absl::Time attempt_deadline = std::min(deadline, timer_->Now() + kConnectAttempt);
    if (session_ == SessionId{}) status = AskForSession(request, attempt_deadline);
    if (status.ok()) status = plans_.Refresh(attempt_deadline);
    if (status.ok()) break;
    if (!options_.waits_for_coordinator && absl::IsUnavailable(status)) return status;
    if (!WorthRepeating(status) || timer_->Now() + kConnectBackoff >= deadline) return status;
    absl::SleepFor(kConnectBackoff);
  }
  coordinator_->StartWatch(plans_.routes()->plan_ptr(),
                           {.session = session_, .latest = {}, .turn = 0, .proof = proof_},
                           [this](PlanPtr plan) { plans_.Offer(std::move(plan)); });
  return absl::OkStatus();
}

absl::Time ClientImpl::DeadlineOf(const CallOptions& options) const {
  const bool stated = options.timeout > absl::ZeroDuration();
  return timer_->Now() + (stated ? options.timeout : options_.timeout);
}

TraceContext ClientImpl::CallersTrace() const {
  if (options_.traceparent == nullptr) return {};
  return TraceContext::Parse(options_.traceparent());
}

// A step may have to wait until a silent rank is closed, which takes a step_timeout and some rounds
// of messages.
CallOptions ClientImpl::WithTimeout(std::span<const FeatureGradient> features,
                                    CallOptions options) const {
  if (options.timeout > absl::ZeroDuration()) return options;
  const RoutesPtr routes = plans_.routes();
  std::uint32_t step_timeout_ms = 0;
  for (const FeatureGradient& feature : features) {
    const TableRoute* const table = routes->Find(feature.table);
    if (table == nullptr || !table->spec().sync.has_value()) continue;
    step_timeout_ms = std::max(step_timeout_ms, table->spec().sync->step_timeout_ms);
  }
  options.timeout = options_.timeout + 2 * absl::Milliseconds(step_timeout_ms);
  return options;
}

std::unique_ptr<CallWork> ClientImpl::WorkFor(std::span<const FeatureLookup> features,
                                              const CallOptions& options) {
  const LookupRoute::Options route{.wire_dtype = DTypeOf(options.wire),
                                   .combine_duplicates = options.combine_duplicates,
                                   .session = session_,
                                   .proof = proof_,
                                   .groups = groups_};
  return std::make_unique<LookupWork>(features, route, pool_);
}

std::unique_ptr<CallWork> ClientImpl::WorkFor(std::span<const FeatureGradient> features,
                                              const CallOptions& options) {
  const UpdateRoute::Options route{
      .wire_dtype = DTypeOf(options.wire),
      .combine_duplicates = options.combine_duplicates,
      .groups = groups_,
      .rank = options_.rank.has_value() ? std::optional(Rank{*options_.rank}) : std::nullopt};
  return WorkFor(
      [this, route, all = std::vector(features.begin(), features.end())](const Routes& routes) {
        return UpdateRoute::Create(all, routes, route, pool_);
      },
      options);
}

std::unique_ptr<CallWork> ClientImpl::WorkFor(UpdateWork::MakeRoute make_route,
                                              const CallOptions& options) {
  const UpdateWork::Options work{.session = session_, .proof = proof_, .step = options.step};
  return std::make_unique<UpdateWork>(std::move(make_route), work, window_, step_rank_);
}

absl::Status ClientImpl::RunCall(std::unique_ptr<CallWork> work, const CallOptions& options,
                                 MethodMetrics& metrics) {
  EMBLA_RETURN_IF_ERROR(BeginCall());
  Call call(services_, std::move(work), DeadlineOf(options), metrics, CallersTrace());
  const absl::Status status = call.Run();
  EndCall();
  return status;
}

void ClientImpl::StartCall(std::unique_ptr<CallWork> work, const CallOptions& options,
                           MethodMetrics& metrics, DoneCallback done) {
  if (const absl::Status begun = BeginCall(); !begun.ok()) return done(begun);
  auto* call = new Call(services_, std::move(work), DeadlineOf(options), metrics, CallersTrace());
  call->RunAsync([this, call, done = std::move(done)](const absl::Status& status) {
    delete call;
    done(status);
    EndCall();
  });
}

absl::Status ClientImpl::BeginCall() {
  MutexLock lock(mu_);
  if (closing_) return absl::FailedPreconditionError("the client is closed");
  ++calls_;
  return absl::OkStatus();
}

void ClientImpl::EndCall() {
  MutexLock lock(mu_);
  --calls_;
  idle_.NotifyAll();
}

absl::Status ClientImpl::Close(absl::Duration timeout) {
  const absl::Time deadline = Clock::Real().Now() + timeout;
  std::int64_t ended = 0;
  {
    MutexLock lock(mu_);
    closing_ = true;
    while (calls_ > 0 && Clock::Real().Now() < deadline)
      idle_.WaitFor(mu_, deadline - Clock::Real().Now());
    ended = calls_;
  }
  if (ended > 0) {
    cut_off_.store(true, std::memory_order_release);  // Pairs with Call::CheckOpen's acquire.
    nodes_.CloseAll();
    MutexLock lock(mu_);
    while (calls_ > 0) idle_.Wait(mu_);
  }
  if (ended == 0) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat(ended, " calls in flight were ended after ", absl::FormatDuration(timeout)));
}

absl::Status ClientImpl::Lookup(std::span<const FeatureLookup> features,
                                const CallOptions& options) {
  return RunCall(WorkFor(features, options), options, lookup_metrics_);
}

void ClientImpl::LookupAsync(std::vector<FeatureLookup> features, const CallOptions& options,
                             DoneCallback done) {
  StartCall(WorkFor(features, options), options, lookup_metrics_, std::move(done));
}

absl::Status ClientImpl::Update(std::span<const FeatureGradient> features,
                                const CallOptions& options) {
  return RunCall(WorkFor(features, options), WithTimeout(features, options), update_metrics_);
}

void ClientImpl::UpdateAsync(std::vector<FeatureGradient> features, const CallOptions& options,
                             DoneCallback done) {
  StartCall(WorkFor(features, options), WithTimeout(features, options), update_metrics_,
            std::move(done));
}

absl::StatusOr<std::vector<std::uint64_t>> ClientImpl::JoinSteps(
    const std::vector<std::string>& tables, absl::Duration timeout) {
  if (!options_.rank.has_value()) {
    return absl::InvalidArgumentError("this client is no rank: connect with rank and ranks");
  }
  for (const std::string& table : tables) EMBLA_RETURN_IF_ERROR(RoutesWith(table).status());
  StepJoin join(*coordinator_, plans_, *timer_,
                {session_, proof_, Rank{*options_.rank}, options_.ranks});
  return join.Run(tables, timer_->Now() + timeout);
}

absl::Status ClientImpl::ReadRows(std::string_view table, std::span<const std::int64_t> ids,
                                  std::span<float> rows_out) {
  const FeatureLookup feature{.table = table, .ids = ids, .rows_out = rows_out};
  return Lookup({&feature, 1}, {});
}

absl::StatusOr<RoutesPtr> ClientImpl::RoutesWith(std::string_view table) {
  RoutesPtr routes = plans_.routes();
  if (routes->Find(table) == nullptr) {
    EMBLA_RETURN_IF_ERROR(RefreshPlan());
    routes = plans_.routes();
  }
  if (routes->Find(table) != nullptr) return routes;
  return routes->NoSuchTable(table);
}

absl::Status ClientImpl::ReadWithRetries(
    std::string_view table,
    const std::function<absl::Status(const RowReader&, const TableRoute&, absl::Time)>& read) {
  const absl::Time deadline = DeadlineOf({});
  while (true) {
    EMBLA_ASSIGN_OR_RETURN(const RoutesPtr routes, RoutesWith(table));
    const TableRoute& route = *routes->Find(table);
    const std::size_t replica = route.ReplicaFor(session_, nodes_.NodeToAvoid(timer_->Now()));
    EMBLA_ASSIGN_OR_RETURN(const std::uint32_t group, groups_.Of(route.spec()));
    const RowReader reader(*routes, route, nodes_, replica, group);
    const absl::Status status = read(reader, route, deadline);
    if (!WorthRepeating(status) || timer_->Now() + kReadBackoff >= deadline) return status;
    absl::SleepFor(kReadBackoff);
    // An error here shows in the next attempt.
    (void)plans_.Refresh(deadline);
  }
}

absl::Status ClientImpl::ReadState(std::string_view table, std::span<const std::int64_t> ids,
                                   std::span<float> state_out) {
  return ReadWithRetries(
      table,
      [&](const RowReader& reader, const TableRoute& route, absl::Time deadline) -> absl::Status {
        const std::size_t expected = ids.size() * StateFloats(route.spec());
        if (state_out.size() == expected) return reader.ReadState(ids, deadline, state_out);
        return absl::InvalidArgumentError(
            absl::StrCat("state_out has ", state_out.size(), " floats, but ", ids.size(),
                         " rows x ", StateFloats(route.spec()), " are ", expected));
      });
}

absl::StatusOr<std::size_t> ClientImpl::StateFloatsPerRow(std::string_view table) {
  EMBLA_ASSIGN_OR_RETURN(const RoutesPtr routes, RoutesWith(table));
  return StateFloats(routes->Find(table)->spec());
}

absl::Status ClientImpl::WriteRows(std::string_view table, std::span<const std::int64_t> ids,
                                   std::span<const float> weights, std::span<const float> state,
                                   const CallOptions& options) {
  EMBLA_ASSIGN_OR_RETURN(const RoutesPtr routes, RoutesWith(table));
  const TableSpec spec = routes->Find(table)->spec();
  EMBLA_RETURN_IF_ERROR(CheckSizes(spec, {table, ids, weights, state}));
  EMBLA_RETURN_IF_ERROR(CheckRows(spec, {table, ids, weights, state}));
  const std::size_t weight_floats = weights.empty() ? 0 : spec.dim;
  const std::size_t state_floats = state.empty() ? 0 : StateFloats(spec);
  const std::size_t rows_at_once = std::max<std::size_t>(
      kWriteBytes / ((weight_floats + state_floats) * sizeof(float) + sizeof(RowId)), 1);
  for (std::size_t first = 0; first < ids.size(); first += rows_at_once) {
    const std::size_t count = std::min(rows_at_once, ids.size() - first);
    EMBLA_RETURN_IF_ERROR(WritePiece(spec,
                                     {table, ids.subspan(first, count),
                                      weights.subspan(first * weight_floats, count * weight_floats),
                                      state.subspan(first * state_floats, count * state_floats)},
                                     options));
  }
  return absl::OkStatus();
}

absl::Status ClientImpl::WritePiece(const TableSpec& spec, const RowWrite& piece,
                                    const CallOptions& options) {
  for (std::uint32_t group = 0; group < spec.replica_groups; ++group) {
    const UpdateRoute::Options route{.groups = {.stated = group}};
    EMBLA_RETURN_IF_ERROR(RunCall(WorkFor(
                                      [&, route](const Routes& routes) {
                                        return UpdateRoute::CreateWrite(piece, routes, route,
                                                                        pool_);
                                      },
                                      options),
                                  options, update_metrics_));
  }
  return absl::OkStatus();
}

absl::Status ClientImpl::ScanTable(std::string_view table, bool with_state, const RowSink& sink) {
  EMBLA_ASSIGN_OR_RETURN(const RoutesPtr routes, RoutesWith(table));
  const TableSpec spec = routes->Find(table)->spec();
  if (spec.zch.has_value()) return ScanResidents(spec, with_state, sink);
  const std::size_t state_floats = with_state ? StateFloats(spec) : 0;
  const auto rows_max = static_cast<std::int64_t>(
      std::max<std::size_t>(kScanBytes / ((spec.dim + state_floats) * sizeof(float)), 1));
  const auto rows_most = static_cast<std::size_t>(std::min(rows_max, spec.rows));
  std::vector<std::int64_t> ids(rows_most);
  std::vector<float> weights(rows_most * spec.dim), state(rows_most * state_floats);
  for (std::int64_t begin = 0; begin < spec.rows; begin += rows_max) {
    const std::int64_t end = std::min(begin + rows_max, spec.rows);
    const auto count = static_cast<std::size_t>(end - begin);
    const std::span<float> weights_here = std::span(weights).first(count * spec.dim);
    const std::span<float> state_here = std::span(state).first(count * state_floats);
    EMBLA_RETURN_IF_ERROR(ReadWithRetries(
        spec.name,
        [&](const RowReader& reader, const TableRoute& route, absl::Time deadline) -> absl::Status {
          EMBLA_RETURN_IF_ERROR(CheckSameTable(route.spec(), spec));
          return reader.ReadRange(begin, end, deadline, weights_here, state_here);
        }));
    std::iota(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), begin);
    EMBLA_RETURN_IF_ERROR(sink({begin, std::span(ids).first(count), weights_here, state_here}));
  }
  return absl::OkStatus();
}

// Bucket by bucket: a bucket's rows are those of its ids, whatever else changes meanwhile.
absl::Status ClientImpl::ScanResidents(const TableSpec& spec, bool with_state,
                                       const RowSink& sink) {
  const std::int64_t bucket_rows = spec.rows / spec.zch->buckets;
  const std::size_t row_floats = spec.dim + (with_state ? StateFloats(spec) : 0);
  const auto row_bytes = static_cast<std::int64_t>(row_floats * sizeof(float));
  const auto buckets_at_once =
      std::max<std::int64_t>(static_cast<std::int64_t>(kScanBytes) / (bucket_rows * row_bytes), 1);
  const std::int64_t step = buckets_at_once * bucket_rows;
  std::int64_t first_row = 0;
  for (std::int64_t begin = 0; begin < spec.rows; begin += step) {
    RowReader::Residents residents;
    EMBLA_RETURN_IF_ERROR(ReadWithRetries(
        spec.name,
        [&](const RowReader& reader, const TableRoute& route, absl::Time deadline) -> absl::Status {
          EMBLA_RETURN_IF_ERROR(CheckSameTable(route.spec(), spec));
          return reader.ReadResidents(begin, std::min(begin + step, spec.rows), with_state,
                                      deadline, residents);
        }));
    EMBLA_RETURN_IF_ERROR(sink({first_row, residents.ids, residents.weights, residents.state}));
    first_row += static_cast<std::int64_t>(residents.ids.size());
  }
  return absl::OkStatus();
}

absl::Status ClientImpl::ExportTable(std::string_view table, const std::string& npy_path) {
  EMBLA_ASSIGN_OR_RETURN(const RoutesPtr routes, RoutesWith(table));
  const TableSpec spec = routes->Find(table)->spec();
  if (spec.zch.has_value()) return ExportResidents(spec, npy_path);
  EMBLA_ASSIGN_OR_RETURN(NpyFile file, NpyFile::Create(npy_path, spec.rows, spec.dim));
  EMBLA_RETURN_IF_ERROR(ScanTable(table, /*with_state=*/false, [&](const TableRows& rows) {
    return file.Append(rows.weights);
  }));
  return file.Finish();
}

absl::Status ClientImpl::ExportResidents(const TableSpec& spec, const std::string& npy_path) {
  EMBLA_ASSIGN_OR_RETURN(NpyFile weights, NpyFile::CreateGrowing(npy_path, spec.dim));
  EMBLA_ASSIGN_OR_RETURN(NpyFile ids, NpyFile::CreateGrowingList(npy_path + ".ids.npy"));
  EMBLA_RETURN_IF_ERROR(
      ScanResidents(spec, /*with_state=*/false, [&](const TableRows& rows) -> absl::Status {
        EMBLA_RETURN_IF_ERROR(weights.Append(rows.weights));
        return ids.Append(rows.ids);
      }));
  EMBLA_RETURN_IF_ERROR(ids.Finish());
  return weights.Finish();
}

absl::StatusOr<std::vector<TableSyncReport>> ClientImpl::Sync(
    const std::vector<std::string>& tables, const CallOptions& options) {
  for (const std::string& table : tables) EMBLA_RETURN_IF_ERROR(RoutesWith(table).status());
  GroupSync sync(nodes_);
  EMBLA_RETURN_IF_ERROR(sync.Select(plans_.routes()->plan(), tables));
  const absl::Time deadline = DeadlineOf(options);
  while (true) {
    const RoutesPtr routes = plans_.routes();
    const absl::Status status = sync.AskNodes(routes->plan(), deadline);
    if (status.ok()) return sync.Report();
    if (!WorthRepeating(status) || timer_->Now() + kReadBackoff >= deadline) return status;
    absl::SleepFor(kReadBackoff);
    // An error here shows in the next attempt.
    (void)plans_.Refresh(deadline);
  }
}

absl::StatusOr<IdExplanation> ClientImpl::ExplainId(std::string_view table, std::int64_t id) {
  IdExplanation explanation;
  EMBLA_RETURN_IF_ERROR(ReadWithRetries(
      table, [&](const RowReader&, const TableRoute& route, absl::Time deadline) -> absl::Status {
        const TableSpec& spec = route.spec();
        if (!spec.zch.has_value()) {
          return absl::InvalidArgumentError(
              absl::StrCat("table ", spec.name, " is no zch table: its ids are its rows"));
        }
        const RouteBlock& block = route.primary().front();
        const NodeId owner = block.nodes()[block.OwnerOf(id)];
        const std::shared_ptr<NodeChannel> channel = nodes_.Find(owner);
        if (channel == nullptr) return absl::UnavailableError("the node is in no plan any more");
        EMBLA_ASSIGN_OR_RETURN(explanation, channel->ExplainId(spec.id, id, deadline));
        const NodeSpec* const node = plans_.routes()->plan().FindNode(owner);
        if (node != nullptr) explanation.node = node->name;
        return absl::OkStatus();
      }));
  return explanation;
}

absl::StatusOr<TableSurvey> ClientImpl::SurveyTable(std::string_view table) {
  TableSurvey survey;
  EMBLA_RETURN_IF_ERROR(ReadWithRetries(
      table, [&](const RowReader&, const TableRoute& route, absl::Time deadline) -> absl::Status {
        EMBLA_RETURN_IF_ERROR(CheckZch(route.spec()));
        const RoutesPtr routes = plans_.routes();
        const TablePlan* const plan = routes->plan().FindTable(route.spec().id);
        if (plan == nullptr) return absl::UnavailableError("the plan has changed");
        // Ages need the latest step of all nodes.
        EMBLA_ASSIGN_OR_RETURN(survey, SurveyNodes(*plan, nodes_, 0, deadline));
        EMBLA_ASSIGN_OR_RETURN(survey, SurveyNodes(*plan, nodes_, survey.latest_step, deadline));
        return absl::OkStatus();
      }));
  return survey;
}

absl::StatusOr<SweepReport> ClientImpl::SweepTable(std::string_view table,
                                                   const SweepOptions& options) {
  std::uint64_t at_step = options.at_step.value_or(0);
  if (!options.at_step.has_value()) {
    EMBLA_ASSIGN_OR_RETURN(const TableSurvey survey, SurveyTable(table));
    at_step = survey.latest_step;
  }
  std::optional<TableSweep> sweep;
  EMBLA_RETURN_IF_ERROR(ReadWithRetries(
      table, [&](const RowReader&, const TableRoute& route, absl::Time deadline) -> absl::Status {
        EMBLA_RETURN_IF_ERROR(CheckZch(route.spec()));
        if (!sweep.has_value()) sweep.emplace(route.spec(), options, at_step);
        const RoutesPtr routes = plans_.routes();
        const TablePlan* const plan = routes->plan().FindTable(route.spec().id);
        if (plan == nullptr) return absl::UnavailableError("the plan has changed");
        return sweep->AskNodes(*plan, nodes_, deadline);
      }));
  return sweep->report();
}

absl::Status ClientImpl::ReadEvictions(std::string_view table, bool follow,
                                       const EvictionSink& sink) {
  EMBLA_ASSIGN_OR_RETURN(const RoutesPtr routes, RoutesWith(table));
  const TableSpec& spec = routes->Find(table)->spec();
  EMBLA_RETURN_IF_ERROR(CheckZch(spec));
  if (spec.zch->eviction_buffer_bytes == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "table ", spec.name, " keeps no evicted rows: it was made with eviction_buffer_bytes 0"));
  }
  EvictionReader reader(spec, plans_, nodes_, sink);
  return follow ? reader.Follow() : reader.ReadKept(DeadlineOf({}));
}

std::vector<TableInfo> ClientImpl::Tables() {
  const RoutesPtr routes = plans_.routes();
  std::vector<TableInfo> tables;
  for (const TablePlan& table : routes->plan().tables()) {
    if (table.aside) continue;
    tables.push_back({.name = table.spec.name,
                      .rows = table.spec.rows,
                      .dim = table.spec.dim,
                      .dtype = std::string(NameOf(table.spec.dtype)),
                      .sharding = std::string(NameOf(table.sharding)),
                      .optimizer = std::string(NameOf(table.spec.optimizer.kind)),
                      .replica_groups = table.spec.replica_groups,
                      .replica_group = groups_.Of(table.spec).value_or(0),
                      .zch = table.spec.zch.has_value(),
                      .sync = table.spec.sync.has_value()});
  }
  return tables;
}

absl::Status ClientImpl::RefreshPlan() { return plans_.Refresh(DeadlineOf({})); }

std::uint64_t ClientImpl::plan_version() const { return ToInt(plans_.routes()->plan().version()); }

}  // namespace embla::client
