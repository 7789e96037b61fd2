#include "client/transport/job_codec.h"

namespace embla::client {
namespace {

PlannedMove FromMessage(const v1::PlannedMove& message) {
  return {.table = message.table(),
          .row_begin = message.row_begin(),
          .row_end = message.row_end(),
          .column_begin = message.column_begin(),
          .column_end = message.column_end(),
          .from_node = message.from_node(),
          .from_device = message.from_device(),
          .to_node = message.to_node(),
          .to_device = message.to_device(),
          .bytes = message.bytes()};
}

DeviceRoom FromMessage(const v1::DeviceRoom& message) {
  return {.node = message.node(),
          .device = message.device(),
          .memory_bytes = message.memory_bytes(),
          .used_bytes = message.used_bytes(),
          .peak_bytes = message.peak_bytes()};
}

JobState StateOf(v1::JobState state) {
  if (state < v1::JOB_STATE_RUNNING || state > v1::JOB_STATE_QUEUED) return JobState::kRunning;
  return static_cast<JobState>(state);
}

}  // namespace

v1::StartJobRequest ToMessage(const JobRequest& request) {
  v1::StartJobRequest message;
  switch (request.goal) {
    case JobRequest::Goal::kReshard:
      message.mutable_reshard()->set_table(request.table);
      message.mutable_reshard()->set_shards(request.shards);
      break;
    case JobRequest::Goal::kMove:
      message.mutable_move()->set_table(request.table);
      message.mutable_move()->set_granule_begin(request.granule_begin);
      message.mutable_move()->set_granule_end(request.granule_end);
      message.mutable_move()->set_node(request.node);
      message.mutable_move()->set_device(request.device);
      break;
    case JobRequest::Goal::kDrain:
      message.mutable_drain()->set_node(request.node);
      break;
    case JobRequest::Goal::kUndrain:
      message.set_undrain_node(request.node);
      break;
    case JobRequest::Goal::kRebalance:
      message.mutable_rebalance();
      break;
  }
  message.set_bytes_per_second(request.bytes_per_second);
  message.set_units_in_flight(request.units_in_flight);
  message.set_dry_run(request.dry_run);
  return message;
}

Job FromMessage(const v1::Job& message) {
  Job job;
  job.id = message.id();
  job.description = message.description();
  job.state = StateOf(message.state());
  job.error = message.error();
  job.units_total = message.units_total();
  job.units_moved = message.units_moved();
  job.units_open = message.units_open();
  job.units_frozen = message.units_frozen();
  job.bytes_total = message.bytes_total();
  job.bytes_moved = message.bytes_moved();
  job.started = absl::FromUnixMillis(message.started_unix_ms());
  job.ended = absl::FromUnixMillis(message.ended_unix_ms());
  job.pause_p50_ms = message.pause_p50_ms();
  job.pause_p99_ms = message.pause_p99_ms();
  job.pause_max_ms = message.pause_max_ms();
  job.seconds_left = message.seconds_left();
  for (const v1::PlannedMove& move : message.moves()) job.moves.push_back(FromMessage(move));
  for (const v1::DeviceRoom& room : message.rooms()) job.rooms.push_back(FromMessage(room));
  return job;
}

}  // namespace embla::client
