#include "tests/fault/failpoint_walk.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "client/include/embla/client.h"
#include "core/base/status_macros.h"

namespace embla::fault {
namespace {

constexpr int kCoordinatorPlacesPerPhase = 2;
constexpr absl::Duration kReachTimeout = absl::Minutes(2);
constexpr absl::Duration kCancelEvery = absl::Milliseconds(200);
constexpr absl::Duration kJobTimeout = absl::Minutes(2);
constexpr absl::Duration kWellTimeout = absl::Minutes(1);

constexpr std::uint32_t kGranules = 48;
constexpr float kInitial = 5.0f;

// A table of a phase of the walk, whose weights are all the same.
struct PhaseTable {
  const char* name;
  std::int64_t rows;
  std::uint32_t dim;
};
constexpr PhaseTable kUntrained{"untrained", 4800, 8};
// An update of all rows is a record of a MiB and more on each of up to four nodes.
constexpr PhaseTable kLargeTable{"large", 16'384, 64};

Fault DeathAt(const FailpointPlace& place, int victim) {
  return {.kind = FaultKind::kKill,
          .gap = absl::ZeroDuration(),
          .length = absl::ZeroDuration(),
          .victim = victim,
          .failpoint = ArmedAt(place),
          .place = &place};
}

absl::Status AwaitEnd(ChaosCluster& cluster, client::Admin& admin, std::uint64_t id) {
  absl::StatusOr<v1::Job> job = absl::UnavailableError("");
  const bool is_over = cluster.Await(
      [&] {
        job = client::CallForJob(admin, client::GetJobRequest(id));
        return job.ok() && client::IsOver(job->state());
      },
      kJobTimeout);
  if (!is_over) return absl::DeadlineExceededError(absl::StrCat("job ", id, " does not end"));
  if (job->state() == v1::JOB_STATE_DONE) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("job ", job->description(), ": ", job->error()));
}

// Cancels the jobs that run, where the coordinator is there to be told.
void CancelJobs(const ChaosCluster& cluster) {
  const auto admin = cluster.ConnectAdmin();
  if (!admin.ok()) return;
  const auto jobs = (*admin)->Call<v1::ListJobsReply>(v1::ListJobsRequest());
  if (!jobs.ok()) return;
  for (const v1::Job& job : jobs->jobs()) {
    if (client::IsOver(job.state())) continue;
    static_cast<void>(client::CallForJob(
        **admin, client::ControlJobRequest(job.id(), v1::ControlJobRequest::ACTION_CANCEL)));
  }
}

absl::Status RunJob(ChaosCluster& cluster, client::Admin& admin,
                    const v1::StartJobRequest& request) {
  EMBLA_ASSIGN_OR_RETURN(const v1::Job job, client::CallForJob(admin, request));
  return job.id() == 0 ? absl::OkStatus() : AwaitEnd(cluster, admin, job.id());
}

absl::Status Create(client::Admin& admin, const PhaseTable& table) {
  const std::string spec = absl::StrCat(
      R"({"name": ")", table.name, R"(", "rows": )", table.rows, R"(, "dim": )", table.dim,
      R"(, "row_granules": )", kGranules, R"(, "init": {"kind": "constant", "a": )", kInitial,
      R"(}, "optimizer": {"kind": "sgd", "learning_rate": 1.0}})");
  return admin.Call<v1::TableReply>(client::CreateTableRequest(spec, R"({"sharding": "row_wise"})"))
      .status();
}

absl::Status Drop(client::Admin& admin, const PhaseTable& table) {
  return admin.Call<v1::DropTableReply>(client::DropTableRequest(table.name)).status();
}

// Creates or drops a table, also where the coordinator dies meanwhile.
absl::Status AskUntilDone(ChaosCluster& cluster,
                          absl::Status (*ask)(client::Admin&, const PhaseTable&),
                          const PhaseTable& table) {
  absl::Status status;
  cluster.Await(
      [&] {
        const absl::StatusOr<std::unique_ptr<client::Admin>> admin = cluster.ConnectAdmin();
        status = admin.ok() ? ask(**admin, table) : admin.status();
        if (absl::IsAlreadyExists(status) || absl::IsNotFound(status)) status = absl::OkStatus();
        return status.ok();
      },
      kWellTimeout);
  return status;
}

std::vector<std::int64_t> IdsOf(const PhaseTable& table) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(table.rows));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

absl::StatusOr<std::unique_ptr<client::Client>> Connect(const ChaosCluster& cluster) {
  return client::Client::Connect(
      {.coordinator = cluster.coordinator_address(), .timeout = kWellTimeout});
}

// Errors: DataLoss: weights are not `expected`.
absl::Status CheckWeights(const ChaosCluster& cluster, const PhaseTable& table, float expected) {
  EMBLA_ASSIGN_OR_RETURN(const std::unique_ptr<client::Client> client, Connect(cluster));
  const std::vector<std::int64_t> ids = IdsOf(table);
  std::vector<float> rows(ids.size() * table.dim);
  const client::FeatureLookup lookup{.table = table.name, .ids = ids, .rows_out = rows};
  EMBLA_RETURN_IF_ERROR(client->Lookup({&lookup, 1}, {.timeout = kWellTimeout}));
  const auto others = std::ranges::count_if(rows, [&](float value) { return value != expected; });
  if (others == 0) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(others, " weights of table ", table.name, " are not ", expected));
}

// Leaves `node` with the rows of the untrained table, all of them, and with no other rows that
// only it has.
absl::Status LeaveUntrainedOnly(ChaosCluster& cluster, client::Admin& admin,
                                const std::string& node) {
  EMBLA_RETURN_IF_ERROR(Create(admin, kUntrained));
  EMBLA_RETURN_IF_ERROR(RunJob(cluster, admin, client::DrainRequest(node)));
  EMBLA_RETURN_IF_ERROR(RunJob(cluster, admin, client::UndrainRequest(node)));
  return RunJob(cluster, admin,
                client::MoveRequest(kUntrained.name, 0, kGranules, node, /*device=*/0));
}

// The id of the job that forgets the node, once the node is known to be dead.
absl::StatusOr<std::uint64_t> BeginForgetting(ChaosCluster& cluster, client::Admin& admin,
                                              const std::string& node) {
  v1::ForgetNodeRequest request;
  request.set_node(node);
  request.set_lose_rows(true);
  absl::StatusOr<v1::ForgetNodeReply> forgotten = absl::UnavailableError("");
  cluster.Await(
      [&] {
        forgotten = admin.Call<v1::ForgetNodeReply>(request);
        return forgotten.ok();
      },
      kWellTimeout);
  if (!forgotten.ok()) return forgotten.status();
  return forgotten->job().id();
}

// Whether the first of `victims` to die at its failpoint had served; none: no one dies in time.
std::optional<bool> AwaitFirstDeath(ChaosCluster& cluster, std::span<const int> victims,
                                    absl::Duration timeout) {
  std::optional<bool> had_served;
  cluster.Await(
      [&] {
        for (std::size_t i = 0; i < victims.size() && !had_served.has_value(); ++i) {
          had_served = cluster.AwaitFailpoint(victims[i], absl::ZeroDuration());
        }
        return had_served.has_value();
      },
      timeout);
  return had_served;
}

std::string NamesOf(const ChaosCluster& cluster, std::span<const int> victims) {
  return absl::StrJoin(victims, ", ", [&](std::string* out, int victim) {
    absl::StrAppend(out, cluster.NameOf(victim));
  });
}

// Points of files are on the way of a start, too. At others a process serves, also where its ports
// are not written down yet.
bool IsOfServing(const FailpointPlace& place) {
  const std::string_view name = place.name;
  return place.driver != Driver::kStarting &&
         (name.starts_with("file.") || name.starts_with("log."));
}

}  // namespace

std::string ArmedAt(const FailpointPlace& place) {
  return absl::StrCat(place.name, "=crash@", place.walked_hit);
}

FailpointWalk::FailpointWalk(std::span<const FailpointPlace* const> places, int shards)
    : shards_(shards) {
  for (const FailpointPlace* const place : places) {
    if (place->driver == Driver::kNothing) continue;
    if (place->driver == Driver::kForgetting) {
      forgetting_.push_back(place);
    } else {
      (place->program == Program::kCoordinator ? coordinator_ : shard_).push_back(place);
    }
  }
}

std::vector<std::vector<Fault>> FailpointWalk::NextPhase() {
  std::vector<std::vector<Fault>> lanes(1);
  for (int i = 0; i < kCoordinatorPlacesPerPhase && !coordinator_.empty(); ++i) {
    lanes.front().push_back(DeathAt(*coordinator_.front(), kCoordinator));
    coordinator_.pop_front();
  }
  bool has_large = false;
  for (int shard = 0; shard < shards_; ++shard) {
    const auto fits = [&](const FailpointPlace* place) {
      // Two loads of large records would count each other's updates.
      if (place->driver == Driver::kLarge && has_large) return false;
      return !place->needs_sockets || ChaosCluster::HasDataSockets(shard);
    };
    const auto next = std::ranges::find_if(shard_, fits);
    if (next == shard_.end()) continue;
    has_large = has_large || (*next)->driver == Driver::kLarge;
    lanes.push_back({DeathAt(**next, shard)});
    shard_.erase(next);
  }
  return lanes;
}

LargeLoad::LargeLoad(ChaosCluster& cluster) : cluster_(cluster), thread_([this] { Run(); }) {}

void LargeLoad::Run() { status_ = Train(); }

absl::Status LargeLoad::Train() {
  EMBLA_RETURN_IF_ERROR(AskUntilDone(cluster_, Create, kLargeTable));
  EMBLA_ASSIGN_OR_RETURN(const std::unique_ptr<client::Client> client, Connect(cluster_));
  const std::vector<std::int64_t> ids = IdsOf(kLargeTable);
  const std::vector<float> gradients(ids.size() * kLargeTable.dim, -1.0f);
  const client::FeatureGradient feature{
      .table = kLargeTable.name, .ids = ids, .gradients = gradients};
  std::vector<float> rows(gradients.size());
  const client::FeatureLookup lookup{.table = kLargeTable.name, .ids = ids, .rows_out = rows};
  for (; !stops_; ++updates_) {
    EMBLA_RETURN_IF_ERROR(client->Lookup({&lookup, 1}, {.timeout = kWellTimeout}));
    EMBLA_RETURN_IF_ERROR(client->Update({&feature, 1}, {.timeout = kWellTimeout}));
  }
  return absl::OkStatus();
}

void LargeLoad::Stop() {
  stops_ = true;
  if (thread_.joinable()) thread_.join();
}

absl::Status LargeLoad::Finish() {
  Stop();
  EMBLA_RETURN_IF_ERROR(status_);
  EMBLA_RETURN_IF_ERROR(
      CheckWeights(cluster_, kLargeTable, kInitial + static_cast<float>(updates_)));
  return AskUntilDone(cluster_, Drop, kLargeTable);
}

absl::Status AwaitDeathAt(const FailpointPlace& place, ChaosCluster& cluster,
                          std::span<const int> victims) {
  std::optional<LargeLoad> load;
  if (place.driver == Driver::kLarge) load.emplace(cluster);
  std::optional<bool> had_served;
  if (place.driver == Driver::kCancelling) {
    cluster.Await(
        [&] {
          CancelJobs(cluster);
          had_served = AwaitFirstDeath(cluster, victims, kCancelEvery);
          return had_served.has_value();
        },
        kReachTimeout);
  } else {
    had_served = AwaitFirstDeath(cluster, victims, kReachTimeout);
  }
  absl::Status status;
  if (!had_served.has_value()) {
    status = absl::DeadlineExceededError(
        absl::StrCat(NamesOf(cluster, victims), " does not die at ", ArmedAt(place), " within ",
                     absl::FormatDuration(kReachTimeout)));
    for (const int victim : victims) cluster.Kill(victim, absl::ZeroDuration(), "");
  } else if (IsOfServing(place) && !*had_served) {
    status = absl::FailedPreconditionError(
        absl::StrCat(NamesOf(cluster, victims), " dies at ", ArmedAt(place), " before it serves"));
  }
  for (const int victim : victims) cluster.AwaitRunning(victim);
  if (load.has_value()) status.Update(load->Finish());
  return status;
}

absl::Status ForgetLostNode(const FailpointPlace& place, ChaosCluster& cluster) {
  const int lost = cluster.shards() - 1;
  // The coordinator says which of the other nodes get the rows.
  std::vector<int> victims{kCoordinator};
  if (place.program == Program::kShard) {
    victims.resize(static_cast<std::size_t>(lost));
    std::iota(victims.begin(), victims.end(), 0);
  }
  EMBLA_RETURN_IF_ERROR(cluster.AwaitWell(kWellTimeout));
  EMBLA_ASSIGN_OR_RETURN(const std::unique_ptr<client::Admin> admin, cluster.ConnectAdmin());
  EMBLA_RETURN_IF_ERROR(LeaveUntrainedOnly(cluster, *admin, cluster.NameOf(lost)));
  for (const int victim : victims) {
    cluster.Kill(victim, absl::ZeroDuration(), ArmedAt(place));
    cluster.AwaitRunning(victim);
  }
  EMBLA_RETURN_IF_ERROR(cluster.AwaitWell(kWellTimeout));
  cluster.Lose(lost);
  EMBLA_ASSIGN_OR_RETURN(const std::uint64_t job,
                         BeginForgetting(cluster, *admin, cluster.NameOf(lost)));
  EMBLA_RETURN_IF_ERROR(AwaitDeathAt(place, cluster, victims));
  EMBLA_RETURN_IF_ERROR(AwaitEnd(cluster, *admin, job));
  // A new machine.
  cluster.Kill(lost, absl::ZeroDuration(), "");
  EMBLA_RETURN_IF_ERROR(cluster.AwaitWell(kWellTimeout));
  EMBLA_RETURN_IF_ERROR(CheckWeights(cluster, kUntrained, kInitial));
  return Drop(*admin, kUntrained);
}

}  // namespace embla::fault
