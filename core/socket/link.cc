#include "core/socket/link.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "absl/strings/str_cat.h"
#include "core/base/failpoint.h"
#include "core/base/status_macros.h"
#include "core/tls/openssl_handles.h"

namespace embla {
namespace {

constexpr std::size_t kRecordBytes = 16 << 10;  // The most that TLS has in one.
// Records that are received with one call of the kernel.
constexpr std::size_t kReadBufferBytes = 4 * (kRecordBytes + 512);

int NumberOf(BIO* bio) {
  return static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio)));
}

// OpenSSL's own sockets raise SIGPIPE, which is the program's, not ours.
int WriteTo(BIO* bio, const char* data, int size) {
  const ssize_t sent =
      ::send(NumberOf(bio), data, static_cast<std::size_t>(size), MSG_NOSIGNAL | MSG_DONTWAIT);
  BIO_clear_retry_flags(bio);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int ReadFrom(BIO* bio, char* data, int size) {
  const ssize_t received =
      ::recv(NumberOf(bio), data, static_cast<std::size_t>(size), MSG_DONTWAIT);
  BIO_clear_retry_flags(bio);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  return static_cast<int>(received);
}

long Control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

int Create(BIO* bio) {
  BIO_set_init(bio, 1);
  return 1;
}

// Never freed: it belongs to the program.
const BIO_METHOD* SocketMethod() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* const made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    BIO_meth_set_create(made, &Create);
    BIO_meth_set_write(made, &WriteTo);
    BIO_meth_set_read(made, &ReadFrom);
    BIO_meth_set_ctrl(made, &Control);
    return made;
  }();
  return method;
}

template <typename SetUp>
absl::StatusOr<TlsContext> MakeContext(const TlsPtr& tls, const SSL_METHOD* method,
                                       const SetUp& set_up) {
  if (tls == nullptr) return TlsContext();
  SSL_CTX* const made = SSL_CTX_new(method);
  if (made == nullptr) return openssl::Failed("make a context of TLS");
  TlsContext context(made, [tls](SSL_CTX* owned) { SSL_CTX_free(owned); });
  set_up(*made);
  SSL_CTX_set_min_proto_version(made, TLS1_3_VERSION);
  // The shorter key costs less, and is what gRPC prefers, too.
  SSL_CTX_set_ciphersuites(
      made, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256");
  SSL_CTX_set_num_tickets(made, 0);
  SSL_CTX_set_mode(made, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(made, 1);
  SSL_CTX_set_default_read_buffer_len(made, kReadBufferBytes);
  return context;
}

// A peer that has vanished without a word is noticed, unless the socket is no TCP's.
void NoticeLoss(int number) {
  const auto set = [&](int level, int option, int value) {
    ::setsockopt(number, level, option, &value, sizeof(value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  // Longer than a node that is too busy to read.
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 60'000);
}

bool IsUnixSocket(int number) {
  int domain = 0;
  socklen_t size = sizeof(domain);
  return ::getsockopt(number, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

// Whether the kernel, or a filter of its calls, knows nothing of what was asked.
bool RefusesAll(int error) {
  return error == ENOSYS || error == EPERM || error == EINVAL || error == EOPNOTSUPP;
}

// The largest that any user may have: pages of a frame of 1 MiB.
constexpr int kPipeBytes = 1 << 20;

absl::Status Broken(const char* what, int error) {
  return absl::UnavailableError(
      absl::StrCat(what, ": ", error == 0 ? "the peer closed the connection" : strerror(error)));
}

}  // namespace

absl::StatusOr<TlsContext> ServerContext(const TlsPtr& tls, Tls::OnRefused on_refused) {
  return MakeContext(tls, TLS_server_method(),
                     [&](SSL_CTX& context) { tls->SetUpServer(context, std::move(on_refused)); });
}

absl::StatusOr<TlsContext> ClientContext(const TlsPtr& tls) {
  return MakeContext(tls, TLS_client_method(),
                     [&](SSL_CTX& context) { tls->SetUpClient(context); });
}

void Link::FreeSsl::operator()(ssl_st* connection) const { SSL_free(connection); }

Link::Link(FileDescriptor socket) : Link(std::move(socket), Greeting::kNone, nullptr, {}) {
  is_ready_ = true;
}

std::unique_ptr<Link> Link::ToServer(FileDescriptor socket, const TlsContext& tls,
                                     const ExpectedPeer& peer) {
  return std::unique_ptr<Link>(new Link(std::move(socket), Greeting::kSend, tls, peer));
}

std::unique_ptr<Link> Link::FromClient(FileDescriptor socket, const TlsContext& tls) {
  return std::unique_ptr<Link>(new Link(std::move(socket), Greeting::kReceive, tls, {}));
}

Link::Link(FileDescriptor socket, Greeting greeting, const TlsContext& tls, ExpectedPeer peer)
    : socket_(std::move(socket)),
      greeting_(greeting),
      expected_(std::move(peer)),
      tls_(tls),
      lends_(tls == nullptr && IsUnixSocket(number())) {
  if (greeting_ != Greeting::kNone) NoticeLoss(number());
}

Link::~Link() = default;

absl::StatusOr<std::uint32_t> Link::Prepare() {
  if (is_ready_) return 0;
  if (greeted_ < kHello.size()) {
    EMBLA_ASSIGN_OR_RETURN(const std::uint32_t waits, Greet());
    if (waits != 0) return waits;
  }
  if (tls_ != nullptr) {
    EMBLA_ASSIGN_OR_RETURN(const std::uint32_t waits, ShakeHands());
    if (waits != 0) return waits;
  }
  is_ready_ = true;
  return 0;
}

absl::StatusOr<std::uint32_t> Link::Greet() {
  const bool sends = greeting_ == Greeting::kSend;
  while (greeted_ < kHello.size()) {
    const std::string_view left = kHello.substr(greeted_);
    char came[kHello.size()];
    const ssize_t count =
        sends ? ::send(number(), left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT)
              : ::recv(number(), came, left.size(), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return std::uint32_t{sends ? EPOLLOUT : EPOLLIN};
    if (count <= 0) return Broken("cannot greet", count == 0 ? 0 : errno);
    const auto size = static_cast<std::size_t>(count);
    if (!sends && left.substr(0, size) != std::string_view(came, size)) {
      return absl::InvalidArgumentError("the peer does not greet as data sockets do");
    }
    greeted_ += size;
  }
  return 0;
}

absl::StatusOr<std::uint32_t> Link::ShakeHands() {
  MutexLock lock(mu_);
  if (ssl_ == nullptr) {
    ssl_.reset(SSL_new(tls_.get()));
    BIO* const bio = ssl_ == nullptr ? nullptr : BIO_new(SocketMethod());
    if (bio == nullptr) return openssl::Failed("begin a handshake");
    BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(number())));
    SSL_set_bio(ssl_.get(), bio, bio);
    greeting_ == Greeting::kSend ? SSL_set_connect_state(ssl_.get())
                                 : SSL_set_accept_state(ssl_.get());
  }
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_.get());
  if (result != 1) {
    const int error = SSL_get_error(ssl_.get(), result);
    if (error == SSL_ERROR_WANT_READ) return std::uint32_t{EPOLLIN};
    if (error == SSL_ERROR_WANT_WRITE) return std::uint32_t{EPOLLOUT};
    const bool has_ended = error == SSL_ERROR_SYSCALL ||
                           ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
    const absl::Status failed = openssl::Failed("shake hands");
    return has_ended ? Broken("cannot shake hands", 0)
                     : absl::UnauthenticatedError(Message(failed));
  }
  // Before a word is said.
  if (greeting_ == Greeting::kSend) EMBLA_RETURN_IF_ERROR(CheckServer(*ssl_, expected_));
  return 0;
}

std::optional<Identity> Link::peer() {
  if (tls_ == nullptr) return std::nullopt;
  MutexLock lock(mu_);
  return PeerOf(*ssl_);
}

ssize_t Link::Receive(std::span<const iovec> pieces) {
  if (tls_ == nullptr) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(pieces.data());
    message.msg_iovlen = pieces.size();
    return ::recvmsg(number(), &message, MSG_DONTWAIT);
  }
  MutexLock lock(mu_);
  std::size_t total = 0;
  for (const iovec& piece : pieces) {
    std::size_t filled = 0;
    while (filled < piece.iov_len) {
      std::size_t count = 0;
      ERR_clear_error();
      errno = 0;
      const int result = SSL_read_ex(ssl_.get(), static_cast<std::byte*>(piece.iov_base) + filled,
                                     piece.iov_len - filled, &count);
      if (result == 1) {
        filled += count;
        total += count;
        continue;
      }
      if (total > 0) return static_cast<ssize_t>(total);  // The next call says what there is.
      const int error = SSL_get_error(ssl_.get(), result);
      if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
        errno = EAGAIN;
        return -1;
      }
      if (error == SSL_ERROR_SYSCALL && errno != 0) return -1;
      if (error != SSL_ERROR_SSL) return 0;  // The end.
      errno = EPROTO;
      return -1;
    }
  }
  return static_cast<ssize_t>(total);
}

ssize_t Link::Send(std::span<const iovec> pieces) {
  if (tls_ == nullptr) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(pieces.data());
    message.msg_iovlen = pieces.size();
    return ::sendmsg(number(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  MutexLock lock(mu_);
  std::size_t total = 0;
  std::size_t skip = 0;  // Bytes of the first piece that is left.
  while (!pieces.empty()) {
    const auto* data = static_cast<const std::byte*>(pieces[0].iov_base) + skip;
    std::size_t size = pieces[0].iov_len - skip;
    if (size < kRecordBytes && pieces.size() > 1) {
      record_.resize(kRecordBytes);
      size = 0;
      for (const iovec& piece : pieces) {
        const std::size_t from = &piece == pieces.data() ? skip : 0;
        const std::size_t count = std::min(piece.iov_len - from, kRecordBytes - size);
        std::memcpy(record_.data() + size, static_cast<const std::byte*>(piece.iov_base) + from,
                    count);
        size += count;
        if (size == kRecordBytes) break;
      }
      data = record_.data();
    }
    std::size_t count = 0;
    ERR_clear_error();
    errno = 0;
    const int result = SSL_write_ex(ssl_.get(), data, std::min(size, kRecordBytes), &count);
    if (result != 1) {
      if (total > 0) break;  // The next call says what there is.
      const int error = SSL_get_error(ssl_.get(), result);
      const bool waits = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
      if (waits || errno == 0) errno = waits ? EAGAIN : EPIPE;
      return -1;
    }
    total += count;
    skip += count;
    while (!pieces.empty() && skip >= pieces[0].iov_len) {
      skip -= pieces[0].iov_len;
      pieces = pieces.subspan(1);
    }
  }
  return static_cast<ssize_t>(total);
}

ssize_t Link::Lend(std::span<const iovec> pieces) {
  std::size_t skip = piped_;  // Bytes of `next` that are in the pipe already.
  std::span<const iovec> next = pieces;
  const auto pass = [&] {
    while (!next.empty() && skip >= next[0].iov_len) {
      skip -= next[0].iov_len;
      next = next.subspan(1);
    }
  };
  pass();
  std::size_t total = 0;
  if (!Failpoint("link.lend").ok()) StopLending();
  while (true) {
    while (!next.empty() && lends()) {
      const iovec first{.iov_base = static_cast<std::byte*>(next[0].iov_base) + skip,
                        .iov_len = next[0].iov_len - skip};
      // All pieces but one that has begun go together.
      const bool is_whole = skip == 0;
      const std::span<const iovec> taken = is_whole ? next : std::span(&first, 1);
      const ssize_t count =
          OpenPipe() ? ::vmsplice(pipe_end_.number(), taken.data(), taken.size(), SPLICE_F_NONBLOCK)
                     : -1;
      if (count <= 0) {
        if (RefusesAll(errno)) StopLending();
        break;
      }
      piped_ += static_cast<std::size_t>(count);
      skip += static_cast<std::size_t>(count);
      pass();
    }
    if (piped_ == 0 && (total > 0 || next.empty())) return static_cast<ssize_t>(total);
    if (piped_ == 0) {
      errno = EOPNOTSUPP;
      return -1;
    }
    const ssize_t sent = SendPiped();
    if (sent < 0 && RefusesAll(errno)) {
      StopLending();
      errno = EOPNOTSUPP;
      return total > 0 ? static_cast<ssize_t>(total) : -1;
    }
    if (sent < 0) return total > 0 ? static_cast<ssize_t>(total) : sent;
    total += static_cast<std::size_t>(sent);
  }
}

// The pipe's content was not sent.
void Link::StopLending() {
  lends_.store(false, std::memory_order_relaxed);
  pipe_end_.Close();
  pipe_begin_.Close();
  piped_ = 0;
}

bool Link::OpenPipe() {
  if (pipe_end_.is_open()) return true;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;  // Too many are open, for now.
  pipe_begin_ = FileDescriptor(ends[0]);
  pipe_end_ = FileDescriptor(ends[1]);
  // Where it stays smaller, frames go in more steps.
  static_cast<void>(::fcntl(ends[0], F_SETPIPE_SZ, kPipeBytes));
  return true;
}

ssize_t Link::SendPiped() {
  // splice has no MSG_NOSIGNAL.
  sigset_t pipe, before;
  ::sigemptyset(&pipe);
  ::sigaddset(&pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe, &before);
  const ssize_t sent = ::splice(pipe_begin_.number(), nullptr, number(), nullptr, piped_,
                                SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
  const int error = sent < 0 ? errno : EAGAIN;
  // It may have been raised by the second half of what was to be sent.
  if (sent < static_cast<ssize_t>(piped_) && ::sigismember(&before, SIGPIPE) == 0) {
    const timespec now{};
    static_cast<void>(::sigtimedwait(&pipe, nullptr, &now));
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (sent > 0) piped_ -= static_cast<std::size_t>(sent);
  errno = error;
  return sent > 0 ? sent : -1;
}

std::size_t Link::unread() const {
  int bytes = 0;
  // The kernel counts more for a piece than its bytes.
  if (::ioctl(number(), SIOCOUTQ, &bytes) == 0) return static_cast<std::size_t>(bytes);
  return std::numeric_limits<std::size_t>::max();
}

bool Link::HasReceived() {
  if (tls_ == nullptr) return false;
  MutexLock lock(mu_);
  return SSL_has_pending(ssl_.get()) == 1;
}

}  // namespace embla
