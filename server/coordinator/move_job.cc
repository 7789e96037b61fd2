#include "server/coordinator/move_job.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/json_fields.h"

namespace embla {
namespace {

constexpr std::string_view kJobsPrefix = "jobs/";
constexpr std::array<std::string_view, 7> kStates = {"running",   "paused", "cancelling", "done",
                                                     "cancelled", "failed", "queued"};
constexpr std::size_t kRunNumbers = 9;

std::string_view NameOf(JobState state) { return kStates[static_cast<std::size_t>(state) - 1]; }

absl::StatusOr<JobState> StateFromName(std::string_view name) {
  const auto found = std::ranges::find(kStates, name);
  if (found == kStates.end()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", ToAbsl(name), "\" is no state of a job"));
  }
  return static_cast<JobState>(found - kStates.begin() + 1);
}

Json RunToJson(const MoveRun& run) {
  return Json::array({ToInt(run.table), run.column_granule, run.granule_begin, run.granule_end,
                      ToInt(run.from.node), run.from.index, ToInt(run.to.node), run.to.index,
                      run.bytes});
}

absl::StatusOr<MoveRun> RunFromJson(const Json& json) {
  if (!json.is_array() || json.size() != kRunNumbers) {
    return absl::InvalidArgumentError("a run of a job is not an array of 9 numbers");
  }
  std::array<std::uint32_t, kRunNumbers - 1> numbers{};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (!json[i].is_number_unsigned() || json[i].get<std::uint64_t>() > UINT32_MAX) {
      return absl::InvalidArgumentError(
          absl::StrCat("number ", i, " of a run of a job is not one below 2^32"));
    }
    numbers[i] = json[i].get<std::uint32_t>();
  }
  if (!json.back().is_number_integer()) {
    return absl::InvalidArgumentError("the bytes of a run of a job are not a number");
  }
  return MoveRun{.table = TableId{numbers[0]},
                 .column_granule = numbers[1],
                 .granule_begin = numbers[2],
                 .granule_end = numbers[3],
                 .from = {NodeId{numbers[4]}, numbers[5]},
                 .to = {NodeId{numbers[6]}, numbers[7]},
                 .bytes = json.back().get<std::int64_t>()};
}

Json CopyToJson(const CopyChange& change) {
  return Json::array({static_cast<std::uint32_t>(change.kind), ToInt(change.table),
                      ToInt(change.device.node), change.device.index, change.bytes});
}

absl::StatusOr<CopyChange> CopyFromJson(const Json& json) {
  const bool is_array =
      json.is_array() && json.size() == 5 && std::ranges::all_of(json, [](const Json& number) {
        return number.is_number_unsigned() || number.is_number_integer();
      });
  if (!is_array) {
    return absl::InvalidArgumentError("a change of a copy is not an array of 5 numbers");
  }
  const auto kind = json[0].get<std::int64_t>();
  if (kind < 1 || kind > 5) {
    return absl::InvalidArgumentError(absl::StrCat(kind, " is no kind of a change of a copy"));
  }
  return CopyChange{.kind = static_cast<CopyChange::Kind>(kind),
                    .table = TableId{json[1].get<std::uint32_t>()},
                    .device = {NodeId{json[2].get<std::uint32_t>()}, json[3].get<std::uint32_t>()},
                    .bytes = json[4].get<std::int64_t>()};
}

absl::Duration Quantile(const std::vector<absl::Duration>& sorted, double q) {
  const auto last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<std::size_t>(std::llround(q * last))];
}

}  // namespace

PauseTimes PausesOf(std::vector<absl::Duration> pauses) {
  if (pauses.empty()) return {};
  std::ranges::sort(pauses);
  const auto whole = [](absl::Duration d) { return absl::Trunc(d, absl::Microseconds(1)); };
  return {whole(Quantile(pauses, 0.5)), whole(Quantile(pauses, 0.99)), whole(pauses.back())};
}

std::string KeyOfJob(std::uint64_t id) {
  return absl::StrCat(ToAbsl(kJobsPrefix), absl::StrFormat("%010d", id));
}

std::string MoveJobToJson(const MoveJob& job) {
  Json runs = Json::array();
  for (const MoveRun& run : job.runs) runs.push_back(RunToJson(run));
  Json json = {{"id", job.id},
               {"description", job.description},
               {"state", NameOf(job.state)},
               {"error", job.error},
               {"bytes_per_second", job.bytes_per_second},
               {"units_in_flight", job.units_in_flight},
               {"started_unix_ms", absl::ToUnixMillis(job.started)},
               {"ended_unix_ms", absl::ToUnixMillis(job.ended)},
               {"runs", std::move(runs)},
               {"units_moved", job.units_moved},
               {"bytes_moved", job.bytes_moved},
               {"pause_p50_us", absl::ToInt64Microseconds(job.pauses.p50)},
               {"pause_p99_us", absl::ToInt64Microseconds(job.pauses.p99)},
               {"pause_max_us", absl::ToInt64Microseconds(job.pauses.max)}};
  for (const CopyChange& change : job.copies) json["copies"].push_back(CopyToJson(change));
  if (job.goal) json["goal"] = Json::parse(GoalToJson(*job.goal));
  return DumpJson(json);
}

absl::StatusOr<MoveJob> MoveJobFromJson(std::string_view json) {
  EMBLA_ASSIGN_OR_RETURN(const Json document, ParseJson(json));
  JsonFields fields(document, "job");
  const auto micros = [&fields](std::string_view name) {
    return absl::Microseconds(fields.Signed(name, 0, INT64_MAX));
  };
  const auto time = [&fields](std::string_view name) {
    return absl::FromUnixMillis(fields.Signed(name, 0, INT64_MAX));
  };
  MoveJob job;
  job.id = fields.Unsigned("id", 1, UINT64_MAX);
  job.description = fields.Text("description");
  EMBLA_ASSIGN_OR_RETURN(job.state, StateFromName(fields.Text("state")));
  job.error = fields.Text("error");
  job.bytes_per_second = fields.Unsigned("bytes_per_second", 0, UINT64_MAX);
  job.units_in_flight =
      static_cast<std::uint32_t>(fields.Unsigned("units_in_flight", 1, UINT32_MAX));
  job.started = time("started_unix_ms");
  job.ended = time("ended_unix_ms");
  for (const Json& run : fields.Array("runs")) {
    EMBLA_ASSIGN_OR_RETURN(job.runs.emplace_back(), RunFromJson(run));
  }
  if (fields.Has("copies")) {
    for (const Json& change : fields.Array("copies")) {
      EMBLA_ASSIGN_OR_RETURN(job.copies.emplace_back(), CopyFromJson(change));
    }
  }
  if (fields.Has("goal")) {
    EMBLA_ASSIGN_OR_RETURN(job.goal, GoalFromJson(DumpJson(fields.Object("goal"))));
  }
  job.units_moved = fields.Unsigned("units_moved", 0, UINT64_MAX);
  job.bytes_moved = fields.Unsigned("bytes_moved", 0, UINT64_MAX);
  job.pauses = {micros("pause_p50_us"), micros("pause_p99_us"), micros("pause_max_us")};
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  return job;
}

absl::StatusOr<std::vector<MoveJob>> LoadJobs(const StateStore& store) {
  EMBLA_ASSIGN_OR_RETURN(const std::vector<StateEntry> entries, store.List(kJobsPrefix));
  std::vector<MoveJob> jobs;
  for (const StateEntry& entry : entries) {
    absl::StatusOr<MoveJob> job = MoveJobFromJson(entry.value);
    if (!job.ok()) {
      return absl::DataLossError(
          absl::StrCat("state key ", entry.key, " is not readable: ", job.status().message()));
    }
    jobs.push_back(*std::move(job));
  }
  return jobs;
}

}  // namespace embla
