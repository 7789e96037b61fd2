#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "bench/ceilings/ceiling.h"
#include "core/base/mutex.h"

namespace embla::bench {
namespace {

using GenericStub = grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>;

// A caller's request memory, handed to gRPC without a copy, as the client hands over gradients.
grpc::ByteBuffer Borrow(const std::vector<char>& bytes) {
  const grpc::Slice slice(grpc_slice_from_static_buffer(bytes.data(), bytes.size()),
                          grpc::Slice::STEAL_REF);
  return grpc::ByteBuffer(&slice, 1);
}

void CopyOut(const grpc::ByteBuffer& reply, std::vector<char>& target) {
  std::vector<grpc::Slice> slices;
  if (!reply.Dump(&slices).ok()) return;
  std::size_t at = 0;
  for (const grpc::Slice& slice : slices) {
    const std::size_t size = std::min(slice.size(), target.size() - at);
    std::memcpy(target.data() + at, slice.begin(), size);
    at += size;
  }
}

// The memory of one Run; counts replies until all have arrived.
class Exchange {
 public:
  explicit Exchange(const Load& load)
      : request(load.request_bytes < 8 ? 8 : load.request_bytes),
        replies(load.in_flight, std::vector<char>(load.reply_bytes)),
        remaining_(load.requests) {
    const std::uint64_t reply_bytes = load.reply_bytes;
    std::memcpy(request.data(), &reply_bytes, sizeof(reply_bytes));
  }

  // Whether another request may still be sent.
  bool TakeRequest(int limit) {
    MutexLock lock(mu_);
    if (sent_ >= limit) return false;
    ++sent_;
    return true;
  }
  void Finished(bool ok) {
    MutexLock lock(mu_);
    failed_ |= !ok;
    --remaining_;
    done_.NotifyAll();
  }
  bool WaitAll() {
    MutexLock lock(mu_);
    while (remaining_ > 0 && !failed_) done_.Wait(mu_);
    return !failed_;
  }

  std::vector<char> request;
  std::vector<std::vector<char>> replies;  // One per request in flight.

 private:
  Mutex mu_;
  CondVar done_;
  int sent_ ABSL_GUARDED_BY(mu_) = 0;
  int remaining_ ABSL_GUARDED_BY(mu_);
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
};

std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

class UnaryCeiling final : public Ceiling {
 public:
  explicit UnaryCeiling(const std::string& address) : stub_(OpenChannel(address)) {}

  std::string name() const override { return "raw gRPC unary"; }

  absl::StatusOr<double> Run(const Load& load) override {
    Exchange exchange(load);
    const auto begin = std::chrono::steady_clock::now();
    for (int lane = 0; lane < load.in_flight; ++lane) Next(exchange, load, lane);
    if (!exchange.WaitAll()) return absl::UnavailableError("the ceiling peer does not answer");
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

 private:
  struct Call {
    grpc::ClientContext context;
    grpc::ByteBuffer request;
    grpc::ByteBuffer reply;
  };

  void Next(Exchange& exchange, const Load& load, int lane) {
    if (!exchange.TakeRequest(load.requests)) return;
    auto* const call = new Call;
    call->request = Borrow(exchange.request);
    stub_.UnaryCall(&call->context, "/embla.ceiling/Unary", {}, &call->request, &call->reply,
                    [this, &exchange, load, lane, call](const grpc::Status& status) {
                      if (status.ok()) CopyOut(call->reply, exchange.replies[lane]);
                      delete call;
                      if (status.ok()) Next(exchange, load, lane);
                      exchange.Finished(status.ok());
                    });
  }

  GenericStub stub_;
};

class StreamCeiling final : public Ceiling {
 public:
  explicit StreamCeiling(const std::string& address) : stub_(OpenChannel(address)) {}

  std::string name() const override { return "raw gRPC stream"; }

  absl::StatusOr<double> Run(const Load& load) override {
    Exchange exchange(load);
    Reactor reactor(stub_, exchange, load);
    const auto begin = std::chrono::steady_clock::now();
    reactor.Start();
    const bool ok = exchange.WaitAll();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    reactor.Close();
    if (!ok) return absl::UnavailableError("the ceiling peer does not answer");
    return seconds;
  }

 private:
  class Reactor final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
   public:
    Reactor(GenericStub& stub, Exchange& exchange, const Load& load)
        : exchange_(exchange), load_(load) {
      stub.PrepareBidiStreamingCall(&context_, "/embla.ceiling/Stream", {}, this);
    }

    void Start() {
      AddHold();  // Writes start outside of reactions, too.
      StartCall();
      StartRead(&reply_);
      SendMore(load_.in_flight);
    }
    void Close() {
      context_.TryCancel();
      RemoveHold();
      MutexLock lock(mu_);
      while (!done_) ended_.Wait(mu_);
    }

    void OnReadDone(bool ok) override {
      if (!ok) {
        exchange_.Finished(false);
        return;
      }
      CopyOut(reply_, exchange_.replies[0]);
      reply_.Clear();
      StartRead(&reply_);
      SendMore(1);
      exchange_.Finished(true);
    }
    void OnWriteDone(bool ok) override {
      bool again = false;
      {
        MutexLock lock(mu_);
        again = ok && queued_ > 0;
        if (again) --queued_;
        writing_ = again;
      }
      if (again) Write();
    }
    void OnDone(const grpc::Status&) override {
      MutexLock lock(mu_);
      done_ = true;
      ended_.NotifyAll();
    }

   private:
    void SendMore(int count) {
      int granted = 0;
      while (granted < count && exchange_.TakeRequest(load_.requests)) ++granted;
      bool start = false;
      {
        MutexLock lock(mu_);
        queued_ += granted;
        start = !writing_ && queued_ > 0;
        if (start) {
          --queued_;
          writing_ = true;
        }
      }
      if (start) Write();
    }
    void Write() {
      request_ = Borrow(exchange_.request);
      StartWrite(&request_);
    }

    Exchange& exchange_;
    const Load load_;
    grpc::ClientContext context_;
    grpc::ByteBuffer request_;
    grpc::ByteBuffer reply_;
    Mutex mu_;
    CondVar ended_;
    int queued_ ABSL_GUARDED_BY(mu_) = 0;
    bool writing_ ABSL_GUARDED_BY(mu_) = false;
    bool done_ ABSL_GUARDED_BY(mu_) = false;
  };

  GenericStub stub_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Ceiling>> GrpcUnaryCeiling(const CeilingPeer& peer) {
  return std::make_unique<UnaryCeiling>(peer.grpc_address());
}

absl::StatusOr<std::unique_ptr<Ceiling>> GrpcStreamCeiling(const CeilingPeer& peer) {
  return std::make_unique<StreamCeiling>(peer.grpc_address());
}

}  // namespace embla::bench
