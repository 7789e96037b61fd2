// How servers call each other, over gRPC: one connection per peer address.
#pragma once

#include <map>
#include <memory>
#include <string>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include "core/base/buffer.h"
#include "core/base/mutex.h"
#include "server/mover/move_transport.h"
#include "server/shard/replica_transport.h"

namespace embla {

// Thread safety: every method may be called from any thread.
class PeerChannel final : public ReplicaTransport, public MoveTransport {
 public:
  PeerChannel() = default;
  // Every `done` of a replica's message must have run.
  ~PeerChannel() override = default;

  void Send(const NodeSpec& node, const ReplicaMessage& message, absl::Duration timeout,
            ReplicaDone done) override;
  void Send(const std::string& address, PeerMessage message, MoveTransport::Done done) override;

 private:
  using Stub = grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>;

  std::shared_ptr<Stub> StubFor(const std::string& address);

  Mutex mu_;
  std::map<std::string, std::shared_ptr<Stub>> stubs_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla
