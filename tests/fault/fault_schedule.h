// Draws faults and their times from a seed, before the run, so that a run can be repeated.
//
// The faults of a phase are dealt to lanes, which run side by side; a lane's faults come one after
// the other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/fault/failpoint_places.h"
#include "tests/fault/fault_proxy.h"

namespace embla::fault {

enum class FaultKind : std::uint8_t {
  kKill,        // SIGKILL of a process, which is started again after `length`.
  kStop,        // SIGSTOP, SIGCONT after `length`.
  kFull,        // A shard server's disk is full for `length`; then the process is started again.
  kCut,         // A link passes nothing for `length`,
  kCutTo,       // or no requests,
  kCutFrom,     // or no replies.
  kReset,       // All connections of a link break.
  kDrop,        // A link loses requests and replies for `length`.
  kDuplicate,   // A link repeats requests.
  kDelay,       // A link delays and so reorders messages.
  kStaleClient  // Old requests are sent again, also to other nodes.
};
std::string NameOf(FaultKind kind);
// Whether the victim is a process, and not a link.
bool IsOfProcess(FaultKind kind);

enum class LinkKind : std::uint8_t {
  kData,     // Trainers and peers to a shard server.
  kNode,     // A shard server to the coordinator.
  kTrainers  // Trainers to the coordinator.
};

struct Fault {
  FaultKind kind = FaultKind::kKill;
  absl::Duration gap;     // Since the lane's fault before.
  absl::Duration length;  // See FaultKind.
  int victim = 0;         // kKill, kStop: any process. Others: a shard server.
  LinkKind link = LinkKind::kData;
  // kKill: what the process is armed with when it is back, "name=crash@3"; or empty.
  std::string failpoint = {};
  int room_bytes = 0;  // kFull: that are left on the disk.
  // The walk's kKill: the victim has to die there before the next fault. Not owned; null: it may.
  const FailpointPlace* place = nullptr;

  // The whole fault in one line, in a cluster of so many shard servers.
  std::string Text(int shards) const;
};

struct ScheduleOptions {
  int shards = 4;
  int trainers = 4;
  bool kills_shards = false;
  int lanes = 3;
  int faults = 20;  // Faults of all lanes together.
};

// By lane.
std::vector<std::vector<Fault>> DrawSchedule(std::uint64_t seed, const ScheduleOptions& options);

// Returns the link's faults under a fault of `kind`.
LinkFaults FaultsOf(FaultKind kind);

}  // namespace embla::fault
