// The cost of a refusal to a node, beside that of the same request when it is served.
//
// One node with one device; requests of 4,096 ids, dim 64, fp32, on one stream or data socket, four
// in flight. In each round they are served, and then refused, since the quota of the node's file is
// used up. The cost is the processor time of the node's process, system calls included, per
// request. Refused updates come twice: whole, and asked for first.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/testing/await.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/testing/temp_directory.h"
#include "embla/v1/coordinator.grpc.pb.h"
#include "embla/v1/data.grpc.pb.h"
#include "server/rpc/data_socket_fixture.h"
#include "tests/testing/process_cluster.h"

namespace embla::refusal_cost_test {
namespace {

using ::embla::testing::AwaitFor;
using ::embla::testing::IsOk;
using ::embla::testing::ProcessCluster;
using ::embla::testing::TempDirectory;

constexpr std::uint32_t kIds = 4096;
constexpr std::uint32_t kDim = 64;
constexpr std::int64_t kRows = 200'000;
constexpr int kInFlight = 4;

double ProcessorSeconds(pid_t pid) {
  std::ifstream stat(absl::StrCat("/proc/", pid, "/stat"));
  std::string text((std::istreambuf_iterator<char>(stat)), std::istreambuf_iterator<char>());
  long long user = 0;
  long long system = 0;
  const std::string rest = text.substr(text.rfind(')') + 2);
  EXPECT_EQ(std::sscanf(rest.c_str(), "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lld %lld",
                        &user, &system),
            2);
  return static_cast<double>(user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

// Requests of one kind over a stream of their own, or by the data socket that it offers.
class Requests {
 public:
  Requests(const std::string& node, const v1::StreamRequest& request, bool by_socket)
      : stub_(v1::DataService::NewStub(Channel(node))), request_(request) {
    stream_ = stub_->Stream(&context_);
    if (by_socket) OpenSocket();
  }

  void AskFirst(bool asks_first) { asks_first_ = asks_first; }

  // Sends `count` requests and reads their answers; returns how many were served.
  int Run(int count) {
    int served = 0;
    int answered = 0;
    int sent = 0;
    while (answered < count) {
      while (sent < count && sent - answered < kInFlight) {
        Write();
        ++sent;
      }
      const v1::StreamReply reply = Read();
      const bool is_refusal = reply.code() == static_cast<int>(grpc::RESOURCE_EXHAUSTED);
      EXPECT_TRUE(reply.code() == 0 || is_refusal) << reply.message();
      if (reply.more()) continue;
      ++answered;
      served += is_refusal ? 0 : 1;
    }
    return served;
  }

 private:
  static std::shared_ptr<grpc::Channel> Channel(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  }

  void OpenSocket() {
    request_.set_asks_data_socket(true);
    Write();
    const v1::DataSocket offer = Read().data_socket();
    Read();
    peer_ = std::make_unique<data_socket::Peer>(offer.address());
    peer_->Send(data_socket::ToBytes(offer.ticket(), {}));
    EXPECT_TRUE(peer_->Receive().has_value());
    request_.set_asks_data_socket(false);
    if (request_.has_update()) {
      arrays_ = {{data_socket::kUpdateIds, request_.update().ids()},
                 {data_socket::kGradients, request_.update().gradients()}};
      request_.mutable_update()->clear_ids();
      request_.mutable_update()->clear_gradients();
    } else {
      arrays_ = {{data_socket::kIds, request_.lookup().ids()}};
      request_.mutable_lookup()->clear_ids();
    }
  }

  void Write() {
    request_.set_sequence(++sequence_);
    if (request_.has_update()) {
      request_.mutable_update()->set_seq(sequence_);
      request_.mutable_update()->set_step(sequence_);
      // Refused ones are given up.
      request_.mutable_update()->set_first_incomplete(
          std::max<std::uint64_t>(sequence_, kInFlight) - kInFlight + 1);
    }
    const v1::StreamRequest& request = asks_first_ ? Question() : request_;
    if (peer_ == nullptr) {
      EXPECT_TRUE(stream_->Write(request));
    } else {
      peer_->Send(data_socket::ToBytes(request.SerializeAsString(),
                                       asks_first_ ? std::vector<data_socket::Array>() : arrays_));
    }
  }

  const v1::StreamRequest& Question() {
    const v1::UpdateRequest& update = request_.update();
    question_.set_sequence(request_.sequence());
    question_.set_reserve_bytes(kIds * (8 + kDim * 4) + 1024);
    question_.set_reserve_ids(kIds);
    question_.mutable_lookup()->set_session(update.session());
    question_.mutable_lookup()->set_session_proof(update.session_proof());
    return question_;
  }

  v1::StreamReply Read() {
    if (peer_ != nullptr) return peer_->Reply().first;
    v1::StreamReply reply;
    EXPECT_TRUE(stream_->Read(&reply));
    return reply;
  }

  const std::unique_ptr<v1::DataService::Stub> stub_;
  grpc::ClientContext context_;
  v1::StreamRequest request_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::StreamRequest, v1::StreamReply>> stream_;
  std::unique_ptr<data_socket::Peer> peer_;  // Null: by the stream.
  std::vector<data_socket::Array> arrays_;
  std::uint64_t sequence_ = 0;
  bool asks_first_ = false;
  v1::StreamRequest question_;
};

template <typename Request, typename Part>
void FillPart(const v1::OpenSessionReply& session, std::uint64_t plan_version, Request& request,
              Part& part) {
  std::mt19937_64 random(1);
  std::vector<std::int64_t> ids(kIds);
  for (std::int64_t& id : ids) id = static_cast<std::int64_t>(random() % kRows);
  request.set_plan_version(plan_version);
  request.set_session(session.session());
  request.set_session_proof(session.proof());
  request.set_wire_dtype(v1::WIRE_DTYPE_FP32);
  request.set_ids(std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * 8));
  part.set_table_id(1);
  part.set_column_end(kDim);
  part.set_ids_count(kIds);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class RefusalCost : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_THAT(AtomicWriteFile(quotas_, "{}"), IsOk());
    auto cluster = ProcessCluster::Start(
        {.nodes = 1, .devices_per_node = 1, .shard_flags = {"--trainer-quotas", quotas_}});
    ASSERT_THAT(cluster, IsOk());
    cluster_ = *std::move(cluster);
    const auto [created, exit_code] =
        cluster_->Embla(absl::StrCat("table create --name t --rows ", kRows, " --dim ", kDim,
                                     " --sharding row_wise --optimizer sgd --learning-rate 0.01"));
    ASSERT_EQ(exit_code, 0) << created;
    ASSERT_THAT(cluster_->AwaitPlan(), IsOk());
    const auto coordinator = v1::CoordinatorService::NewStub(
        grpc::CreateChannel(cluster_->coordinator_address(), grpc::InsecureChannelCredentials()));
    v1::OpenSessionRequest open;
    open.set_client_nonce(1);
    grpc::ClientContext opening;
    ASSERT_THAT(coordinator->OpenSession(&opening, open, &session_), IsOk());
    v1::PlanDelta plan;
    grpc::ClientContext asking;
    ASSERT_THAT(coordinator->GetPlan(&asking, v1::GetPlanRequest(), &plan), IsOk());
    plan_version_ = plan.version();
  }

  struct Costs {
    double served = 0;  // Seconds; medians.
    double refused = 0;
    double ratio = 0;
  };
  Costs Measure(const v1::StreamRequest& request, bool by_socket, bool asks_first = false) {
    EXPECT_THAT(AtomicWriteFile(quotas_, "{}"), IsOk());
    Requests requests(cluster_->node_address(0), request, by_socket);
    std::vector<double> served, refused, ratios;
    for (int round = 0; round < kRounds; ++round) {
      requests.AskFirst(false);
      served.push_back(Cost(requests, true, kRequests));
      requests.AskFirst(asks_first);
      refused.push_back(Cost(requests, false, 4 * kRequests));
      ratios.push_back(refused.back() / served.back());
    }
    const Costs costs{Median(served), Median(refused), Median(ratios)};
    std::printf("by %s: served %.1f us, refused %.1f us%s, ratio %.3f\n",
                by_socket ? "data socket" : "stream", 1e6 * costs.served, 1e6 * costs.refused,
                asks_first ? " when asked for" : "", costs.ratio);
    return costs;
  }

  // Seconds of a request.
  double Cost(Requests& requests, bool is_served, int count) {
    const std::string quota = is_served ? "{}" : R"({"*": {"rows_per_second": 1}})";
    EXPECT_THAT(AtomicWriteFile(quotas_, quota), IsOk());
    EXPECT_TRUE(AwaitFor([&] { return (requests.Run(1) == 1) == is_served; }, absl::Seconds(60),
                         "the node reads the file"));
    const pid_t node = cluster_->node(0).pid();
    const double before = ProcessorSeconds(node);
    EXPECT_EQ(requests.Run(count), is_served ? count : 0);
    return (ProcessorSeconds(node) - before) / count;
  }

  static constexpr int kRounds = 3;
  static constexpr int kRequests = 500;

  const TempDirectory directory_;
  const std::string quotas_ = directory_.path() + "/quotas.json";
  std::unique_ptr<ProcessCluster> cluster_;
  v1::OpenSessionReply session_;
  std::uint64_t plan_version_ = 0;
};

// By stream, most of it is gRPC's, for a message there and one back (docs/benchmarks.md,
// "Overload").
TEST_F(RefusalCost, OfALookupIsSmall) {
  v1::StreamRequest lookup;
  v1::LookupPart& part = *lookup.mutable_lookup()->add_parts();
  FillPart(session_, plan_version_, *lookup.mutable_lookup(), part);
  part.set_pooling(v1::POOLING_NONE);
  EXPECT_LE(Measure(lookup, false).ratio, 0.2);
  EXPECT_LE(Measure(lookup, true).ratio, 0.05);
}

// A client does not know better the first time: the gradients, 1 MiB, travel before anybody knows
// that they are refused. On a data socket nothing is done with them but that. Then it asks first.
TEST_F(RefusalCost, OfAnUpdateIsThatOfItsBytesAndSmallOnceItIsAskedFor) {
  v1::StreamRequest update;
  v1::UpdatePart& part = *update.mutable_update()->add_parts();
  FillPart(session_, plan_version_, *update.mutable_update(), part);
  part.set_form(v1::GRADIENT_FORM_ROWS);
  update.mutable_update()->set_gradients(std::string(std::size_t{kIds} * kDim * 4, '\0'));
  const Costs by_stream = Measure(update, false);
  EXPECT_LE(by_stream.ratio, 0.8);
  EXPECT_LE(Measure(update, true).refused, 0.8 * by_stream.refused);
  EXPECT_LE(Measure(update, false, true).ratio, 0.2);
  EXPECT_LE(Measure(update, true, true).ratio, 0.05);
}

}  // namespace
}  // namespace embla::refusal_cost_test
