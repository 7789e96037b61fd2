#include "tools/embla/job_cmd.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"
#include "core/planner/io/fields.h"
#include "tools/embla/plan_view.h"
#include "tools/embla/text_table.h"

namespace embla::cli {
namespace {

// What a source sends when nothing limits it, for estimates only.
constexpr std::int64_t kUnlimitedGuess = std::int64_t{1} << 30;
constexpr std::size_t kProgressWidth = 24;

std::string NameOf(client::JobState state) {
  switch (state) {
    case client::JobState::kRunning:
      return "running";
    case client::JobState::kPaused:
      return "paused";
    case client::JobState::kCancelling:
      return "cancelling";
    case client::JobState::kDone:
      return "done";
    case client::JobState::kCancelled:
      return "cancelled";
    case client::JobState::kFailed:
      return "failed";
    case client::JobState::kQueued:
      return "queued";
  }
  return "unknown";
}

// A copy that is removed goes nowhere.
std::string Place(const std::string& node, std::uint32_t device) {
  return node == "-" ? node : absl::StrCat(node, ":", device);
}

Json View(const client::Job& job) {
  Json moves = Json::array();
  for (const client::PlannedMove& move : job.moves) {
    moves.push_back({{"table", move.table},
                     {"row_begin", move.row_begin},
                     {"row_end", move.row_end},
                     {"column_begin", move.column_begin},
                     {"column_end", move.column_end},
                     {"from", Place(move.from_node, move.from_device)},
                     {"to", Place(move.to_node, move.to_device)},
                     {"bytes", move.bytes}});
  }
  Json rooms = Json::array();
  for (const client::DeviceRoom& room : job.rooms) {
    rooms.push_back({{"device", Place(room.node, room.device)},
                     {"memory_bytes", room.memory_bytes},
                     {"used_bytes", room.used_bytes},
                     {"peak_bytes", room.peak_bytes}});
  }
  return {{"id", job.id},
          {"description", job.description},
          {"state", NameOf(job.state)},
          {"error", job.error},
          {"units_total", job.units_total},
          {"units_moved", job.units_moved},
          {"units_open", job.units_open},
          {"units_frozen", job.units_frozen},
          {"bytes_total", job.bytes_total},
          {"bytes_moved", job.bytes_moved},
          {"started", TimeView(job.started)},
          {"ended", TimeView(job.ended)},
          {"pause_p50_ms", job.pause_p50_ms},
          {"pause_p99_ms", job.pause_p99_ms},
          {"pause_max_ms", job.pause_max_ms},
          {"seconds_left", job.seconds_left},
          {"moves", std::move(moves)},
          {"rooms", std::move(rooms)}};
}

absl::Status WrongFlag(absl::string_view flag, const std::string& value, absl::string_view want) {
  return absl::InvalidArgumentError(absl::StrCat(flag, " is \"", value, "\", ", want));
}

absl::Status SetLimits(const JobFlags& flags, client::JobRequest* request) {
  request->units_in_flight = flags.units_in_flight;
  request->dry_run = flags.dry_run;
  if (flags.rate.empty()) return absl::OkStatus();
  const std::string amount(absl::StripSuffix(flags.rate, "/s"));
  const absl::StatusOr<std::int64_t> bytes = planner::BytesFromText(amount);
  if (!bytes.ok() || *bytes <= 0) return WrongFlag("--rate", flags.rate, "not like 1GiB/s");
  request->bytes_per_second = static_cast<std::uint64_t>(*bytes);
  return absl::OkStatus();
}

std::string Pauses(const client::Job& job) {
  return absl::StrFormat("%.1f / %.1f / %.1f ms", job.pause_p50_ms, job.pause_p99_ms,
                         job.pause_max_ms);
}

std::string Seconds(double seconds) {
  return seconds < 0 ? "?" : absl::StrFormat("%.0f s", seconds);
}

// How long the busiest source sends. What changes devices within its node is not sent.
std::string Estimate(const client::Job& job, std::uint64_t bytes_per_second) {
  std::map<std::string, std::int64_t> by_source;
  for (const client::PlannedMove& move : job.moves) {
    if (move.from_node != move.to_node) by_source[move.from_node] += move.bytes;
  }
  std::int64_t most = 0;
  for (const auto& [node, bytes] : by_source) most = std::max(most, bytes);
  const std::int64_t rate =
      bytes_per_second == 0 ? kUnlimitedGuess : static_cast<std::int64_t>(bytes_per_second);
  return absl::StrFormat("about %d s at %s/s from each node", (most + rate - 1) / rate,
                         FormatBytes(rate));
}

void ShowMoves(const client::Job& job, std::ostream& out) {
  if (job.moves.empty()) return;
  TextTable text(
      {"table", ">rows from", ">to", ">columns from", ">to", "source", "target", ">bytes"});
  for (const client::PlannedMove& move : job.moves) {
    text.Add({move.table, absl::StrCat(move.row_begin), absl::StrCat(move.row_end),
              absl::StrCat(move.column_begin), absl::StrCat(move.column_end),
              Place(move.from_node, move.from_device), Place(move.to_node, move.to_device),
              FormatBytes(move.bytes)});
  }
  out << text.Render();
}

void ShowRooms(const client::Job& job, std::ostream& out) {
  if (job.rooms.empty()) return;
  TextTable text({"device", ">memory", ">used now", ">peak"});
  for (const client::DeviceRoom& room : job.rooms) {
    text.Add({Place(room.node, room.device), FormatBytes(room.memory_bytes),
              FormatBytes(room.used_bytes), FormatBytes(room.peak_bytes)});
  }
  out << "\n" << text.Render();
}

// Sent per second since the job began; 0: unknown.
std::int64_t AverageRate(const client::Job& job) {
  if (job.started <= absl::UnixEpoch()) return 0;
  const absl::Time end = job.ended > job.started ? job.ended : absl::Now();
  const double seconds = absl::ToDoubleSeconds(end - job.started);
  return seconds <= 0 ? 0
                      : static_cast<std::int64_t>(static_cast<double>(job.bytes_moved) / seconds);
}

// "[####----] 2/4 units, 1.00 MiB sent (1.00 MiB/s), 3 frozen, pause p99 4.2 ms, 12 s left,
// running".
std::string ProgressLine(const client::Job& job) {
  const std::uint64_t total = std::max<std::uint64_t>(job.units_total, 1);
  const std::size_t full = kProgressWidth * std::min(job.units_moved, total) / total;
  std::string line = absl::StrCat(
      "[", std::string(full, '#'), std::string(kProgressWidth - full, '-'), "] ", job.units_moved,
      "/", job.units_total, " units, ", FormatBytes(static_cast<std::int64_t>(job.bytes_moved)),
      " sent (", FormatBytes(AverageRate(job)), "/s), ", job.units_frozen, " frozen, ");
  absl::StrAppendFormat(&line, "pause p99 %.1f ms, %s left, %s", job.pause_p99_ms,
                        Seconds(job.seconds_left), NameOf(job.state));
  if (!job.error.empty()) absl::StrAppend(&line, ": ", job.error);
  return line;
}

// On a terminal one line is drawn over and over. A longer one would wrap, and stay.
void ShowProgress(const std::string& line, const Output& output) {
  if (!output.terminal.redraws) {
    output.out << line << std::endl;
    return;
  }
  const auto width = static_cast<std::size_t>(std::max(output.terminal.columns - 1, 1));
  output.out << "\r" << line.substr(0, width) << "\x1b[K" << std::flush;
}

absl::Status OutcomeOf(const client::Job& job) {
  if (job.state == client::JobState::kFailed) {
    return absl::AbortedError(absl::StrCat("job ", job.id, " failed: ", job.error));
  }
  if (job.state == client::JobState::kCancelled) {
    return absl::CancelledError(absl::StrCat("job ", job.id, " was cancelled"));
  }
  return absl::OkStatus();
}

void ShowDryRun(const client::Job& job, std::uint64_t bytes_per_second, std::ostream& out) {
  if (job.units_total == 0) {
    out << job.description << ": nothing has to move\n";
    return;
  }
  out << job.description << ": " << FormatCount(static_cast<std::int64_t>(job.units_total))
      << " units, " << FormatBytes(static_cast<std::int64_t>(job.bytes_total)) << ", "
      << Estimate(job, bytes_per_second) << "\n\n";
  ShowMoves(job, out);
  ShowRooms(job, out);
}

}  // namespace

absl::StatusOr<client::JobRequest> ReshardRequest(const JobFlags& flags) {
  client::JobRequest request{.goal = client::JobRequest::Goal::kReshard, .table = flags.table};
  request.shards = flags.shards;
  EMBLA_RETURN_IF_ERROR(SetLimits(flags, &request));
  return request;
}

absl::StatusOr<client::JobRequest> MoveRequest(const JobFlags& flags) {
  client::JobRequest request{.goal = client::JobRequest::Goal::kMove, .table = flags.table};
  const std::vector<std::string> ends = absl::StrSplit(flags.granules, '-');
  std::uint32_t last = 0;
  if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &request.granule_begin) ||
      !absl::SimpleAtoi(ends.back(), &last) || last < request.granule_begin || last == UINT32_MAX) {
    return WrongFlag("--granules", flags.granules, "not like 7 or 3-9");
  }
  request.granule_end = last + 1;
  const std::vector<std::string> place = absl::StrSplit(flags.to, ':');
  request.node = place.front();
  if (place.size() > 2 || request.node.empty() ||
      (place.size() == 2 && !absl::SimpleAtoi(place.back(), &request.device))) {
    return WrongFlag("--to", flags.to, "not like node or node:device");
  }
  EMBLA_RETURN_IF_ERROR(SetLimits(flags, &request));
  return request;
}

absl::StatusOr<client::JobRequest> NodeRequest(client::JobRequest::Goal goal,
                                               const JobFlags& flags) {
  client::JobRequest request{.goal = goal, .table = "", .node = flags.node};
  EMBLA_RETURN_IF_ERROR(SetLimits(flags, &request));
  return request;
}

absl::Status JobStartVerb(client::Admin& admin, const client::JobRequest& request, bool wait,
                          const Pause& pause, const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const client::Job job, admin.StartJob(request));
  if (wait && !request.dry_run && job.id != 0) {
    if (!output.json) output.out << "job " << job.id << ": " << job.description << "\n";
    return JobWatchVerb(admin, job.id, pause, output);
  }
  if (output.json) {
    output.PutJson(View(job));
  } else if (request.dry_run) {
    ShowDryRun(job, request.bytes_per_second, output.out);
  } else if (job.id == 0) {
    output.out << job.description << ": " << NameOf(job.state) << "\n";
  } else {
    output.out << "job " << job.id << ": " << job.description << ", "
               << (job.state == client::JobState::kQueued ? std::string("queued")
                                                          : absl::StrCat(job.units_total, " units"))
               << "; embla job watch " << job.id << "\n";
  }
  return absl::OkStatus();
}

absl::Status JobListVerb(client::Admin& admin, const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const std::vector<client::Job> jobs, admin.ListJobs());
  if (output.json) {
    Json list = Json::array();
    for (const client::Job& job : jobs) list.push_back(View(job));
    output.PutJson(list);
    return absl::OkStatus();
  }
  TextTable text({">job", "what", "state", ">units", ">sent", "pause p50 / p99 / max", "note"});
  for (const client::Job& job : jobs) {
    text.Add({absl::StrCat(job.id), job.description, NameOf(job.state),
              absl::StrCat(job.units_moved, "/", job.units_total),
              FormatBytes(static_cast<std::int64_t>(job.bytes_moved)), Pauses(job), job.error});
  }
  output.out << text.Render();
  return absl::OkStatus();
}

absl::Status JobShowVerb(client::Admin& admin, std::uint64_t id, const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const client::Job job, admin.GetJob(id));
  if (output.json) {
    output.PutJson(View(job));
    return absl::OkStatus();
  }
  output.out << "job " << job.id << ": " << job.description << "\n"
             << ProgressLine(job) << "\npauses " << Pauses(job) << " (p50 / p99 / max)\n\n";
  ShowMoves(job, output.out);
  return absl::OkStatus();
}

absl::Status JobWatchVerb(client::Admin& admin, std::uint64_t id, const Pause& pause,
                          const Output& output) {
  std::string shown;
  while (true) {
    EMBLA_ASSIGN_OR_RETURN(const client::Job job, admin.GetJob(id));
    const std::string line = ProgressLine(job);
    if (!output.json && line != shown) ShowProgress(line, output);
    shown = line;
    if (client::IsOver(job.state)) {
      if (!output.json && output.terminal.redraws) output.out << "\n";
      if (output.json) output.PutJson(View(job));
      return OutcomeOf(job);
    }
    pause();
  }
}

absl::Status JobControlVerb(client::Admin& admin, std::uint64_t id, client::JobControl control,
                            const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const client::Job job, admin.ControlJob(id, control));
  if (output.json) {
    output.PutJson(View(job));
  } else {
    output.out << "job " << job.id << " is " << NameOf(job.state) << "\n";
  }
  return absl::OkStatus();
}

}  // namespace embla::cli
