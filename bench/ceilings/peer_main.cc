// embla-ceiling-peer: answers every request with as many bytes as its first 8 bytes ask for, over
// raw gRPC byte buffers and over plain TCP. Prints "<grpc address> <tcp address>" when ready, and
// ends when its parent does.

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <sys/prctl.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/ceilings/tcp.h"
#include "core/base/buffer.h"
#include "core/base/heap.h"
#include "core/base/mutex.h"

namespace embla::bench {
namespace {

constexpr std::uint64_t kReplyBytesMax = std::uint64_t{1} << 30;

std::uint64_t ReplyBytes(const grpc::ByteBuffer& request) {
  std::vector<grpc::Slice> slices;
  if (!request.Dump(&slices).ok()) return 0;
  char header[8] = {};
  std::size_t at = 0;
  for (const grpc::Slice& slice : slices) {
    const std::size_t size = std::min(slice.size(), sizeof(header) - at);
    std::memcpy(header + at, slice.begin(), size);
    at += size;
    if (at == sizeof(header)) break;
  }
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, header, sizeof(bytes));
  return std::min(bytes, kReplyBytesMax);
}

grpc::ByteBuffer PooledReply(BufferPool& pool, std::size_t bytes) {
  auto* const buffer = new Buffer(pool.Take(bytes));
  const grpc::Slice slice(
      buffer->data(), bytes, [](void* owner) { delete static_cast<Buffer*>(owner); }, buffer);
  return grpc::ByteBuffer(&slice, 1);
}

// Serves unary calls and streams alike: a reply per request, writes one at a time.
class Reactor final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Reactor(BufferPool& pool) : pool_(pool) { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      bool finish = false;
      {
        MutexLock lock(mu_);
        closed_ = true;
        finish = !writing_;
      }
      if (finish) Finish(grpc::Status::OK);
      return;
    }
    grpc::ByteBuffer reply = PooledReply(pool_, ReplyBytes(request_));
    request_.Clear();
    bool start = false;
    {
      MutexLock lock(mu_);
      replies_.push_back(std::move(reply));
      start = !writing_;
      writing_ = true;
    }
    if (start) WriteNext();
    StartRead(&request_);
  }
  void OnWriteDone(bool ok) override {
    bool more = false, finish = false;
    {
      MutexLock lock(mu_);
      replies_.pop_front();
      more = ok && !replies_.empty();
      writing_ = more;
      finish = !more && closed_;
    }
    if (more) WriteNext();
    if (finish) Finish(grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  void WriteNext() {
    const grpc::ByteBuffer* next = nullptr;
    {
      MutexLock lock(mu_);
      next = &replies_.front();
    }
    StartWrite(next);
  }

  BufferPool& pool_;  // Not owned; outlives this object.
  grpc::ByteBuffer request_;
  Mutex mu_;
  std::deque<grpc::ByteBuffer> replies_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

class Service final : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Reactor(pool_);
  }

 private:
  BufferPool pool_;
};

void ServeTcp(TcpSocket socket) {
  std::vector<char> request, reply;
  std::uint64_t sizes[2];
  while (socket.ReceiveAll(sizes, sizeof(sizes)) && sizes[0] <= kReplyBytesMax &&
         sizes[1] >= sizeof(sizes) && sizes[1] <= kReplyBytesMax) {
    request.resize(sizes[1] - sizeof(sizes));
    reply.resize(sizes[0]);
    if (!socket.ReceiveAll(request.data(), request.size()) ||
        !socket.SendAll(reply.data(), reply.size())) {
      return;
    }
  }
}

int Main() {
  // The settings of the service that is compared with this.
  KeepFewArenas();
  if (!KeepHeap(kKeptHeapBytes).ok()) std::fprintf(stderr, "malloc keeps no heap\n");
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Service service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(-1);
  builder.RegisterCallbackGenericService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto listener = TcpSocket::Listen();
  if (server == nullptr || !listener.ok()) return 1;
  std::printf("127.0.0.1:%d %s\n", port, listener->LocalAddress().c_str());
  std::fflush(stdout);
  while (true) {
    auto socket = listener->Accept();
    if (!socket.ok()) return 1;
    std::thread(ServeTcp, *std::move(socket)).detach();
  }
}

}  // namespace
}  // namespace embla::bench

int main() { return embla::bench::Main(); }
