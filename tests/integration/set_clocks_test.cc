// Machines whose clocks are set back by an hour, and forward, while a trainer trains: nobody waits
// for a time that has been, or takes one that has not come for passed.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/file_descriptor.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/testing/temp_directory.h"
#include "tests/testing/metrics_text.h"
#include "tests/testing/process_cluster.h"

namespace embla::set_clocks_test {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::ChildProcess;
using ::embla::testing::IsOk;
using ::embla::testing::kAwaitMax;
using ::embla::testing::MetricsText;
using ::embla::testing::ProcessCluster;
using ::embla::testing::TempDirectory;

constexpr int kNodes = 2;
constexpr std::int64_t kHour = 3600;

// The clock of all processes that this one starts from now on.
class SharedClock {
 public:
  explicit SharedClock(const std::string& path) {
    const FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    EMBLA_CHECK(file.is_open() && ::ftruncate(file.number(), sizeof(std::int64_t)) == 0);
    void* const memory =
        ::mmap(nullptr, sizeof(std::int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
    EMBLA_CHECK(memory != MAP_FAILED);
    ahead_ = static_cast<std::atomic<std::int64_t>*>(memory);
    ::setenv("EMBLA_TEST_CLOCK", path.c_str(), 1);
    ::setenv("LD_PRELOAD", EMBLA_SET_CLOCK, 1);
    ::setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
  }
  ~SharedClock() { ::munmap(ahead_, sizeof(std::int64_t)); }

  void SetAhead(std::int64_t seconds) { *ahead_ = seconds; }

 private:
  std::atomic<std::int64_t>* ahead_ = nullptr;
};

class SetClocks : public ::testing::Test {
 protected:
  void SetUp() override {
    auto started = ProcessCluster::Start(
        {.nodes = kNodes,
         .devices_per_node = 1,
         .coordinator_flags = {"--heartbeat-ms", "250", "--dead-after-ms", "3000"},
         .journals = true});
    ASSERT_THAT(started, IsOk());
    cluster_ = *std::move(started);
    const auto admin = cluster_->ConnectAdmin();
    ASSERT_THAT(admin, IsOk());
    ASSERT_THAT((*admin)->Call<v1::TableReply>(
                    client::CreateTableRequest(R"({"name":"t","rows":16,"dim":8,"row_granules":4,)"
                                               R"("init":{"kind":"constant","a":0.0},)"
                                               R"("optimizer":{"kind":"sgd","learning_rate":1.0}})",
                                               R"({"sharding":"row_wise"})")),
                IsOk());
    auto trainer = ChildProcess::Start(
        {EMBLA_COUNTING_TRAINER, cluster_->coordinator_address(), acknowledged_file()},
        directory_.path() + "/trainer.log");
    ASSERT_THAT(trainer, IsOk());
    trainer_ = *std::move(trainer);
  }

  std::string acknowledged_file() const { return directory_.path() + "/acknowledged"; }
  std::int64_t Acknowledged() const {
    std::ifstream file(acknowledged_file());
    return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  }
  MetricsText Metrics() const { return MetricsText::Of(cluster_->coordinator_metrics_address()); }

  // For longer than a node may be silent.
  void AwaitHeartbeats() {
    constexpr double kBeats = 20;
    const MetricsText before = Metrics();
    for (int node = 0; node < kNodes; ++node) {
      const std::string beats =
          absl::StrCat("embla_heartbeats_total{node=\"", cluster_->node_name(node), "\"}");
      AwaitFor([&] { return Metrics().Value(beats) >= before.Value(beats) + kBeats; }, kAwaitMax,
               absl::StrCat("heartbeats of node ", node));
    }
    EXPECT_EQ(Metrics().Value("embla_nodes_died_total"), 0);
  }
  void AwaitUpdates() {
    const std::int64_t before = Acknowledged();
    AwaitFor([&] { return Acknowledged() >= before + 200; }, kAwaitMax, "updates go on");
  }
  void ExpectAllGoesOn() {
    AwaitUpdates();
    AwaitHeartbeats();
    const auto [drained, drain] = cluster_->Embla("node drain node0 --wait");
    EXPECT_EQ(drain, 0) << drained;
    const auto [resumed, resume] = cluster_->Embla("node undrain node0");
    EXPECT_EQ(resume, 0) << resumed;
    const auto [spread, rebalance] = cluster_->Embla("rebalance --wait");
    EXPECT_EQ(rebalance, 0) << spread;
    AwaitUpdates();
  }

  const TempDirectory directory_;
  SharedClock clock_{directory_.path() + "/clock"};
  std::unique_ptr<ProcessCluster> cluster_;
  ChildProcess trainer_;
};

TEST_F(SetClocks, NobodyWaitsAndNobodyGivesUp) {
  ExpectAllGoesOn();
  for (const std::int64_t ahead : {-kHour, kHour, std::int64_t{0}}) {
    SCOPED_TRACE(absl::StrCat("ahead by ", ahead, " s"));
    clock_.SetAhead(ahead);
    ExpectAllGoesOn();
    if (HasFailure()) return;
  }
  EXPECT_TRUE(trainer_.running());
}

}  // namespace
}  // namespace embla::set_clocks_test
