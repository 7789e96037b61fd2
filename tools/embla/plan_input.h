// Files and flags of `embla plan solve` as a planning problem. Formats: docs/planner_input.md.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/planner/problem/problem.h"

namespace embla::cli {

// Values from the command line; empty or negative keeps those of the files.
struct PlanInputFlags {
  std::string tables;         // CSV, JSON or YAML file; may hold a whole problem.
  std::string topology;       // "2x8", or a JSON or YAML file.
  std::string device_memory;  // "80GiB": of every device of "2x8".
  std::string constraints;    // JSON or YAML file.
  std::string calibration;    // JSON or YAML file.
  double batch = -1;          // Samples per device and step.
  double reserve = -1;        // Fraction of device memory kept free.
  std::string cost;           // torchrec, embla.
  std::string replicas;       // A number, or auto.
};

// Errors: NotFound for a file that cannot be read, InvalidArgument names file and field.
// `machines`, if not null, are used instead of --topology, which then must be empty.
absl::StatusOr<planner::Problem> ProblemFromFlags(const PlanInputFlags& flags,
                                                  const planner::Topology* machines = nullptr);

// The text of a file. NotFound names it.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

}  // namespace embla::cli
