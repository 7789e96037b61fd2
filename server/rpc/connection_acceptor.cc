#include "server/rpc/connection_acceptor.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/socket/link.h"
#include "server/rpc/connection_shares.h"
#include "server/rpc/descriptor_limit.h"
#include "server/rpc/peer_address.h"

namespace embla {
namespace {

// For journals, libraries and everything else that opens files.
constexpr std::size_t kReserveMax = 256;
// Without any descriptor there is nothing to do but to wait.
constexpr absl::Duration kPause = absl::Milliseconds(100);
// How often connections are looked at, and how many at a time: channelz takes about 10 us for one.
constexpr absl::Duration kLook = absl::Milliseconds(250);
constexpr std::size_t kLooksMax = 128;
// A connection that is silent for so long is gRPC's.
constexpr absl::Duration kSilent = absl::Seconds(2);
// Refusals come in floods: one line of log per so long.
constexpr absl::Duration kTell = absl::Seconds(10);

bool IsShortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

FileDescriptor OpenReserve() { return FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> ConnectionAcceptor::Start(
    ListeningSockets listening, const ConnectionLimits& limits, Metrics* metrics,
    HandOver hand_over, TakeFrames take_frames) {
  std::unique_ptr<ConnectionAcceptor> acceptor(new ConnectionAcceptor(
      std::move(listening), limits, metrics, std::move(hand_over), std::move(take_frames)));
  EMBLA_RETURN_IF_ERROR(acceptor->Prepare());
  acceptor->thread_ = std::thread([raw = acceptor.get()] { raw->Run(); });
  return acceptor;
}

ConnectionAcceptor::ConnectionAcceptor(ListeningSockets listening, const ConnectionLimits& limits,
                                       Metrics* metrics, HandOver hand_over, TakeFrames take_frames)
    : limits_(limits),
      descriptors_max_(std::min(DescriptorLimit(), ConnectionShares::kDescriptorsMax)),
      hand_over_(std::move(hand_over)),
      take_frames_(std::move(take_frames)),
      metrics_(metrics),
      listening_(std::move(listening)) {
  metrics_.descriptors_max.Set(static_cast<double>(descriptors_max_));
}

absl::Status ConnectionAcceptor::Prepare() {
  epoll_ = FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
  wake_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  reserve_ = OpenReserve();
  if (!epoll_.is_open() || !wake_.is_open() || !reserve_.is_open()) {
    return absl::UnavailableError(absl::StrCat("cannot watch sockets: ", std::strerror(errno),
                                               ", the limit is ", descriptors_max_, " open files"));
  }
  Watch(wake_.number(), EPOLLIN);
  for (const FileDescriptor& socket : listening_.sockets) Watch(socket.number(), EPOLLIN);
  return absl::OkStatus();
}

ConnectionAcceptor::~ConnectionAcceptor() {
  if (thread_.joinable()) {
    stopping_.store(true, std::memory_order_release);  // Pairs with Run's acquire.
    const std::uint64_t one = 1;
    (void)!::write(wake_.number(), &one, sizeof(one));
    thread_.join();
  }
  if (!listening_.unix_path.empty()) ::unlink(listening_.unix_path.c_str());
  metrics_.connections.Add(-static_cast<double>(connections_.size()));
}

void ConnectionAcceptor::Watch(int number, std::uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = number}};
  ::epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, number, &event);
}

void ConnectionAcceptor::Run() {
  absl::Time look_at = Clock::Real().Now() + kLook;
  std::array<epoll_event, 64> events;
  while (!stopping_.load(std::memory_order_acquire)) {
    absl::Duration wait =
        connections_.empty() ? absl::InfiniteDuration() : look_at - Clock::Real().Now();
    if (paused_) wait = std::min(wait, kPause);
    const int wait_ms =
        wait == absl::InfiniteDuration()
            ? -1
            : static_cast<int>(std::max<std::int64_t>(absl::ToInt64Milliseconds(wait) + 1, 0));
    const int count =
        ::epoll_wait(epoll_.number(), events.data(), static_cast<int>(events.size()), wait_ms);
    if (paused_) Pause(false);
    for (int i = 0; i < count; ++i) {
      const int number = events[static_cast<std::size_t>(i)].data.fd;
      if (const auto found = connections_.find(number); found != connections_.end()) {
        if (found->second.silent.is_open()) Direct(found->second);
        if ((events[static_cast<std::size_t>(i)].events & (EPOLLHUP | EPOLLERR)) != 0) {
          Remove(number);
        }
      } else if (number != wake_.number()) {
        Accept(number);
      }
    }
    if (const absl::Time now = Clock::Real().Now(); now >= look_at) {
      LookForResets(now);
      look_at = now + kLook;
    }
  }
}

void ConnectionAcceptor::Accept(int listener) {
  // Some at a time, so that connections that end are seen in between.
  for (int i = 0; i < 64 && !paused_; ++i) {
    if (!AcceptOne(listener)) return;
  }
}

bool ConnectionAcceptor::AcceptOne(int listener) {
  FileDescriptor socket(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.is_open()) {
    Admit(std::move(socket));
    return true;
  }
  if (IsShortage(errno)) {
    TurnAway(listener);
    return true;
  }
  return errno != EAGAIN && errno != EBADF && errno != EINVAL;  // Else that peer has gone.
}

void ConnectionAcceptor::Admit(FileDescriptor socket) {
  const std::string address = PeerAddressOf(socket.number());
  if (address.empty()) return;  // The peer is gone.
  if (limits_.same_user && !IsOwnUser(address)) return Refuse("user", address);
  // The lowest free number is given out, so a high one says how many are open in this process.
  const std::size_t reserve = std::min(kReserveMax, descriptors_max_ / 4);
  FileDescriptor duplicate(::fcntl(socket.number(), F_DUPFD_CLOEXEC, 0));
  const int highest = std::max(socket.number(), duplicate.number());
  if (!duplicate.is_open() || static_cast<std::size_t>(highest) >= descriptors_max_ - reserve) {
    return Refuse("descriptors", address);
  }
  std::uint32_t& of_address = by_address_[address];
  if (of_address >= limits_.per_address_max) return Refuse("address", address);
  ++of_address;
  const int on = 1;
  ::setsockopt(socket.number(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // Unix: no effect.
  const int watched = duplicate.number();
  Connection& connection = connections_[watched];
  connection.duplicate = std::move(duplicate);
  connection.silent = std::move(socket);
  connection.address = address;
  connection.looked_at = Clock::Real().Now();
  Watch(watched, EPOLLIN);
  metrics_.connections.Add(1);
  if (take_frames_ == nullptr) Direct(connection);
}

void ConnectionAcceptor::Direct(Connection& connection) {
  char first = 0;
  const bool speaks_frames =
      take_frames_ != nullptr &&
      ::recv(connection.silent.number(), &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1 &&
      first == kHello.front();
  epoll_event event{.events = 0, .data = {.fd = connection.duplicate.number()}};
  ::epoll_ctl(epoll_.number(), EPOLL_CTL_MOD, event.data.fd, &event);  // The end is always told.
  if (speaks_frames) {
    take_frames_(std::move(connection.silent));
  } else {
    connection.name = hand_over_(connection.silent.Release());
  }
}

void ConnectionAcceptor::TurnAway(int listener) {
  reserve_.Close();
  FileDescriptor socket(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  const bool was_accepted = socket.is_open();
  socket.Close();
  reserve_ = OpenReserve();
  if (was_accepted) Refuse("descriptors", "");
  // Another thread took the descriptor, or the whole machine has none.
  if (!was_accepted || !reserve_.is_open()) Pause(true);
}

void ConnectionAcceptor::Refuse(const char* reason, const std::string& address) {
  metrics_.Refused(reason);
  if (const absl::Time now = Clock::Real().Now(); now - told_at_ >= kTell) {
    told_at_ = now;
    LogWarning("rpc", "connection refused reason=", reason, " address=", address,
               " connections=", connections_.size(), " descriptors_max=", descriptors_max_,
               " per_address_max=", limits_.per_address_max);
  }
}

void ConnectionAcceptor::Pause(bool paused) {
  if (paused_ == paused) return;
  paused_ = paused;
  if (!paused && !reserve_.is_open()) reserve_ = OpenReserve();
  for (const FileDescriptor& socket : listening_.sockets) {
    epoll_event event{.events = paused ? 0u : EPOLLIN, .data = {.fd = socket.number()}};
    ::epoll_ctl(epoll_.number(), EPOLL_CTL_MOD, socket.number(), &event);
  }
}

void ConnectionAcceptor::Remove(int duplicate) {
  const auto found = connections_.find(duplicate);
  const auto address = by_address_.find(found->second.address);
  if (--address->second == 0) by_address_.erase(address);
  // While gRPC has the connection open, closing the duplicate alone would leave it watched.
  ::epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, duplicate, nullptr);
  connections_.erase(found);
  metrics_.connections.Add(-1);
}

void ConnectionAcceptor::LookForResets(absl::Time now) {
  if (to_look_at_.empty()) {
    for (const auto& [number, connection] : connections_) to_look_at_.push_back(number);
  }
  std::vector<Connection*> connections;
  while (connections.size() < kLooksMax && !to_look_at_.empty()) {
    const auto found = connections_.find(to_look_at_.back());
    to_look_at_.pop_back();
    if (found != connections_.end()) connections.push_back(&found->second);
  }
  FindNumbers(connections);
  for (Connection* const connection : connections) {
    // gRPC has a limit of its own for how long it waits.
    const bool waits = connection->silent.is_open();
    if (waits && now - connection->looked_at >= kSilent) Direct(*connection);
    if (!waits) Look(*connection, now);
  }
}

void ConnectionAcceptor::FindNumbers(const std::vector<Connection*>& connections) {
  std::unordered_map<std::string, std::int64_t> wanted;
  for (const Connection* const connection : connections) {
    if (connection->channelz_socket == 0 && !connection->name.empty()) wanted[connection->name] = 0;
  }
  if (wanted.empty()) return;
  channelz_.Find(wanted);
  for (Connection* const connection : connections) {
    const auto found = wanted.find(connection->name);
    if (found != wanted.end()) connection->channelz_socket = found->second;
  }
}

void ConnectionAcceptor::Look(Connection& connection, absl::Time now) {
  const std::optional<StreamCounts> counts = CountStreams(connection.channelz_socket);
  if (!counts.has_value() || connection.ended) return;
  // While a flood goes on, gRPC gets to no resets, and more calls seem to be open than may be.
  const std::int64_t unanswered =
      counts->unanswered + std::max<std::int64_t>(counts->open() - limits_.open_calls_max, 0);
  const auto more = static_cast<double>(unanswered - connection.unanswered);
  const double forgiven =
      absl::ToDoubleSeconds(now - connection.looked_at) * limits_.resets_per_second;
  connection.resets = std::max(connection.resets + more - forgiven, 0.0);
  connection.unanswered = unanswered;
  connection.looked_at = now;
  if (connection.resets <= static_cast<double>(limits_.resets_max)) return;
  LogWarning("rpc", "connection ended reason=resets address=", connection.address,
             " streams=", counts->started, " reset=", unanswered);
  metrics_.Ended("resets");
  connection.ended = true;
  ::shutdown(connection.duplicate.number(), SHUT_RDWR);
}

}  // namespace embla
