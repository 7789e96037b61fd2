// The service in one process, for tests: rows in plain arrays, row-wise Adagrad or SGD, one lock.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "client/include/embla/testing/unimplemented_client.h"
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
    std::map<std::int64_t, std::int64_t> row_of;  // ZCH tables only, by id; never full in tests.

    // The row of an id; a new one if a ZCH table has none for it yet.
    std::int64_t RowFor(std::int64_t id);
  };

  // Like Admin::CreateTable. AlreadyExists, InvalidArgument (fields that are missing or unknown).
  absl::Status CreateTable(const std::string& table_json, const std::string& placement_json);
  absl::Status Lookup(std::span<const client::FeatureLookup> features);
  absl::Status Update(std::span<const client::FeatureGradient> features);
  // Like Client::ScanTable with the state, and WriteRows; the state is an accumulator per row.
  absl::Status Scan(std::string_view name, const client::Client::RowSink& sink);
  absl::Status Write(std::string_view name, std::span<const std::int64_t> ids,
                     std::span<const float> weights, std::span<const float> state);
  std::vector<client::TableInfo> Tables() const;
  std::vector<float> RowsOf(const std::string& table) const;
  double LearningRateOf(const std::string& table) const;

  // The next calls of that kind fail with `status`.
  void FailLookups(int count, absl::Status status);
  void FailUpdates(int count, absl::Status status);
  void FailScans(int count, absl::Status status);

  void NoteSync(const std::vector<std::string>& tables);

  std::int64_t lookups() const;
  // Some feature of a lookup or update had an id more than once.
  bool saw_id_twice() const;
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
  Failure scan_failure_ ABSL_GUARDED_BY(mu_);
  std::int64_t lookups_ ABSL_GUARDED_BY(mu_) = 0;
  std::int64_t updates_ ABSL_GUARDED_BY(mu_) = 0;
  bool saw_id_twice_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::string> synced_ ABSL_GUARDED_BY(mu_);
};

// `service` is not owned and outlives this object. Calls are done when they return.
class FakeClient final : public client::testing::UnimplementedClient {
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
  absl::Status ScanTable(std::string_view table, bool, const RowSink& sink) override {
    return service_.Scan(table, sink);
  }
  absl::Status WriteRows(std::string_view table, std::span<const std::int64_t> ids,
                         std::span<const float> weights, std::span<const float> state,
                         const client::CallOptions&) override {
    return service_.Write(table, ids, weights, state);
  }
  std::vector<client::TableInfo> Tables() override { return service_.Tables(); }
  absl::StatusOr<std::vector<client::TableSyncReport>> Sync(const std::vector<std::string>& tables,
                                                            const client::CallOptions&) override {
    service_.NoteSync(tables);
    return std::vector<client::TableSyncReport>();
  }

 private:
  FakeService& service_;
};

// `service` is not owned and outlives this object.
class FakeAdmin final : public client::testing::FakeAdmin {
 public:
  explicit FakeAdmin(FakeService& service) {
    On<v1::CreateTableRequest, v1::TableReply>([&service](const auto& request, auto&) {
      return service.CreateTable(request.table_json(), request.placement_json());
    });
  }
};

}  // namespace embla::train::testing
