// Streams of the callback API whose owner waits for each message, as with gRPC's synchronous API.
//
// A thread that waits in the synchronous API is one of those that gRPC lets poll for the whole
// process: it is woken for the messages of other streams, reads them, and wakes the thread that
// serves them. A stream that lives as long as its process would slow all others down.
#pragma once

#include <grpcpp/support/client_callback.h>

#include "core/base/mutex.h"
#include "core/wire/callback_queue.h"

namespace embla::wire {

// `Reactor` is grpc::ClientReadReactor<Response>, or what WaitedStream makes of it. Order of calls:
// the stub's async() function with this object, Begin, Reads, Finish, which has to be called before
// this object is destroyed.
//
// Thread safety: one thread reads.
template <typename Reactor, typename Response>
class WaitedReads : public Reactor {
 public:
  void Begin() {
    KeepCallbackQueue();
    this->AddHold();  // Operations start outside of reactions.
    this->StartCall();
  }
  // False: nothing more comes, and Finish says why.
  bool Read(Response* response) {
    {
      MutexLock lock(mu_);
      read_ = Step::kRuns;
    }
    this->StartRead(response);
    return Await(read_);
  }
  // Waits until the stream is over: the other end has finished it, or it is cancelled.
  grpc::Status Finish() {
    this->RemoveHold();
    MutexLock lock(mu_);
    while (!is_over_) changed_.Wait(mu_);
    return status_;
  }

 protected:
  enum class Step { kRuns, kDone, kFailed };

  bool Await(const Step& step) {
    MutexLock lock(mu_);
    while (step == Step::kRuns) changed_.Wait(mu_);
    return step == Step::kDone;
  }
  void End(Step& step, bool ok) {
    MutexLock lock(mu_);
    step = ok ? Step::kDone : Step::kFailed;
    changed_.NotifyAll();
  }

  Mutex mu_;

 private:
  void OnReadDone(bool ok) override { End(read_, ok); }
  void OnDone(const grpc::Status& status) override {
    MutexLock lock(mu_);
    status_ = status;
    is_over_ = true;
    changed_.NotifyAll();
  }

  CondVar changed_;
  Step read_ = Step::kDone;
  bool is_over_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mu_);
};

template <typename Response>
using WaitedReader = WaitedReads<grpc::ClientReadReactor<Response>, Response>;

// Thread safety: one thread reads, and one writes.
template <typename Request, typename Response>
class WaitedStream final
    : public WaitedReads<grpc::ClientBidiReactor<Request, Response>, Response> {
 public:
  // Waits until `request` is sent. False: the stream is over, or about to be.
  bool Write(const Request& request) {
    {
      MutexLock lock(this->mu_);
      write_ = Step::kRuns;
    }
    this->StartWrite(&request);
    return this->Await(write_);
  }

 private:
  using Step = typename WaitedStream::Step;

  void OnWriteDone(bool ok) override { this->End(write_, ok); }

  Step write_ = Step::kDone;
};

}  // namespace embla::wire
