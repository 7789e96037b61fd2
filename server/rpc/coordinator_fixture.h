// Test support: a coordinator in memory behind real listeners on loopback, with plain stubs.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "core/base/clock.h"
#include "core/base/cluster_key.h"
#include "core/base/testing/loopback.h"
#include "core/base/testing/status_matchers.h"
#include "core/metrics/metrics.h"
#include "embla/v1/admin.grpc.pb.h"
#include "embla/v1/coordinator.grpc.pb.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/coordinator_host.h"
#include "server/rpc/coordinator_service.h"
#include "server/rpc/key_proofs.h"
#include "server/rpc/rpc_server.h"
#include "server/state_store/memory_state_store.h"

namespace embla {

// Sends a node's first messages on `link`: a greeting, and an answer to the coordinator's.
inline void IntroduceNode(grpc::ClientReaderWriterInterface<v1::NodeReport, v1::NodeCommand>& link,
                          v1::Registration registration, const ClusterKey& key) {
  v1::NodeReport report;
  LinkNonces nonces{.node = RandomNonce(), .coordinator = {}};
  report.mutable_greeting()->set_nonce(nonces.node);
  v1::NodeCommand command;
  if (!link.Write(report) || !link.Read(&command)) return;
  nonces.coordinator = command.greeting().nonce();
  v1::NodeProof& proof = *report.mutable_proof();
  proof.set_name(registration.name());
  proof.set_boot_id(registration.boot_id());
  proof.set_key_proof(ProveNode(key, nonces, proof.boot_id(), proof.name()));
  if (!link.Write(report)) return;
  *report.mutable_registration() = std::move(registration);
  link.Write(report);
}

class CoordinatorFixture : public ::testing::Test {
 protected:
  // Again: on the same store and, given `listen`, on the same port, as after a restart.
  void Start(const std::string& listen = testing::AnyLoopbackPort()) {
    CoordinatorOptions options;
    options.new_cluster_id = "test-cluster";
    options.key = key_;
    options.key_path = key_path_;
    options.heartbeat_interval = absl::Milliseconds(50);
    auto coordinator = Coordinator::Open(store(), options, Clock::Real().Now());
    ASSERT_THAT(coordinator, testing::IsOk());
    host_ = std::make_unique<CoordinatorHost>(*std::move(coordinator), CoordinatorHostOptions(),
                                              Clock::Real(), &metrics_);
    service_ = std::make_unique<CoordinatorService>(*host_);
    admin_service_ = std::make_unique<AdminService>(*host_);
    grpc::Service* const services[] = {service_.get(), admin_service_.get()};
    auto server = RpcServer::Start({.listen = listen}, services);
    ASSERT_THAT(server, testing::IsOk());
    server_ = *std::move(server);
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto channel = grpc::CreateCustomChannel(server_->address(),
                                                   grpc::InsecureChannelCredentials(), arguments);
    stub_ = v1::CoordinatorService::NewStub(channel);
    admin_ = v1::AdminService::NewStub(channel);
  }

  void Stop() {
    if (server_ == nullptr) return;
    host_->StopListeners();
    host_->Stop();
    server_->Shutdown(absl::Seconds(5));
    server_.reset();
    service_.reset();
    admin_service_.reset();
    host_.reset();
  }

  void TearDown() override { Stop(); }

  // The store of the coordinator's state.
  virtual StateStore& store() { return store_; }

  static v1::CreateTableRequest TableRequest(const std::string& name) {
    v1::CreateTableRequest request;
    request.set_table_json(R"({"name": ")" + name + R"(", "rows": 100, "dim": 8})");
    request.set_placement_json(R"({"sharding": "row_wise"})");
    return request;
  }

  const ClusterKeyPtr key_ = std::make_shared<const ClusterKey>(ClusterKey::Generate());
  std::string key_path_;  // Path of the key file that the coordinator names.
  MemoryStateStore store_;
  Metrics metrics_;
  std::unique_ptr<CoordinatorHost> host_;
  std::unique_ptr<CoordinatorService> service_;
  std::unique_ptr<AdminService> admin_service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::CoordinatorService::Stub> stub_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
};

}  // namespace embla
