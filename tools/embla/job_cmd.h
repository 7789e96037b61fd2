// embla reshard, move, rebalance, node drain, job ...: rows that move while they are trained.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/include/embla/admin.h"
#include "tools/embla/output.h"
#include "tools/embla/verb.h"

namespace embla::cli {

struct JobFlags {
  std::string table{};
  std::uint32_t shards = 0;
  std::string granules{};  // "7" or "3-9", both ends included.
  std::string to{};        // "node" or "node:device".
  std::string node{};
  std::string rate{};  // "1GiB/s"; empty: no limit.
  std::uint32_t units_in_flight = 0;
  bool dry_run = false;
};

std::string NameOf(v1::JobState state);  // "running" of JOB_STATE_RUNNING.
// Why it failed or does not get on; empty: it does.
std::string NoteOf(const v1::Job& job);
nlohmann::ordered_json JobView(const v1::Job& job);

// InvalidArgument names the flag.
absl::StatusOr<v1::StartJobRequest> ReshardRequest(const JobFlags& flags);
absl::StatusOr<v1::StartJobRequest> MoveRequest(const JobFlags& flags);
absl::StatusOr<v1::StartJobRequest> DrainRequest(const JobFlags& flags);
absl::StatusOr<v1::StartJobRequest> UndrainRequest(const JobFlags& flags);
absl::StatusOr<v1::StartJobRequest> RebalanceRequest(const JobFlags& flags);

// Waits between two looks at a job.
using Pause = std::function<void()>;

// Starts the job, or says what it would do. With `wait`: as JobWatchVerb.
absl::Status JobStartVerb(client::Admin& admin, const v1::StartJobRequest& request, bool wait,
                          const Pause& pause, const Output& output);
// Verbs that need no clock.
std::vector<Verb> JobVerbs();

absl::Status JobListVerb(client::Admin& admin, const Output& output);
absl::Status JobShowVerb(client::Admin& admin, std::uint64_t id, const Output& output);
// Shows how far the job is until it is over; waits a minute for a coordinator that is away.
// Aborted: it failed; Cancelled.
absl::Status JobWatchVerb(client::Admin& admin, std::uint64_t id, const Pause& pause,
                          const Output& output);
absl::Status JobControlVerb(client::Admin& admin, std::uint64_t id,
                            v1::ControlJobRequest::Action action, const Output& output);

}  // namespace embla::cli
