#include "tools/embla/job_cmd.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/planner/io/fields.h"
#include "tools/embla/plan_view.h"
#include "tools/embla/text_table.h"

namespace embla::cli {
namespace {

// A source's rate without a limit, for estimates only.
constexpr std::int64_t kUnlimitedGuess = std::int64_t{1} << 30;
constexpr std::size_t kProgressWidth = 24;
// Columns left in a line of `job ls` beside its longest figures.
constexpr std::size_t kDescriptionWidth = 42;
// How often a verb that waits asks a coordinator that is away, or has just started.
constexpr int kPatience = 120;

// A copy that is removed goes nowhere.
std::string Place(const std::string& node, std::uint32_t device) {
  return node == "-" ? node : absl::StrCat(node, ":", device);
}

Json MovesView(const v1::Job& job) {
  Json moves = Json::array();
  for (const v1::PlannedMove& move : job.moves()) {
    moves.push_back({{"table", move.table()},
                     {"row_begin", move.row_begin()},
                     {"row_end", move.row_end()},
                     {"column_begin", move.column_begin()},
                     {"column_end", move.column_end()},
                     {"from", Place(move.from_node(), move.from_device())},
                     {"to", Place(move.to_node(), move.to_device())},
                     {"bytes", move.bytes()}});
  }
  return moves;
}

Json RoomsView(const v1::Job& job) {
  Json rooms = Json::array();
  for (const v1::DeviceRoom& room : job.rooms()) {
    rooms.push_back({{"device", Place(room.node(), room.device())},
                     {"memory_bytes", room.memory_bytes()},
                     {"used_bytes", room.used_bytes()},
                     {"peak_bytes", room.peak_bytes()}});
  }
  return rooms;
}

absl::Status WrongFlag(absl::string_view flag, const std::string& value, absl::string_view want) {
  return absl::InvalidArgumentError(absl::StrCat(flag, " is \"", value, "\", ", want));
}

absl::Status SetLimits(const JobFlags& flags, v1::StartJobRequest& request) {
  request.set_units_in_flight(flags.units_in_flight);
  request.set_dry_run(flags.dry_run);
  if (flags.rate.empty()) return absl::OkStatus();
  const std::string amount(absl::StripSuffix(flags.rate, "/s"));
  const absl::StatusOr<std::int64_t> bytes = planner::BytesFromText(amount);
  if (!bytes.ok() || *bytes <= 0) return WrongFlag("--rate", flags.rate, "not like 1GiB/s");
  request.set_bytes_per_second(static_cast<std::uint64_t>(*bytes));
  return absl::OkStatus();
}

absl::StatusOr<v1::StartJobRequest> WithLimits(const JobFlags& flags, v1::StartJobRequest request) {
  EMBLA_RETURN_IF_ERROR(SetLimits(flags, request));
  return request;
}

std::string Pauses(const v1::Job& job) {
  return absl::StrFormat("%.1f / %.1f / %.1f ms", job.pause_p50_ms(), job.pause_p99_ms(),
                         job.pause_max_ms());
}

std::string Seconds(double seconds) {
  return seconds < 0 ? "?" : absl::StrFormat("%.0f s", seconds);
}

// How long the busiest source sends. Units that change devices within their node are not sent.
std::string Estimate(const v1::Job& job, std::uint64_t bytes_per_second) {
  std::map<std::string, std::int64_t> by_source;
  for (const v1::PlannedMove& move : job.moves()) {
    if (move.from_node() != move.to_node()) by_source[move.from_node()] += move.bytes();
  }
  std::int64_t most = 0;
  for (const auto& [node, bytes] : by_source) most = std::max(most, bytes);
  const std::int64_t rate =
      bytes_per_second == 0 ? kUnlimitedGuess : static_cast<std::int64_t>(bytes_per_second);
  return absl::StrFormat("about %d s at %s/s from each node", (most + rate - 1) / rate,
                         FormatBytes(rate));
}

void ShowMoves(const v1::Job& job, std::ostream& out) {
  if (job.moves().empty()) return;
  TextTable text(
      {"table", ">rows from", ">to", ">columns from", ">to", "source", "target", ">bytes"});
  for (const v1::PlannedMove& move : job.moves()) {
    text.Add({move.table(), absl::StrCat(move.row_begin()), absl::StrCat(move.row_end()),
              absl::StrCat(move.column_begin()), absl::StrCat(move.column_end()),
              Place(move.from_node(), move.from_device()), Place(move.to_node(), move.to_device()),
              FormatBytes(move.bytes())});
  }
  out << text.Render();
}

void ShowRooms(const v1::Job& job, std::ostream& out) {
  if (job.rooms().empty()) return;
  TextTable text({"device", ">memory", ">used now", ">peak"});
  for (const v1::DeviceRoom& room : job.rooms()) {
    text.Add({Place(room.node(), room.device()), FormatBytes(room.memory_bytes()),
              FormatBytes(room.used_bytes()), FormatBytes(room.peak_bytes())});
  }
  out << "\n" << text.Render();
}

// Sent per second since the job began; 0: unknown.
std::int64_t AverageRate(const v1::Job& job) {
  if (job.started_unix_ms() <= 0) return 0;
  const std::int64_t end = job.ended_unix_ms() > job.started_unix_ms()
                               ? job.ended_unix_ms()
                               : absl::ToUnixMillis(absl::Now());
  const double seconds = static_cast<double>(end - job.started_unix_ms()) / 1e3;
  return seconds <= 0 ? 0
                      : static_cast<std::int64_t>(static_cast<double>(job.bytes_moved()) / seconds);
}

// "[####----] 2/4 units, 1.00 MiB sent (1.00 MiB/s), 3 handed over, pause p99 4.2 ms, 12 s left,
// running".
std::string ProgressLine(const v1::Job& job) {
  const std::uint64_t total = std::max<std::uint64_t>(job.units_total(), 1);
  const std::size_t full = kProgressWidth * std::min(job.units_moved(), total) / total;
  std::string line = absl::StrCat(
      "[", std::string(full, '#'), std::string(kProgressWidth - full, '-'), "] ", job.units_moved(),
      "/", job.units_total(), " units, ", FormatBytes(static_cast<std::int64_t>(job.bytes_moved())),
      " sent (", FormatBytes(AverageRate(job)), "/s), ", job.units_handed_over(), " handed over, ");
  absl::StrAppendFormat(&line, "pause p99 %.1f ms, %s left, %s", job.pause_p99_ms(),
                        Seconds(job.seconds_left()), NameOf(job.state()));
  const std::string note = NoteOf(job);
  if (!note.empty()) absl::StrAppend(&line, ": ", note);
  return line;
}

// CallForJob, again after each `pause` while the coordinator is away or changes nothing yet. A job
// that the lost answer had started is found done by the next one: jobs say what is to be.
absl::StatusOr<v1::Job> CallPatiently(client::Admin& admin,
                                      const google::protobuf::Message& request, const Pause& pause,
                                      const Output& output) {
  absl::StatusOr<v1::Job> job = client::CallForJob(admin, request);
  for (int tries = 1; absl::IsUnavailable(job.status()) && tries < kPatience; ++tries) {
    if (tries == 1 && !output.json) output.ShowProgress(Message(job.status()));
    pause();
    job = client::CallForJob(admin, request);
  }
  return job;
}

absl::Status OutcomeOf(const v1::Job& job) {
  if (job.state() == v1::JOB_STATE_FAILED) {
    return absl::AbortedError(absl::StrCat("job ", job.id(), " failed: ", job.error()));
  }
  if (job.state() == v1::JOB_STATE_CANCELLED) {
    return absl::CancelledError(absl::StrCat("job ", job.id(), " was cancelled"));
  }
  return absl::OkStatus();
}

void ShowDryRun(const v1::Job& job, std::uint64_t bytes_per_second, std::ostream& out) {
  if (job.units_total() == 0) {
    out << job.description() << ": nothing has to move\n";
    return;
  }
  out << job.description() << ": " << FormatCount(static_cast<std::int64_t>(job.units_total()))
      << " units, " << FormatBytes(static_cast<std::int64_t>(job.bytes_total())) << ", "
      << Estimate(job, bytes_per_second) << "\n\n";
  ShowMoves(job, out);
  ShowRooms(job, out);
}

}  // namespace

std::string NameOf(v1::JobState state) {
  const std::string name = v1::JobState_Name(state);
  return name.empty() ? "unknown" : absl::AsciiStrToLower(absl::StripPrefix(name, "JOB_STATE_"));
}

std::string NoteOf(const v1::Job& job) {
  return job.error().empty() ? job.waits_for() : job.error();
}

Json JobView(const v1::Job& job) {
  return {{"id", job.id()},
          {"description", job.description()},
          {"state", NameOf(job.state())},
          {"error", job.error()},
          {"waits_for", job.waits_for()},
          {"awaited_node", job.awaited_node()},
          {"units_total", job.units_total()},
          {"units_moved", job.units_moved()},
          {"units_open", job.units_open()},
          {"units_handed_over", job.units_handed_over()},
          {"bytes_total", job.bytes_total()},
          {"bytes_moved", job.bytes_moved()},
          {"started", TimeView(absl::FromUnixMillis(job.started_unix_ms()))},
          {"ended", TimeView(absl::FromUnixMillis(job.ended_unix_ms()))},
          {"pause_p50_ms", job.pause_p50_ms()},
          {"pause_p99_ms", job.pause_p99_ms()},
          {"pause_max_ms", job.pause_max_ms()},
          {"seconds_left", job.seconds_left()},
          {"moves", MovesView(job)},
          {"rooms", RoomsView(job)}};
}

absl::StatusOr<v1::StartJobRequest> ReshardRequest(const JobFlags& flags) {
  return WithLimits(flags, client::ReshardRequest(flags.table, flags.shards));
}

absl::StatusOr<v1::StartJobRequest> MoveRequest(const JobFlags& flags) {
  const std::vector<std::string> ends = absl::StrSplit(flags.granules, '-');
  std::uint32_t first = 0, last = 0;
  if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) ||
      !absl::SimpleAtoi(ends.back(), &last) || last < first || last == UINT32_MAX) {
    return WrongFlag("--granules", flags.granules, "not like 7 or 3-9");
  }
  const std::vector<std::string> place = absl::StrSplit(flags.to, ':');
  std::uint32_t device = 0;
  if (place.size() > 2 || place.front().empty() ||
      (place.size() == 2 && !absl::SimpleAtoi(place.back(), &device))) {
    return WrongFlag("--to", flags.to, "not like node or node:device");
  }
  return WithLimits(flags,
                    client::MoveRequest(flags.table, first, last + 1, place.front(), device));
}

absl::StatusOr<v1::StartJobRequest> DrainRequest(const JobFlags& flags) {
  return WithLimits(flags, client::DrainRequest(flags.node));
}

absl::StatusOr<v1::StartJobRequest> UndrainRequest(const JobFlags& flags) {
  return WithLimits(flags, client::UndrainRequest(flags.node));
}

absl::StatusOr<v1::StartJobRequest> RebalanceRequest(const JobFlags& flags) {
  return WithLimits(flags, client::RebalanceRequest());
}

absl::Status JobStartVerb(client::Admin& admin, const v1::StartJobRequest& request, bool wait,
                          const Pause& pause, const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const v1::Job job, wait ? CallPatiently(admin, request, pause, output)
                                                 : client::CallForJob(admin, request));
  if (wait && !request.dry_run() && job.id() != 0) {
    if (!output.json) output.out << "job " << job.id() << ": " << job.description() << "\n";
    return JobWatchVerb(admin, job.id(), pause, output);
  }
  if (output.json) {
    output.PutJson(JobView(job));
  } else if (request.dry_run()) {
    ShowDryRun(job, request.bytes_per_second(), output.out);
  } else if (job.id() == 0) {
    output.out << job.description() << ": " << NameOf(job.state()) << "\n";
  } else {
    output.out << "job " << job.id() << ": " << job.description() << ", "
               << (job.state() == v1::JOB_STATE_QUEUED ? std::string("queued")
                                                       : absl::StrCat(job.units_total(), " units"))
               << "; embla job watch " << job.id() << "\n";
  }
  return absl::OkStatus();
}

std::vector<Verb> JobVerbs() {
  const auto id = std::make_shared<std::uint64_t>(0);
  const std::vector<Argument> number = {{"job", "number of the job", id.get()}};
  const auto control = [&](const char* name, const char* help,
                           v1::ControlJobRequest::Action action) {
    return Verb{name, help, number, [id, action](client::Admin& admin, const Output& output) {
                  return JobControlVerb(admin, *id, action, output);
                }};
  };
  return {{.name = "ls", .help = "list the jobs, the newest first", .run = JobListVerb},
          {"show", "everything about one job", number,
           [id](client::Admin& admin, const Output& output) {
             return JobShowVerb(admin, *id, output);
           }},
          control("pause", "begin no more moves", v1::ControlJobRequest::ACTION_PAUSE),
          control("resume", "go on", v1::ControlJobRequest::ACTION_RESUME),
          control("cancel", "abort open moves; what has moved stays",
                  v1::ControlJobRequest::ACTION_CANCEL)};
}

absl::Status JobListVerb(client::Admin& admin, const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const v1::ListJobsReply reply,
                         admin.Call<v1::ListJobsReply>(v1::ListJobsRequest()));
  if (output.json) {
    Json list = Json::array();
    for (const v1::Job& job : reply.jobs()) list.push_back(JobView(job));
    output.PutJson(list);
    return absl::OkStatus();
  }
  TextTable text({">job", "state", ">units", ">sent", ">pause p99", "what"});
  for (const v1::Job& job : reply.jobs()) {
    text.Add({absl::StrCat(job.id()), NameOf(job.state()),
              absl::StrCat(job.units_moved(), "/", job.units_total()),
              FormatBytes(static_cast<std::int64_t>(job.bytes_moved())),
              absl::StrFormat("%.1f ms", job.pause_p99_ms()),
              Shortened(job.description(), kDescriptionWidth)});
    const bool is_cut = job.description().size() > kDescriptionWidth;
    std::vector<std::string> notes;
    if (is_cut) notes.push_back(job.description());
    if (const std::string note = NoteOf(job); !note.empty()) notes.push_back(note);
    text.AddNote(absl::StrJoin(notes, ": "));
  }
  output.out << text.Render();
  return absl::OkStatus();
}

absl::Status JobShowVerb(client::Admin& admin, std::uint64_t id, const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const v1::Job job, client::CallForJob(admin, client::GetJobRequest(id)));
  if (output.json) {
    output.PutJson(JobView(job));
    return absl::OkStatus();
  }
  output.out << "job " << job.id() << ": " << job.description() << "\n"
             << ProgressLine(job) << "\npauses " << Pauses(job) << " (p50 / p99 / max)\n\n";
  ShowMoves(job, output.out);
  return absl::OkStatus();
}

absl::Status JobWatchVerb(client::Admin& admin, std::uint64_t id, const Pause& pause,
                          const Output& output) {
  std::string shown;
  while (true) {
    EMBLA_ASSIGN_OR_RETURN(const v1::Job job,
                           CallPatiently(admin, client::GetJobRequest(id), pause, output));
    const std::string line = ProgressLine(job);
    if (!output.json && line != shown) output.ShowProgress(line);
    shown = line;
    if (client::IsOver(job.state())) {
      if (!output.json && output.terminal.redraws) output.out << "\n";
      if (output.json) output.PutJson(JobView(job));
      return OutcomeOf(job);
    }
    pause();
  }
}

absl::Status JobControlVerb(client::Admin& admin, std::uint64_t id,
                            v1::ControlJobRequest::Action action, const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const v1::Job job,
                         client::CallForJob(admin, client::ControlJobRequest(id, action)));
  if (output.json) {
    output.PutJson(JobView(job));
  } else {
    output.out << "job " << job.id() << " is " << NameOf(job.state()) << "\n";
  }
  return absl::OkStatus();
}

}  // namespace embla::cli
