// A serving node whose log reaches the process's limit of file sizes: a full disk, not a death.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/include/embla/client.h"
#include "core/base/testing/status_matchers.h"
#include "tests/testing/process_cluster.h"

namespace embla::file_limit_test {
namespace {

using client::Client;
using client::FeatureGradient;
using client::FeatureLookup;
using ::embla::testing::IsOk;
using ::embla::testing::kAwaitMax;
using ::embla::testing::ProcessCluster;
using ::embla::testing::StatusIs;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint32_t kDim = 64;
constexpr std::int64_t kRows = 256;  // Each update has so many.

// An update's record has at least its gradients and ids.
constexpr std::int64_t kUpdateBytes = kRows * (kDim * 4 + 8);

class FileLimit : public ::testing::Test {
 protected:
  // The node's files may have `bytes` from its start on.
  void Start(rlim_t bytes) {
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    auto cluster = ProcessCluster::Start({.nodes = 1, .devices_per_node = 1, .journals = true});
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    ASSERT_THAT(cluster, IsOk());
    cluster_ = *std::move(cluster);
    const auto [printed, code] = cluster_->Embla(
        absl::StrCat("table create --name t --sharding row_wise --optimizer sgd --learning-rate 1",
                     " --init constant --init-a 0 --rows 65536 --dim ", kDim));
    ASSERT_EQ(code, 0) << printed;
    auto connected = cluster_->Connect();
    ASSERT_THAT(connected, IsOk());
    client_ = *std::move(connected);
  }

  // Adds 1 to the first rows.
  absl::Status AddOne(absl::Duration timeout, std::int64_t rows = kRows) {
    std::vector<std::int64_t> ids(rows);
    std::iota(ids.begin(), ids.end(), 0);
    const std::vector<float> gradients(rows * kDim, -1.0f);
    const FeatureGradient feature{.table = "t", .ids = ids, .gradients = gradients};
    return client_->Update({&feature, 1}, {.timeout = timeout});
  }
  // The first rows, all of which are alike.
  float Value() {
    std::vector<std::int64_t> ids(kRows);
    std::iota(ids.begin(), ids.end(), 0);
    std::vector<float> rows(kRows * kDim);
    FeatureLookup feature{.table = "t", .ids = ids, .rows_out = rows};
    EXPECT_THAT(client_->Lookup({&feature, 1}, {.timeout = kAwaitMax}), IsOk());
    EXPECT_THAT(rows, Each(rows.front()));
    return rows.front();
  }
  void ExpectServing() {
    EXPECT_FALSE(cluster_->node(0).AwaitEnd(absl::ZeroDuration())) << cluster_->LogTails();
  }

  std::unique_ptr<ProcessCluster> cluster_;
  std::unique_ptr<Client> client_;
};

TEST_F(FileLimit, LogGoesOnInAnotherSegmentAndRefusesWhatNoSegmentHolds) {
  constexpr rlim_t kLimit = 1 << 20;
  Start(kLimit);
  constexpr int kUpdates = 3 * kLimit / kUpdateBytes;
  for (int i = 0; i < kUpdates; ++i) ASSERT_THAT(AddOne(kAwaitMax), IsOk());
  EXPECT_THAT(AddOne(kAwaitMax, 2 * kLimit / (kDim * 4)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a log record of")));
  EXPECT_EQ(Value(), float{kUpdates});
  ASSERT_THAT(AddOne(kAwaitMax), IsOk());
  ExpectServing();
  cluster_->KillNode(0);
  ASSERT_THAT(cluster_->RestartNode(0), IsOk());
  EXPECT_EQ(Value(), float{kUpdates + 1});
}

// A limit that is set while the node serves leaves no room at all.
TEST_F(FileLimit, ServingNodeWithoutRoomRefusesUpdatesAndAnswersLookups) {
  Start(RLIM_INFINITY);
  ASSERT_THAT(AddOne(kAwaitMax), IsOk());
  const pid_t node = cluster_->node(0).pid();
  rlimit none{};
  ASSERT_EQ(::prlimit(node, RLIMIT_FSIZE, nullptr, &none), 0);
  none.rlim_cur = 4096;
  ASSERT_EQ(::prlimit(node, RLIMIT_FSIZE, &none, nullptr), 0);
  const absl::Status refused = AddOne(absl::Seconds(3));
  EXPECT_THAT(refused, Not(IsOk()));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("File too large"));
  EXPECT_THAT(Value(), AnyOf(1.0f, 2.0f));
  ExpectServing();
  cluster_->KillNode(0);
  ASSERT_THAT(cluster_->RestartNode(0), IsOk());
  EXPECT_EQ(Value(), 1.0f) << "what was not acknowledged is not there";
  EXPECT_THAT(AddOne(kAwaitMax), IsOk());
}

}  // namespace
}  // namespace embla::file_limit_test
