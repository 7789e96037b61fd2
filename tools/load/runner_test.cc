#include "tools/load/runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <thread>

#include "client/include/embla/testing/unimplemented_client.h"
#include "core/base/mutex.h"
#include "core/base/testing/status_matchers.h"

namespace embla::load {
namespace {

using ::embla::testing::IsOk;

// Answers on a thread of its own, in the order of the calls, and remembers how many calls were
// waiting at once.
class SlowClient final : public client::testing::UnimplementedClient {
 public:
  SlowClient() : thread_([this] { Answer(); }) {}
  ~SlowClient() override {
    {
      MutexLock lock(mu_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    thread_.join();
  }

  absl::Status Lookup(std::span<const client::FeatureLookup>, const client::CallOptions&) override {
    MutexLock lock(mu_);
    ++blocking_lookups_;
    return status_;
  }
  void LookupAsync(std::vector<client::FeatureLookup> features, const client::CallOptions&,
                   client::DoneCallback done) override {
    MutexLock lock(mu_);
    for (const client::FeatureLookup& feature : features) {
      // A buffer belongs to one request until it is answered.
      if (++writers_[feature.rows_out.data()] > 1) shared_buffer_ = true;
    }
    Push({std::move(features), std::move(done)});
    ++lookups_;
  }
  absl::Status Update(std::span<const client::FeatureGradient>,
                      const client::CallOptions&) override {
    MutexLock lock(mu_);
    ++blocking_updates_;
    return status_;
  }
  void UpdateAsync(std::vector<client::FeatureGradient>, const client::CallOptions&,
                   client::DoneCallback done) override {
    MutexLock lock(mu_);
    Push({{}, std::move(done)});
    ++updates_;
  }
  void FailFrom(int answer, absl::Status status) {
    MutexLock lock(mu_);
    fail_from_ = answer;
    status_ = status;
  }

  int lookups() const { return Read(lookups_); }
  int updates() const { return Read(updates_); }
  int blocking_lookups() const { return Read(blocking_lookups_); }
  int waiting_max() const { return Read(waiting_max_); }
  bool shared_buffer() const { return Read(shared_buffer_); }

 private:
  struct Call {
    std::vector<client::FeatureLookup> features;
    client::DoneCallback done;
  };

  template <typename T>
  T Read(const T& value) const {
    MutexLock lock(mu_);
    return value;
  }

  void Push(Call call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    calls_.push_back(std::move(call));
    waiting_max_ = std::max(waiting_max_, static_cast<int>(calls_.size()));
    changed_.NotifyAll();
  }

  void Answer() {
    for (int number = 0;; ++number) {
      Call call;
      absl::Status status;
      {
        MutexLock lock(mu_);
        while (calls_.empty() && !stopping_) changed_.Wait(mu_);
        if (calls_.empty()) return;
        call = std::move(calls_.front());
        calls_.erase(calls_.begin());
        for (const auto& feature : call.features) --writers_[feature.rows_out.data()];
        if (number >= fail_from_) status = status_;
      }
      call.done(status);
    }
  }

  mutable Mutex mu_;
  CondVar changed_;
  std::vector<Call> calls_;
  std::map<const float*, int> writers_;
  bool shared_buffer_ = false;
  bool stopping_ = false;
  int lookups_ = 0;
  int updates_ = 0;
  int blocking_lookups_ = 0;
  int blocking_updates_ = 0;
  int waiting_max_ = 0;
  int fail_from_ = 0;
  absl::Status status_;
  std::thread thread_;
};

Case SmallCase(int in_flight, double update_share) {
  Case load;
  load.ids = 8;
  load.dim = 4;
  load.in_flight = in_flight;
  load.update_share = update_share;
  return load;
}

RequestSet RequestsOf(const Case& load) {
  return {load, {"table"}, *IdDistribution::Parse("uniform", 100), 1};
}

TEST(RunnerRun, KeepsAtMostTheAskedNumberInFlightAndSharesNoBuffer) {
  SlowClient client;
  const Case load = SmallCase(4, 0.0);
  const RequestSet requests = RequestsOf(load);
  client::Client* const clients[] = {&client};
  Runner runner(load, clients, requests, 1);
  const auto result = runner.Run(1000);
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->requests, 1000);
  EXPECT_EQ(result->lookups.count(), 1000u);
  EXPECT_EQ(client.lookups(), 1000);
  EXPECT_LE(client.waiting_max(), 4);
  EXPECT_FALSE(client.shared_buffer());
}

TEST(RunnerRun, UsesTheBlockingCallsForOneAtATime) {
  SlowClient client;
  const Case load = SmallCase(1, 0.0);
  const RequestSet requests = RequestsOf(load);
  client::Client* const clients[] = {&client};
  ASSERT_THAT(Runner(load, clients, requests, 1).Run(10), IsOk());
  EXPECT_EQ(client.blocking_lookups(), 10);
  EXPECT_EQ(client.lookups(), 0);
}

TEST(RunnerRun, MixesLookupsAndUpdatesByTheirShare) {
  SlowClient client;
  const Case load = SmallCase(4, 0.25);
  const RequestSet requests = RequestsOf(load);
  client::Client* const clients[] = {&client};
  const auto result = Runner(load, clients, requests, 1).Run(4000);
  ASSERT_THAT(result, IsOk());
  EXPECT_NEAR(client.updates(), 1000, 150);
  EXPECT_EQ(result->updates.count() + result->lookups.count(), 4000u);
}

TEST(RunnerRun, SharesTheRequestsOutToAllClients) {
  SlowClient first, second, third;
  const Case load = SmallCase(2, 0.0);
  const RequestSet requests = RequestsOf(load);
  client::Client* const clients[] = {&first, &second, &third};
  const auto result = Runner(load, clients, requests, 1).Run(100);
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->requests, 100);
  EXPECT_EQ(first.lookups() + second.lookups() + third.lookups(), 100);
  EXPECT_NEAR(first.lookups(), 33, 1);
}

TEST(RunnerRun, EndsAtTheFirstErrorWhenEverythingInFlightIsAnswered) {
  SlowClient client;
  client.FailFrom(50, absl::UnavailableError("node n1 is away"));
  const Case load = SmallCase(8, 0.0);
  const RequestSet requests = RequestsOf(load);
  client::Client* const clients[] = {&client};
  const auto result = Runner(load, clients, requests, 1).Run(100000);
  EXPECT_TRUE(absl::IsUnavailable(result.status()));
  EXPECT_LT(client.lookups(), 100);
}

}  // namespace
}  // namespace embla::load
