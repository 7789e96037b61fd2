// The bytes of a connected socket, in the clear or inside TLS.
//
// Failpoint: link.lend, where a kernel refuses to lend.
//
// A connection to a port that speaks HTTP/2 as well begins with a greeting in the clear, kHello,
// which says that frames follow, after a handshake where the port has TLS.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/file_descriptor.h"
#include "core/base/mutex.h"
#include "core/tls/tls.h"

namespace embla {

// Bytes 0 of HTTP/2's and of TLS's own greetings differ from it.
inline constexpr std::string_view kHello = "EMBLA/1\n";

// The settings of one end's connections over TLS; holds the Tls. Null: plaintext.
using TlsContext = std::shared_ptr<ssl_ctx_st>;
// `tls` may be null, and so may `on_refused`. Internal: OpenSSL has no memory.
absl::StatusOr<TlsContext> ServerContext(const TlsPtr& tls, Tls::OnRefused on_refused = nullptr);
absl::StatusOr<TlsContext> ClientContext(const TlsPtr& tls);

// Thread safety: one thread may receive while another sends; the rest is one thread's.
class Link {
 public:
  // Is ready.
  explicit Link(FileDescriptor socket);
  // An end of a connection, which may still be on its way; `socket` does not block.
  static std::unique_ptr<Link> ToServer(FileDescriptor socket, const TlsContext& tls,
                                        const ExpectedPeer& peer);
  static std::unique_ptr<Link> FromClient(FileDescriptor socket, const TlsContext& tls);
  ~Link();

  int number() const { return socket_.number(); }
  // Greets, and shakes hands. 0: it is ready. Otherwise the events of epoll that it waits for, to
  // be called again then. Unavailable, InvalidArgument, Unauthenticated: the connection is over.
  absl::StatusOr<std::uint32_t> Prepare();
  bool is_ready() const { return is_ready_; }
  // The other end's identity, over TLS, once it is ready; nothing: it has shown no certificate.
  std::optional<Identity> peer();

  // recvmsg and sendmsg on a socket that does not block.
  ssize_t Receive(std::span<const iovec> pieces);
  // After EAGAIN the next call has to begin with the same bytes, and may have more behind them.
  ssize_t Send(std::span<const iovec> pieces);
  // Whether Lend saves a copy: on a unix socket in the clear, unless the kernel has refused.
  bool lends() const { return lends_.load(std::memory_order_relaxed); }
  // The same as Send, but the kernel refers to the pages in place of copying them (vmsplice): their
  // bytes stay as they are until unread() says that the peer has them. What is not sent goes on by
  // Lend, or, after EOPNOTSUPP, by Send: the kernel, or this memory, does not do for it.
  ssize_t Lend(std::span<const iovec> pieces);
  // No fewer bytes than the peer has not read of what it was sent. Requires: lends() was true.
  std::size_t unread() const;
  // Bytes have been received that no event will tell of.
  bool HasReceived();

  void Shutdown() { ::shutdown(socket_.number(), SHUT_RDWR); }

 private:
  enum class Greeting : std::uint8_t { kNone, kSend, kReceive };
  struct FreeSsl {
    void operator()(ssl_st* connection) const;
  };

  Link(FileDescriptor socket, Greeting greeting, const TlsContext& tls, ExpectedPeer peer);
  bool OpenPipe();
  void StopLending();
  // Moves bytes from the pipe to the socket, like send.
  ssize_t SendPiped();
  absl::StatusOr<std::uint32_t> Greet();
  absl::StatusOr<std::uint32_t> ShakeHands();

  const FileDescriptor socket_;
  const Greeting greeting_;
  const ExpectedPeer expected_;  // By ToServer.
  const TlsContext tls_;
  std::size_t greeted_ = 0;  // Bytes of kHello.
  bool is_ready_ = false;
  std::atomic<bool> lends_;  // Relaxed: Lend sends in any case.
  // By which pages get into the socket; what is in it is not sent. The sending thread's.
  FileDescriptor pipe_end_, pipe_begin_;
  std::size_t piped_ = 0;  // Bytes in it.
  // OpenSSL's objects are for one thread at a time.
  Mutex mu_;
  std::unique_ptr<ssl_st, FreeSsl> ssl_ ABSL_GUARDED_BY(mu_);  // Null: plaintext.
  std::vector<std::byte> record_ ABSL_GUARDED_BY(mu_);         // Short pieces that go together.
};

}  // namespace embla
