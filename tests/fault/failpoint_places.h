// Every failpoint of the programs of a cluster (core/base/failpoint.h), and how tests meet it.
//
// Chaos draws some of them at random. The walk (chaos --walk) arms a process with each of them, one
// after the other, and fails if the process does not die there. failpoint_places_test compares this
// table with the sources, so that a new point cannot be forgotten.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace embla::fault {

enum class Program : std::uint8_t { kCoordinator, kShard };

// Drivers lead a process to a point.
enum class Driver : std::uint8_t {
  kServing,     // Trainers, jobs that move units, and snapshots, once it serves.
  kStarting,    // Its start, with recovery.
  kLarge,       // The same as kServing, and large replies and records.
  kCancelling,  // The same as kServing, and every job is cancelled when it has begun.
  kForgetting,  // A node that is lost with its disk, and forgotten.
  kNothing,     // Not met by the walk: `reason` says why.
};

struct FailpointPlace {
  Program program = Program::kShard;
  const char* name = "";
  // A drawn fault arms the point for one of its first so many passes. 0: it is not drawn.
  int hits_max = 0;
  Driver driver = Driver::kServing;
  int walked_hit = 1;  // The walk arms it for this pass: earlier ones may come before it serves.
  bool needs_sockets = false;  // Only a process with data sockets comes by.
  const char* reason = "";
};

std::span<const FailpointPlace> FailpointPlaces();

// The names of all failpoints in the sources below `root`, a tree with the folders core and server.
// Errors: InvalidArgument names a call whose name cannot be read, NotFound a folder.
absl::StatusOr<std::set<std::string>> FailpointsInSources(const std::string& root);

}  // namespace embla::fault
