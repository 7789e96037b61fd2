#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "bench/ceilings/ceiling.h"
#include "bench/ceilings/messages.h"
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
      : replies(load.in_flight, std::vector<char>(load.reply_bytes)),
        load_(load),
        requests_(MakeRequests(load)),
        remaining_(load.requests) {}

  // The number of a request that may still be sent, or -1.
  int TakeRequest() {
    MutexLock lock(mu_);
    return sent_ < load_.requests ? sent_++ : -1;
  }
  const std::vector<char>& request(int number) const {
    return requests_[number % requests_.size()];
  }
  bool IsAnswered(int number, int lane) const {
    return bench::IsAnswered(load_, request(number), replies[lane]);
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

  std::vector<std::vector<char>> replies;  // One per request in flight.

 private:
  const Load load_;
  const std::vector<std::vector<char>> requests_;
  Mutex mu_;
  CondVar done_;
  int sent_ ABSL_GUARDED_BY(mu_) = 0;
  int remaining_ ABSL_GUARDED_BY(mu_);
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
};

absl::Status NoAnswer() {
  return absl::UnavailableError("the ceiling peer does not answer, or wrongly");
}

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
    for (int lane = 0; lane < load.in_flight; ++lane) Next(exchange, lane);
    if (!exchange.WaitAll()) return NoAnswer();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

 private:
  struct Call {
    grpc::ClientContext context;
    grpc::ByteBuffer request;
    grpc::ByteBuffer reply;
  };

  void Next(Exchange& exchange, int lane) {
    const int number = exchange.TakeRequest();
    if (number < 0) return;
    auto* const call = new Call;
    call->request = Borrow(exchange.request(number));
    stub_.UnaryCall(&call->context, "/embla.ceiling/Unary", {}, &call->request, &call->reply,
                    [this, &exchange, number, lane, call](const grpc::Status& status) {
                      if (status.ok()) CopyOut(call->reply, exchange.replies[lane]);
                      delete call;
                      const bool ok = status.ok() && exchange.IsAnswered(number, lane);
                      if (ok) Next(exchange, lane);
                      exchange.Finished(ok);
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
    if (!ok) return NoAnswer();
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
      const bool answered = exchange_.IsAnswered(received_++, 0);  // The peer keeps their order.
      StartRead(&reply_);
      SendMore(1);
      exchange_.Finished(answered);
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
      while (granted < count && exchange_.TakeRequest() >= 0) ++granted;
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
      request_ = Borrow(exchange_.request(written_++));
      StartWrite(&request_);
    }

    Exchange& exchange_;
    const Load load_;
    grpc::ClientContext context_;
    grpc::ByteBuffer request_;
    grpc::ByteBuffer reply_;
    int written_ = 0;
    int received_ = 0;
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
