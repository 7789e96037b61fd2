// embla-ceiling-peer: answers every request with as many bytes as its header asks for, after the
// work that it asks for, over raw gRPC byte buffers and over plain TCP. Prints "<grpc address> <tcp
// address>" when ready, and ends when its parent does.

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <sys/prctl.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/ceilings/messages.h"
#include "bench/ceilings/row_work.h"
#include "bench/ceilings/tcp.h"
#include "core/base/buffer.h"
#include "core/base/heap.h"
#include "core/base/mutex.h"

namespace embla::bench {
namespace {

constexpr std::uint64_t kReplyBytesMax = std::uint64_t{1} << 30;

// Copies as many bytes of the message as `target` has.
void CopyOut(const grpc::ByteBuffer& message, std::span<std::byte> target) {
  std::vector<grpc::Slice> slices;
  if (!message.Dump(&slices).ok()) return;
  std::size_t at = 0;
  for (const grpc::Slice& slice : slices) {
    const std::size_t size = std::min(slice.size(), target.size() - at);
    std::memcpy(target.data() + at, slice.begin(), size);
    at += size;
    if (at == target.size()) return;
  }
}

grpc::ByteBuffer Answer(const grpc::ByteBuffer& request, RowWork& work, BufferPool& pool) {
  RequestHeader header;
  CopyOut(request, std::as_writable_bytes(std::span(&header, 1)));
  const std::size_t bytes = std::min(header.reply_bytes, kReplyBytesMax);
  auto* const reply = new Buffer(pool.Take(bytes));
  if (header.work != Work::kNone) {
    // In one piece: the floats in gRPC's slices are not aligned.
    Buffer whole = pool.Take(request.Length());
    CopyOut(request, whole.bytes());
    work.Do(header, std::as_const(whole).bytes().subspan(sizeof(header)), reply->bytes());
  }
  const grpc::Slice slice(
      reply->data(), bytes, [](void* owner) { delete static_cast<Buffer*>(owner); }, reply);
  return grpc::ByteBuffer(&slice, 1);
}

// Serves unary calls and streams alike: a reply per request, writes one at a time.
class Reactor final : public grpc::ServerGenericBidiReactor {
 public:
  Reactor(RowWork& work, BufferPool& pool) : work_(work), pool_(pool) { StartRead(&request_); }

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
    grpc::ByteBuffer reply = Answer(request_, work_, pool_);
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

  RowWork& work_;     // Not owned; outlives this object.
  BufferPool& pool_;  // Not owned; outlives this object.
  grpc::ByteBuffer request_;
  Mutex mu_;
  std::deque<grpc::ByteBuffer> replies_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

class Service final : public grpc::CallbackGenericService {
 public:
  explicit Service(RowWork& work) : work_(work) {}

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Reactor(work_, pool_);
  }

 private:
  RowWork& work_;  // Not owned; outlives this object.
  BufferPool pool_;
};

void ServeTcp(TcpSocket socket, RowWork& work) {
  std::vector<std::byte> request, reply;
  RequestHeader header;
  while (socket.ReceiveAll(&header, sizeof(header)) && header.reply_bytes <= kReplyBytesMax &&
         header.request_bytes >= sizeof(header) && header.request_bytes <= kReplyBytesMax) {
    request.resize(header.request_bytes - sizeof(header));
    reply.resize(header.reply_bytes);
    if (!socket.ReceiveAll(request.data(), request.size())) return;
    work.Do(header, request, reply);
    if (!socket.SendAll(reply.data(), reply.size())) return;
  }
}

int Main() {
  // The settings of the service that is compared with this.
  KeepFewArenas();
  if (!KeepHeap(kKeptHeapBytes).ok()) std::fprintf(stderr, "malloc keeps no heap\n");
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  RowWork work;
  Service service(work);
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
    std::thread(ServeTcp, *std::move(socket), std::ref(work)).detach();
  }
}

}  // namespace
}  // namespace embla::bench

int main() { return embla::bench::Main(); }
