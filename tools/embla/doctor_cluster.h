// The half of `embla doctor` that asks the coordinator.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/include/embla/admin.h"
#include "core/plan/plan.h"
#include "tools/embla/doctor_report.h"

namespace embla::cli {

// All that the checks look at, asked for once.
struct ClusterFacts {
  v1::ClusterStatus status;
  v1::ListNodesReply nodes;
  v1::ListJobsReply jobs;
  Plan plan;
  // This machine's time when the coordinator was asked for its own, and when its answer was there.
  absl::Time asked;
  absl::Time answered;
  bool has_tls = false;
  std::string admin_address;

  static absl::StatusOr<ClusterFacts> Ask(client::Admin& admin);
};

void CheckCluster(const ClusterFacts& facts, Report& report);

}  // namespace embla::cli
