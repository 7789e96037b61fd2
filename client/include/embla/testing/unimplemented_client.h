// Clients and admins that answer nothing, for tests of programs that use one: a fake overrides, or
// gives On(), what its test is about.
#pragma once

#include <functional>
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

// Answers by what On() was given; other requests are not faked.
class FakeAdmin : public Admin {
 public:
  using Admin::Call;
  absl::Status Call(const google::protobuf::Message& request,
                    google::protobuf::Message& reply) override {
    const auto it = handlers_.find(request.GetDescriptor());
    return it == handlers_.end() ? NotFaked() : it->second(request, reply);
  }

  // `handle`: absl::Status(const Request&, Reply&).
  template <typename Request, typename Reply, typename Handle>
  void On(Handle handle) {
    handlers_[Request::descriptor()] = [handle](const google::protobuf::Message& request,
                                                google::protobuf::Message& reply) {
      return handle(static_cast<const Request&>(request), static_cast<Reply&>(reply));
    };
  }

 private:
  std::map<
      const google::protobuf::Descriptor*,
      std::function<absl::Status(const google::protobuf::Message&, google::protobuf::Message&)>>
      handlers_;
};

}  // namespace embla::client::testing
