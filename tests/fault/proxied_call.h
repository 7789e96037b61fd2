// One call on its way through a FaultProxy: two reactors and a queue of messages for each way.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include <grpcpp/client_context.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/client_callback.h>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "core/base/mutex.h"
#include "tests/fault/fault_proxy.h"

namespace embla::fault {

// Thread safety: every method may be called from any thread. Lives until both sides are done.
class ProxiedCall final : public std::enable_shared_from_this<ProxiedCall> {
 public:
  ProxiedCall(FaultProxy& proxy, std::uint64_t id, grpc::GenericCallbackServerContext* call);

  // Begins; the reactor is gRPC's from then on.
  grpc::ServerGenericBidiReactor* Begin();
  // In one line.
  std::string Describe();
  // Ends the call with Unavailable, wherever it is.
  void Break();

 private:
  // Messages of one way, in order; each has a time before which it must not go on.
  struct Pipe {
    struct Message {
      grpc::ByteBuffer bytes;
      absl::Time ready;
    };
    std::deque<Message> queue;
    grpc::ByteBuffer in_flight;
    absl::Time last_ready = absl::InfinitePast();
    std::uint64_t passed = 0;  // Messages.
    bool is_writing = false;
    bool is_closed = false;  // Nothing more comes in,
    bool is_ended = false;   // and that has been told.
  };

  // Towards the caller.
  class Downstream final : public grpc::ServerGenericBidiReactor {
   public:
    explicit Downstream(ProxiedCall& call) : call_(call) {}
    void OnReadDone(bool ok) override { call_.OnRequest(ok); }
    void OnWriteDone(bool) override { call_.OnReplyWritten(); }
    void OnCancel() override { call_.Break(); }
    void OnDone() override;
    std::shared_ptr<ProxiedCall> self;

   private:
    ProxiedCall& call_;
  };
  class Upstream final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
   public:
    explicit Upstream(ProxiedCall& call) : call_(call) {}
    void OnReadDone(bool ok) override { call_.OnReply(ok); }
    void OnWriteDone(bool) override { call_.OnRequestWritten(); }
    void OnDone(const grpc::Status& status) override;
    std::shared_ptr<ProxiedCall> self;

   private:
    ProxiedCall& call_;
  };

  void OnRequest(bool ok);
  void OnRequestWritten();
  void OnReply(bool ok);
  void OnReplyWritten();
  void OnUpstreamDone(const grpc::Status& status);

  bool is_unary() const;
  bool IsAboutUnits(const grpc::ByteBuffer& message) const;
  void Admit(Pipe& pipe, const grpc::ByteBuffer& bytes, const Fate& fate)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether the front of `pipe` may go on now; if not, the call looks again when it may.
  bool MayPass(const Pipe& pipe) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PumpRequests() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PumpReplies() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void BreakLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FinishLocked(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  FaultProxy& proxy_;
  const std::uint64_t id_;
  const std::string method_;
  Downstream down_;
  Upstream up_;
  grpc::ClientContext context_;
  std::shared_ptr<grpc::GenericStub> stub_;

  Mutex mu_;
  grpc::ByteBuffer request_ ABSL_GUARDED_BY(mu_);  // Being read.
  grpc::ByteBuffer reply_ ABSL_GUARDED_BY(mu_);    // Being read.
  Pipe requests_ ABSL_GUARDED_BY(mu_);
  Pipe replies_ ABSL_GUARDED_BY(mu_);
  std::optional<grpc::Status> status_ ABSL_GUARDED_BY(mu_);  // The upstream's.
  bool drop_reply_ ABSL_GUARDED_BY(mu_) = false;
  bool upstream_reads_ ABSL_GUARDED_BY(mu_) = false;  // True: the upstream may be written to.
  bool is_finished_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace embla::fault
