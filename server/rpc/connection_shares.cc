#include "server/rpc/connection_shares.h"

#include <dlfcn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "server/rpc/http2_parts.h"
#include "server/rpc/peer_address.h"

namespace embla {

// The account of the connection that has a certain descriptor. Accounts live as long as the
// process, so that whoever has a descriptor's number may look.
class ConnectionAccount {
 public:
  void Open(ConnectionId id, int number, ConnectionShares& shares);
  // The descriptor is about to be closed.
  void Close();
  // The shares are no more.
  void Leave(const ConnectionShares& shares);

  // Counts bytes that the socket has received or sent. False: the connection has been ended.
  bool Receive(const msghdr& message, std::size_t bytes);
  bool Send(const msghdr& message, std::size_t bytes);

  ConnectionId id() const;
  void ShowSession(ConnectionId id);
  void ShowPeer(ConnectionId id);
  void TakeBeside(ConnectionId id, std::size_t bytes);
  void GiveBackBeside(ConnectionId id, std::size_t bytes);

  // Bytes that it holds as one of the strangers of `shares`.
  std::size_t BytesIn(const ConnectionShares* shares) const;
  void EndIfIn(const ConnectionShares* shares);

 private:
  enum class Role { kStranger, kSession, kPeer };

  bool IsOpen(ConnectionId id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return shares_ != nullptr && id_ == id && !is_ended_;
  }
  // Corrects what the strangers hold, and ends the connection if it holds too much. Returns its
  // shares if all strangers hold too much: the one with most is to be ended, without mu_.
  const ConnectionShares* Settle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetBytes(std::size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void End(std::size_t bytes, std::size_t bytes_max) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  ConnectionId id_ ABSL_GUARDED_BY(mu_){};
  int number_ ABSL_GUARDED_BY(mu_) = -1;
  ConnectionShares* shares_ ABSL_GUARDED_BY(mu_) = nullptr;  // Null: not open, or not bounded.
  Role role_ ABSL_GUARDED_BY(mu_) = Role::kStranger;
  bool is_ended_ ABSL_GUARDED_BY(mu_) = false;
  Http2Parts parts_ ABSL_GUARDED_BY(mu_);
  std::size_t beside_ ABSL_GUARDED_BY(mu_) = 0;
  std::size_t bytes_ ABSL_GUARDED_BY(mu_) = 0;   // A stranger's, part of strangers_bytes_.
  std::size_t ending_ ABSL_GUARDED_BY(mu_) = 0;  // Once it is ended, part of ending_bytes_.
};

namespace {

constexpr int kNumberBits = 20;
// Beside what has come, gRPC has buffers for what comes next, of about the same size up to this.
constexpr std::size_t kReadAheadBytes = std::size_t{256} << 10;
static_assert(std::size_t{1} << kNumberBits == ConnectionShares::kDescriptorsMax);

// By descriptor. Accounts are made some at a time, so that those that stay hold no pages between
// the memory of connections that are over. Null: none of them was a connection's yet.
using Block = std::array<ConnectionAccount, 256>;
constinit std::array<std::atomic<Block*>, ConnectionShares::kDescriptorsMax / 256> blocks{};
constinit std::atomic<std::uint64_t> last_serial = 0;

ConnectionAccount* AccountAt(int number) {
  const auto at = static_cast<std::size_t>(number);
  if (at >= ConnectionShares::kDescriptorsMax) return nullptr;
  // Pairs with MakeAccount's exchange.
  Block* const block = blocks[at / 256].load(std::memory_order_acquire);
  return block == nullptr ? nullptr : &(*block)[at % 256];
}

ConnectionAccount* AccountOf(ConnectionId id) {
  return AccountAt(
      static_cast<int>(static_cast<std::size_t>(id) % ConnectionShares::kDescriptorsMax));
}

ConnectionAccount& MakeAccount(int number) {
  if (ConnectionAccount* const account = AccountAt(number)) return *account;
  auto made = std::make_unique<Block>();
  Block* block = nullptr;
  const auto at = static_cast<std::size_t>(number);
  if (blocks[at / 256].compare_exchange_strong(block, made.get(), std::memory_order_acq_rel)) {
    block = made.release();
  }
  return (*block)[at % 256];
}

template <typename Do>
void ForEachAccount(const Do& run) {
  for (const std::atomic<Block*>& each : blocks) {
    Block* const block = each.load(std::memory_order_acquire);
    if (block != nullptr) std::for_each(block->begin(), block->end(), run);
  }
}

void EndLargest(const ConnectionShares* shares) {
  ConnectionAccount* largest = nullptr;
  std::size_t most = 0;
  ForEachAccount([&](ConnectionAccount& account) {
    const std::size_t bytes = account.BytesIn(shares);
    if (bytes <= most) return;
    largest = &account;
    most = bytes;
  });
  if (largest != nullptr) largest->EndIfIn(shares);
}

// The first `bytes` of the message's buffers, one after the other.
template <typename Take>
void ForEachBuffer(const msghdr& message, std::size_t bytes, const Take& take) {
  for (std::size_t i = 0; bytes > 0; ++i) {
    const iovec& buffer = message.msg_iov[i];
    const std::size_t filled = std::min(bytes, buffer.iov_len);
    take(std::span(static_cast<const std::byte*>(buffer.iov_base), filled));
    bytes -= filled;
  }
}

}  // namespace

void ConnectionAccount::Open(ConnectionId id, int number, ConnectionShares& shares) {
  MutexLock lock(mu_);
  id_ = id;
  number_ = number;
  shares_ = &shares;
  role_ = Role::kStranger;
  is_ended_ = false;
  parts_ = Http2Parts();
  beside_ = 0;
}

void ConnectionAccount::Close() {
  MutexLock lock(mu_);
  if (shares_ != nullptr) {
    SetBytes(0);
    shares_->ending_bytes_.fetch_sub(std::exchange(ending_, 0), std::memory_order_relaxed);
  }
  shares_ = nullptr;
  id_ = {};
  is_ended_ = false;
  parts_ = Http2Parts();
}

void ConnectionAccount::Leave(const ConnectionShares& shares) {
  MutexLock lock(mu_);
  if (shares_ == &shares) shares_ = nullptr;
}

bool ConnectionAccount::Receive(const msghdr& message, std::size_t bytes) {
  const ConnectionShares* crowded = nullptr;
  bool is_ended = false;
  {
    MutexLock lock(mu_);
    if (IsOpen(id_) && role_ != Role::kPeer) {
      ForEachBuffer(message, bytes,
                    [&parts = parts_](std::span<const std::byte> part) { parts.OnReceived(part); });
      crowded = Settle();
    }
    is_ended = is_ended_;
  }
  if (crowded == nullptr) return !is_ended;
  EndLargest(crowded);
  MutexLock lock(mu_);
  return !is_ended_;
}

bool ConnectionAccount::Send(const msghdr& message, std::size_t bytes) {
  MutexLock lock(mu_);
  if (IsOpen(id_) && role_ != Role::kPeer) {
    ForEachBuffer(message, bytes,
                  [&parts = parts_](std::span<const std::byte> part) { parts.OnSent(part); });
    Settle();  // There is not more than before.
  }
  return !is_ended_;
}

ConnectionId ConnectionAccount::id() const {
  MutexLock lock(mu_);
  return id_;
}

void ConnectionAccount::ShowSession(ConnectionId id) {
  MutexLock lock(mu_);
  if (!IsOpen(id) || role_ != Role::kStranger) return;
  role_ = Role::kSession;
  Settle();
}

void ConnectionAccount::ShowPeer(ConnectionId id) {
  MutexLock lock(mu_);
  if (!IsOpen(id) || role_ == Role::kPeer) return;
  role_ = Role::kPeer;
  parts_ = Http2Parts();
  Settle();
}

void ConnectionAccount::TakeBeside(ConnectionId id, std::size_t bytes) {
  const ConnectionShares* crowded = nullptr;
  {
    MutexLock lock(mu_);
    if (!IsOpen(id)) return;
    beside_ += bytes;
    crowded = Settle();
  }
  if (crowded != nullptr) EndLargest(crowded);
}

void ConnectionAccount::GiveBackBeside(ConnectionId id, std::size_t bytes) {
  MutexLock lock(mu_);
  if (!IsOpen(id)) return;
  beside_ -= bytes;
  Settle();
}

std::size_t ConnectionAccount::BytesIn(const ConnectionShares* shares) const {
  MutexLock lock(mu_);
  return shares_ == shares ? bytes_ : 0;
}

void ConnectionAccount::EndIfIn(const ConnectionShares* shares) {
  MutexLock lock(mu_);
  if (shares_ != shares || role_ != Role::kStranger || is_ended_) return;
  End(bytes_, shares_->limits_.strangers_bytes_max);
}

const ConnectionShares* ConnectionAccount::Settle() {
  const ConnectionShareLimits& limits = shares_->limits_;
  if (role_ != Role::kStranger) {
    SetBytes(0);
    if (parts_.bytes() > limits.session_bytes_max) End(parts_.bytes(), limits.session_bytes_max);
    return nullptr;
  }
  SetBytes(parts_.bytes() + std::min(parts_.bytes(), kReadAheadBytes) + beside_);
  if (bytes_ > limits.stranger_bytes_max) End(bytes_, limits.stranger_bytes_max);
  const std::size_t all = shares_->strangers_bytes_.load(std::memory_order_relaxed);
  const std::size_t ending = shares_->ending_bytes_.load(std::memory_order_relaxed);
  const bool is_crowded = all > limits.strangers_bytes_max / 4 * 3 ||
                          (bytes_ > 0 && all + ending > limits.strangers_bytes_max);
  return is_crowded ? shares_ : nullptr;
}

void ConnectionAccount::SetBytes(std::size_t bytes) {
  shares_->strangers_bytes_.fetch_add(bytes - bytes_, std::memory_order_relaxed);  // Wraps.
  bytes_ = bytes;
}

void ConnectionAccount::End(std::size_t bytes, std::size_t bytes_max) {
  shares_->metrics_.Ended("memory");
  // Floods of them are told once a second.
  const std::int64_t now = absl::ToUnixSeconds(absl::Now());
  if (shares_->told_at_.exchange(now, std::memory_order_relaxed) != now) {
    LogWarning("rpc", "connection ended reason=memory address=", PeerAddressOf(number_),
               " has_session=", role_ == Role::kSession, " bytes=", bytes, " bytes_max=", bytes_max,
               " hint=\"show a session before requests that are long, and read replies\"");
  }
  is_ended_ = true;
  ending_ = bytes_;
  SetBytes(0);
  shares_->ending_bytes_.fetch_add(ending_, std::memory_order_relaxed);
  // gRPC looks for what it may receive, and is told that the connection is reset.
  ::shutdown(number_, SHUT_RDWR);
}

ConnectionShares::~ConnectionShares() {
  ForEachAccount([this](ConnectionAccount& account) { account.Leave(*this); });
}

void ConnectionShares::Open(int number) {
  const std::uint64_t serial = last_serial.fetch_add(1, std::memory_order_relaxed) + 1;
  const auto id = serial << kNumberBits | static_cast<std::uint64_t>(number);
  MakeAccount(number).Open(ConnectionId{id}, number, *this);
}

ConnectionId ConnectionOf(const grpc::CallbackServerContext& call) {
  constexpr std::string_view kPrefix = "fd:";
  const std::string peer = call.peer();
  // Over TLS gRPC knows connections by the peer's address and port.
  if (peer.starts_with("ipv")) {
    return ConnectionId{std::hash<std::string>()(peer) | std::uint64_t{1} << 63};
  }
  if (!peer.starts_with(kPrefix)) return {};
  int number = -1;
  std::from_chars(peer.data() + kPrefix.size(), peer.data() + peer.size(), number);
  const ConnectionAccount* const account = AccountAt(number);
  return account == nullptr ? ConnectionId{} : account->id();
}

void ShowSession(ConnectionId connection) {
  if (ConnectionAccount* const account = AccountOf(connection)) account->ShowSession(connection);
}

void ShowPeer(ConnectionId connection) {
  if (ConnectionAccount* const account = AccountOf(connection)) account->ShowPeer(connection);
}

void TakeBeside(ConnectionId connection, std::size_t bytes) {
  if (ConnectionAccount* const account = AccountOf(connection)) {
    account->TakeBeside(connection, bytes);
  }
}

void GiveBackBeside(ConnectionId connection, std::size_t bytes) {
  if (ConnectionAccount* const account = AccountOf(connection)) {
    account->GiveBackBeside(connection, bytes);
  }
}

}  // namespace embla

// In place of libc's, for gRPC as for everybody in the process.

namespace {

template <typename Function>
Function* InLibc(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

ssize_t Reset() {
  errno = ECONNRESET;
  return -1;
}

}  // namespace

extern "C" {

[[gnu::visibility("default")]] ssize_t recvmsg(int number, msghdr* message, int flags) {
  static const auto libc = InLibc<decltype(::recvmsg)>("recvmsg");
  const ssize_t bytes = libc(number, message, flags);
  if (bytes <= 0 || (flags & (MSG_PEEK | MSG_ERRQUEUE)) != 0) return bytes;
  embla::ConnectionAccount* const account = embla::AccountAt(number);
  if (account == nullptr) return bytes;
  return account->Receive(*message, static_cast<std::size_t>(bytes)) ? bytes : Reset();
}

[[gnu::visibility("default")]] ssize_t sendmsg(int number, const msghdr* message, int flags) {
  static const auto libc = InLibc<decltype(::sendmsg)>("sendmsg");
  const ssize_t bytes = libc(number, message, flags);
  if (bytes <= 0) return bytes;
  embla::ConnectionAccount* const account = embla::AccountAt(number);
  if (account == nullptr) return bytes;
  return account->Send(*message, static_cast<std::size_t>(bytes)) ? bytes : Reset();
}

[[gnu::visibility("default")]] int close(int number) {
  static const auto libc = InLibc<decltype(::close)>("close");
  if (embla::ConnectionAccount* const account = embla::AccountAt(number)) account->Close();
  return libc(number);
}

}  // extern "C"
