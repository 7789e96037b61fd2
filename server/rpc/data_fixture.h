// Test support: a DataService with a FakeShardNode behind a real listener on loopback, and plain
// generated stubs to it, as a client in any language would have.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "core/base/cluster_key.h"
#include "core/base/session_proof.h"
#include "core/base/testing/status_matchers.h"
#include "core/metrics/metrics.h"
#include "embla/v1/data.grpc.pb.h"
#include "server/rpc/data_service.h"
#include "server/rpc/fake_shard_node.h"
#include "server/rpc/key_proofs.h"
#include "server/rpc/node_key.h"
#include "server/rpc/rpc_server.h"

namespace embla {

class DataFixture : public ::testing::Test {
 protected:
  void Start(const DataServiceOptions& options = {}, const RpcServerOptions& server = {},
             MoveInbox moves = {}) {
    node_.sessions().SetKey(cluster_key_);
    service_ = std::make_unique<DataService>(node_, pool_, &metrics_, options);
    service_->ServePeers(key_);
    service_->ServeMoves(std::move(moves));
    grpc::Service* const services[] = {service_.get()};
    RpcServerOptions listener = server;
    listener.tls = options.tls;
    listener.take_frames = service_->TakesFrames();
    absl::StatusOr<std::unique_ptr<RpcServer>> started = RpcServer::Start(listener, services);
    ASSERT_THAT(started, testing::IsOk());
    server_ = *std::move(started);
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channel_ =
        grpc::CreateCustomChannel(server_->address(), ChannelCredentialsTo(tls_, {}), arguments);
    stub_ = v1::DataService::NewStub(channel_);
  }

  void TearDown() override {
    node_.Release();
    if (server_ != nullptr) server_->Shutdown(absl::ZeroDuration());
  }

  struct Greeted {
    v1::PeerWelcome welcome;
    PeerNonces nonces;
  };
  // Greets as node `name`.
  Greeted GreetAs(const std::string& name, bool asks_data_socket = true) {
    v1::PeerGreeting greeting;
    greeting.set_nonce(RandomNonce());
    greeting.set_node(name);
    greeting.set_proof(ProveGreeting(*cluster_key_, greeting.nonce(), name));
    greeting.set_asks_data_socket(asks_data_socket);
    v1::PeerWelcome welcome;
    grpc::ClientContext context;
    EXPECT_THAT(stub_->Greet(&context, greeting, &welcome), testing::IsOk());
    return {welcome, {.caller = greeting.nonce(), .answerer = welcome.nonce()}};
  }

  // An unpooled lookup of `ids` with two columns.
  static v1::LookupRequest LookupOf(const std::vector<std::int64_t>& ids,
                                    std::uint32_t columns = 2) {
    v1::LookupRequest request;
    v1::LookupPart& part = *request.add_parts();
    part.set_table_id(1);
    part.set_pooling(v1::POOLING_NONE);
    part.set_column_end(columns);
    part.set_ids_count(static_cast<std::uint32_t>(ids.size()));
    request.set_ids(std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * 8));
    return request;
  }

  static std::string RowsOf(const std::vector<std::int64_t>& ids, std::uint32_t columns = 2) {
    std::vector<float> rows;
    for (const std::int64_t id : ids) {
      for (std::uint32_t c = 0; c < columns; ++c) {
        rows.push_back(FakeShardNode::Value(RowId{id}, c));
      }
    }
    return std::string(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(float));
  }

  v1::UpdateRequest UpdateOf(std::uint64_t seq, std::size_t rows) const {
    v1::UpdateRequest request;
    const SessionProof proof = ProveSession(*cluster_key_, kSession);
    request.set_session(ToInt(kSession));
    request.set_session_proof(proof.data(), proof.size());
    request.set_seq(seq);
    v1::UpdatePart& part = *request.add_parts();
    part.set_table_id(1);
    part.set_form(v1::GRADIENT_FORM_ROWS);
    part.set_column_end(2);
    part.set_ids_count(static_cast<std::uint32_t>(rows));
    request.set_ids(std::string(rows * 8, '\0'));
    request.set_gradients(std::string(rows * 8, '\0'));
    return request;
  }

  grpc::Status Lookup(const v1::LookupRequest& request, v1::LookupReply& reply) {
    grpc::ClientContext context;
    return stub_->Lookup(&context, request, &reply);
  }

  static constexpr SessionId kSession{(std::uint64_t{77} << 32) + 1};

  const ClusterKeyPtr cluster_key_ = std::make_shared<const ClusterKey>(ClusterKey::Generate());
  NodeKey key_{"", cluster_key_};
  FakeShardNode node_;
  TlsPtr tls_;  // The client's; null: plaintext.
  BufferPool pool_;
  Metrics metrics_;
  std::unique_ptr<DataService> service_;
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::DataService::Stub> stub_;
};

}  // namespace embla
