// Clients and admins that answer nothing, for tests of programs that use one: a fake overrides what
// its test is about.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "embla/admin.h"
#include "embla/client.h"

namespace embla::client::testing {

inline absl::Status NotFaked() { return absl::UnimplementedError("not faked"); }

class UnimplementedClient : public Client {
 public:
  absl::Status Lookup(std::span<const FeatureLookup>, const CallOptions&) override {
    return NotFaked();
  }
  void LookupAsync(std::vector<FeatureLookup>, const CallOptions&, DoneCallback done) override {
    done(NotFaked());
  }
  absl::Status Update(std::span<const FeatureGradient>, const CallOptions&) override {
    return NotFaked();
  }
  void UpdateAsync(std::vector<FeatureGradient>, const CallOptions&, DoneCallback done) override {
    done(NotFaked());
  }
  absl::StatusOr<std::vector<std::uint64_t>> JoinSteps(const std::vector<std::string>&,
                                                       absl::Duration) override {
    return NotFaked();
  }
  absl::Status ReadRows(std::string_view, std::span<const std::int64_t>,
                        std::span<float>) override {
    return NotFaked();
  }
  absl::Status ReadState(std::string_view, std::span<const std::int64_t>,
                         std::span<float>) override {
    return NotFaked();
  }
  absl::StatusOr<std::size_t> StateFloatsPerRow(std::string_view) override { return NotFaked(); }
  absl::Status WriteRows(std::string_view, std::span<const std::int64_t>, std::span<const float>,
                         std::span<const float>, const CallOptions&) override {
    return NotFaked();
  }
  absl::Status ScanTable(std::string_view, bool, const RowSink&) override { return NotFaked(); }
  absl::Status ExportTable(std::string_view, const std::string&) override { return NotFaked(); }
  absl::StatusOr<std::vector<TableSyncReport>> Sync(const std::vector<std::string>&,
                                                    const CallOptions&) override {
    return NotFaked();
  }
  absl::StatusOr<IdExplanation> ExplainId(std::string_view, std::int64_t) override {
    return NotFaked();
  }
  absl::StatusOr<TableSurvey> SurveyTable(std::string_view) override { return NotFaked(); }
  absl::StatusOr<SweepReport> SweepTable(std::string_view, const SweepOptions&) override {
    return NotFaked();
  }
  absl::Status ReadEvictions(std::string_view, bool, const EvictionSink&) override {
    return NotFaked();
  }
  std::vector<TableInfo> Tables() override { return {}; }
  absl::Status RefreshPlan() override { return absl::OkStatus(); }
  std::uint64_t plan_version() const override { return 1; }
  std::uint64_t session() const override { return 1; }
  bool has_taken_over() const override { return false; }
  absl::Status Close(absl::Duration) override { return absl::OkStatus(); }
  std::string MetricsText() const override { return ""; }
};

class UnimplementedAdmin : public Admin {
 public:
  absl::StatusOr<ClusterStatus> GetClusterStatus() override { return NotFaked(); }
  absl::StatusOr<std::vector<NodeStatus>> ListNodes() override { return NotFaked(); }
  absl::StatusOr<TableChange> CreateTable(const std::string&, const std::string&) override {
    return NotFaked();
  }
  absl::StatusOr<std::uint64_t> DropTable(const std::string&) override { return NotFaked(); }
  absl::StatusOr<std::uint64_t> DropAsideTable(std::uint32_t) override { return NotFaked(); }
  absl::StatusOr<TableChange> AdoptTable(const std::string&, std::uint32_t) override {
    return NotFaked();
  }
  absl::Status DropLeftovers(const std::string&, const std::string&) override { return NotFaked(); }
  absl::StatusOr<TableChange> SetTable(const std::string&,
                                       const std::map<std::string, std::string>&) override {
    return NotFaked();
  }
  absl::StatusOr<TableChange> PlanTable(const std::string&, const std::string&,
                                        const StatedTopology&) override {
    return NotFaked();
  }
  absl::StatusOr<std::string> GetPlanJson() override { return NotFaked(); }
  absl::StatusOr<std::vector<PlanChange>> GetPlanHistory(std::uint32_t) override {
    return NotFaked();
  }
  absl::StatusOr<std::string> GetPlanJsonAt(std::uint64_t) override { return NotFaked(); }
  absl::StatusOr<Job> StartJob(const JobRequest&) override { return NotFaked(); }
  absl::StatusOr<std::vector<Job>> ListJobs() override { return NotFaked(); }
  absl::StatusOr<Job> GetJob(std::uint64_t) override { return NotFaked(); }
  absl::StatusOr<Job> ControlJob(std::uint64_t, JobControl) override { return NotFaked(); }
  absl::StatusOr<ForgottenNode> ForgetNode(const std::string&, bool, bool) override {
    return NotFaked();
  }
  absl::Status PutSolvedPlan(const PlanInputs&, const std::string&) override { return NotFaked(); }
  absl::StatusOr<std::string> FindSolvedPlan(const PlanInputs&) override { return NotFaked(); }
};

}  // namespace embla::client::testing
