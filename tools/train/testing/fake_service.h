// The service in one process, for tests: rows in plain arrays, row-wise Adagrad or SGD, one lock.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/base/mutex.h"

namespace embla::train::testing {

// Thread safety: every method may be called from any thread.
class FakeService {
 public:
  struct Table {
    client::TableInfo info;
    double learning_rate = 0.0;
    std::vector<float> rows;
    std::vector<float> accumulators;              // One per row.
    std::map<std::int64_t, std::int64_t> row_of;  // Of ZCH tables, by id; never full in tests.

    // The row of an id; a new one if a ZCH table has none for it yet.
    std::int64_t RowFor(std::int64_t id);
  };

  // As Admin::CreateTable. AlreadyExists, InvalidArgument (fields that are missing or unknown).
  absl::Status CreateTable(const std::string& table_json, const std::string& placement_json);
  absl::Status Lookup(std::span<const client::FeatureLookup> features);
  absl::Status Update(std::span<const client::FeatureGradient> features);
  std::vector<client::TableInfo> Tables() const;
  std::vector<float> RowsOf(const std::string& table) const;

  // The next calls of that kind fail with `status`.
  void FailLookups(int count, absl::Status status);
  void FailUpdates(int count, absl::Status status);

  void NoteSync(const std::vector<std::string>& tables);

  std::int64_t lookups() const;
  std::int64_t updates() const;
  std::vector<std::string> synced() const;  // Table names, as often as they were.

 private:
  struct Failure {
    int count = 0;
    absl::Status status;
    absl::Status Take();
  };
  absl::StatusOr<Table*> Find(std::string_view name, std::span<const std::int64_t> ids)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  std::map<std::string, Table> tables_ ABSL_GUARDED_BY(mu_);
  Failure lookup_failure_ ABSL_GUARDED_BY(mu_);
  Failure update_failure_ ABSL_GUARDED_BY(mu_);
  std::int64_t lookups_ ABSL_GUARDED_BY(mu_) = 0;
  std::int64_t updates_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::string> synced_ ABSL_GUARDED_BY(mu_);
};

// `service` is not owned and outlives this object. Calls are done when they return.
class FakeClient final : public client::Client {
 public:
  explicit FakeClient(FakeService& service) : service_(service) {}

  absl::Status Lookup(std::span<const client::FeatureLookup> features,
                      const client::CallOptions& options) override;
  void LookupAsync(std::vector<client::FeatureLookup> features, const client::CallOptions& options,
                   client::DoneCallback done) override;
  absl::Status Update(std::span<const client::FeatureGradient> features,
                      const client::CallOptions& options) override;
  void UpdateAsync(std::vector<client::FeatureGradient> features,
                   const client::CallOptions& options, client::DoneCallback done) override;
  absl::Status ReadRows(std::string_view table, std::span<const std::int64_t> ids,
                        std::span<float> rows_out) override;
  absl::Status ReadState(std::string_view, std::span<const std::int64_t>,
                         std::span<float>) override;
  absl::StatusOr<std::size_t> StateFloatsPerRow(std::string_view) override;
  absl::Status ExportTable(std::string_view table, const std::string& npy_path) override;
  std::vector<client::TableInfo> Tables() override { return service_.Tables(); }
  absl::StatusOr<std::vector<client::TableSyncReport>> Sync(const std::vector<std::string>& tables,
                                                            const client::CallOptions&) override {
    service_.NoteSync(tables);
    return std::vector<client::TableSyncReport>();
  }
  absl::StatusOr<client::IdExplanation> ExplainId(std::string_view, std::int64_t) override {
    return absl::UnimplementedError("not faked");
  }
  absl::Status RefreshPlan() override { return absl::OkStatus(); }
  std::uint64_t plan_version() const override { return 1; }
  std::uint64_t session() const override { return 1; }
  std::string MetricsText() const override { return ""; }

 private:
  FakeService& service_;
};

// `service` is not owned and outlives this object.
class FakeAdmin final : public client::Admin {
 public:
  explicit FakeAdmin(FakeService& service) : service_(service) {}

  absl::StatusOr<client::ClusterStatus> GetClusterStatus() override;
  absl::StatusOr<std::vector<client::NodeStatus>> ListNodes() override;
  absl::StatusOr<client::TableChange> CreateTable(const std::string& table_json,
                                                  const std::string& placement_json) override;
  absl::StatusOr<std::uint64_t> DropTable(const std::string& name) override;
  absl::StatusOr<client::TableChange> SetTable(
      const std::string& name, const std::map<std::string, std::string>& values) override;
  absl::StatusOr<client::TableChange> PlanTable(const std::string& table_json,
                                                const std::string& placement_json,
                                                const client::StatedTopology& topology) override;
  absl::StatusOr<std::string> GetPlanJson() override;
  absl::StatusOr<std::vector<client::PlanChange>> GetPlanHistory(std::uint32_t limit) override;
  absl::StatusOr<std::string> GetPlanJsonAt(std::uint64_t version) override;
  absl::StatusOr<client::Job> StartJob(const client::JobRequest& request) override;
  absl::StatusOr<std::vector<client::Job>> ListJobs() override;
  absl::StatusOr<client::Job> GetJob(std::uint64_t id) override;
  absl::StatusOr<client::Job> ControlJob(std::uint64_t id, client::JobControl control) override;
  absl::Status PutSolvedPlan(const client::PlanInputs& inputs,
                             const std::string& plan_json) override;
  absl::StatusOr<std::string> FindSolvedPlan(const client::PlanInputs& inputs) override;

 private:
  FakeService& service_;
};

}  // namespace embla::train::testing
