#include "server/rpc/data_sockets.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <list>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/random.h"
#include "core/base/status_macros.h"
#include "server/rpc/descriptor_limit.h"
#include "server/rpc/peer_address.h"
#include "server/rpc/socket_stream.h"

namespace embla {
namespace {

// Connections that have not shown a ticket. Beyond it the oldest is closed.
constexpr std::size_t kGreetingsMax = 64;
// For journals and everything else: the lowest free number is given out, so a high one says how
// many are open.
constexpr std::size_t kDescriptorsReserved = 32;
constexpr std::size_t kGreetingBytes = 2 * sizeof(std::uint32_t) + wire::kTicketBytes;

absl::StatusOr<FileDescriptor> ListenOn(const std::string& name) {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (!socket.is_open() ||
      ::bind(socket.number(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0 ||
      ::listen(socket.number(), SOMAXCONN) != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot open a data socket: ", std::strerror(errno)));
  }
  return socket;
}

}  // namespace

// A connection that has to show its ticket.
class DataSockets::Greeting final : public Poller::Watched {
 public:
  Greeting(DataSockets& sockets, FileDescriptor socket)
      : sockets_(sockets), socket_(std::move(socket)) {}

  // It will hear of its end as of any other.
  void Shutdown() { ::shutdown(socket_.number(), SHUT_RDWR); }

  void OnEvents(std::uint32_t) override {
    const ssize_t count =
        ::recv(socket_.number(), bytes_.data() + size_, bytes_.size() - size_, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    size_ += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
    if (count > 0 && size_ < bytes_.size()) return;
    sockets_.poller_->Remove(socket_.number(), *this);
    const std::string_view shown(bytes_.data(), size_);
    const std::string_view ticket = shown.substr(std::min(size_, 2 * sizeof(std::uint32_t)));
    if (wire::MakeFrame(ticket).head != shown || ticket.size() != wire::kTicketBytes) return;
    sockets_.Serve(std::move(socket_), std::string(ticket));
  }

 private:
  DataSockets& sockets_;
  FileDescriptor socket_;
  std::array<char, kGreetingBytes> bytes_{};
  std::size_t size_ = 0;
};

class DataSockets::Listener final : public Poller::Watched {
 public:
  Listener(DataSockets& sockets, FileDescriptor socket)
      : sockets_(sockets), socket_(std::move(socket)) {}

  // Edge-triggered: without descriptors connections wait for the next one, and their clients have
  // gRPC meanwhile.
  void OnEvents(std::uint32_t) override {
    while (true) {
      FileDescriptor socket(
          ::accept4(socket_.number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket.is_open()) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        return;
      }
      Greet(std::move(socket));
    }
  }

 private:
  void Greet(FileDescriptor socket) {
    const bool leaves_reserve =
        static_cast<std::size_t>(socket.number()) + kDescriptorsReserved < DescriptorLimit();
    if (!leaves_reserve || !IsOwnUser(PeerAddressOf(socket.number()))) return;
    std::erase_if(greetings_, [](const auto& greeting) { return greeting.expired(); });
    if (greetings_.size() >= kGreetingsMax) {
      if (const auto oldest = greetings_.front().lock()) oldest->Shutdown();
      greetings_.pop_front();
    }
    const int number = socket.number();
    const auto greeting = std::make_shared<Greeting>(sockets_, std::move(socket));
    greetings_.push_back(greeting);
    (void)sockets_.poller_->Add(number, EPOLLIN, greeting);
  }

  DataSockets& sockets_;
  const FileDescriptor socket_;
  std::list<std::weak_ptr<Greeting>> greetings_;  // The oldest first.
};

absl::StatusOr<std::unique_ptr<DataSockets>> DataSockets::Start(DataContext& context,
                                                                OpenStreams& open) {
  const std::string name = absl::StrCat("embla-", RandomHexId());
  EMBLA_ASSIGN_OR_RETURN(FileDescriptor socket, ListenOn(name));
  EMBLA_ASSIGN_OR_RETURN(std::unique_ptr<Poller> poller, Poller::Start());
  std::unique_ptr<DataSockets> sockets(
      new DataSockets(context, open, std::move(poller), absl::StrCat("@", name)));
  const int number = socket.number();
  EMBLA_RETURN_IF_ERROR(sockets->poller_->Add(
      number, EPOLLIN | EPOLLET, std::make_shared<Listener>(*sockets, std::move(socket))));
  return sockets;
}

DataSockets::~DataSockets() = default;

wire::DataSocketOffer DataSockets::Offer(RequestStream& stream, const std::string& before) {
  wire::DataSocketOffer offer{.address = address_, .ticket = RandomHexId()};
  MutexLock lock(mu_);
  if (const auto found = offered_.find(before); found != offered_.end()) {
    // Its client has noticed the end of the socket before this end.
    if (SocketStream* const socket = found->second.socket; socket != nullptr) socket->Abort();
    offered_.erase(found);
  }
  offered_.emplace(offer.ticket, Offered{.stream = &stream});
  return offer;
}

void DataSockets::Withdraw(const std::string& ticket, bool at_once) {
  MutexLock lock(mu_);
  const auto found = offered_.find(ticket);
  if (found == offered_.end()) return;
  if (SocketStream* const socket = found->second.socket; socket != nullptr) {
    if (at_once) socket->Abort();
    socket->Drain(absl::UnavailableError("the stream is over"));
  } else {
    offered_.erase(found);
  }
}

void DataSockets::Serve(FileDescriptor socket, const std::string& ticket) {
  RequestStream* stream = nullptr;
  {
    MutexLock lock(mu_);
    const auto found = offered_.find(ticket);
    if (found == offered_.end() || std::exchange(found->second.is_used, true)) return;
    stream = found->second.stream;
    if (!stream->BeginBeside()) return;
  }
  SocketStream::Serve(std::move(socket), *poller_, context_, open_, *this, ticket, *stream);
}

void DataSockets::Add(const std::string& ticket, SocketStream& socket) {
  MutexLock lock(mu_);
  const auto found = offered_.find(ticket);
  if (found == offered_.end()) {
    socket.Drain(absl::UnavailableError("the stream is over"));
  } else {
    found->second.socket = &socket;
  }
}

void DataSockets::Remove(const std::string& ticket) {
  MutexLock lock(mu_);
  offered_.erase(ticket);
}

}  // namespace embla
