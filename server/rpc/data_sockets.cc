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
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/random.h"
#include "core/base/status_macros.h"
#include "server/rpc/access_guard.h"
#include "server/rpc/descriptor_limit.h"
#include "server/rpc/peer_address.h"
#include "server/rpc/peer_stream.h"
#include "server/rpc/socket_stream.h"

namespace embla {
namespace {

// Connections that have not shown a ticket. Beyond it the oldest is closed.
constexpr std::size_t kGreetingsMax = 256;
// Tickets of other nodes that were not shown. Beyond it the oldest is good for nothing.
constexpr std::size_t kPeerOffersMax = 1024;
// One for so many cores; but each costs a stack.
constexpr unsigned kCoresOfPoller = 4;
constexpr unsigned kPollersMax = 8;
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
class DataSockets::Greeting final : public Poller::Watched,
                                    public std::enable_shared_from_this<Greeting> {
 public:
  Greeting(DataSockets& sockets, std::unique_ptr<Link> link)
      : sockets_(sockets), poller_(sockets.greeter_.get()), link_(std::move(link)) {}
  // Others may have duplicates of the descriptor.
  ~Greeting() override {
    if (link_ != nullptr) link_->Shutdown();
  }

  int number() const { return number_; }
  // It will hear of its end as of any other.
  void End() { ::shutdown(number_, SHUT_RDWR); }

  void OnEvents(std::uint32_t events) override {
    if (poller_ != sockets_.greeter_.get()) return BeServed();
    const absl::StatusOr<bool> shown = Receive(events);
    if (shown.ok() && !*shown) return;
    const std::shared_ptr<Greeting> self = shared_from_this();
    poller_->Remove(number_, *this);
    const std::string_view greeting(bytes_.data(), size_);
    const std::string_view ticket = greeting.substr(std::min(size_, 2 * sizeof(std::uint32_t)));
    if (!shown.ok() || ticket.size() != wire::kTicketBytes ||
        wire::MakeFrame(ticket).head != greeting) {
      return;
    }
    // The rest is done where its requests will be.
    poller_ = &sockets_.NextPoller();
    if (poller_->Add(number_, 0, self).ok()) poller_->Wake(self);
  }

 private:
  // Whether all of the ticket has come. Not OK: it never will.
  absl::StatusOr<bool> Receive(std::uint32_t events) {
    EMBLA_ASSIGN_OR_RETURN(const std::uint32_t waits, link_->Prepare());
    const bool is_over = (events & (EPOLLHUP | EPOLLERR)) != 0;
    if (waits != 0 && is_over) return absl::UnavailableError("the peer closed the connection");
    poller_->Change(number_, waits != 0 ? waits : std::uint32_t{EPOLLIN}, *this);
    while (waits == 0 && size_ < bytes_.size()) {
      const iovec place = {.iov_base = bytes_.data() + size_, .iov_len = bytes_.size() - size_};
      const ssize_t count = link_->Receive({&place, 1});
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN && !is_over) return false;
      if (count <= 0) return absl::UnavailableError("the peer closed the connection");
      size_ += static_cast<std::size_t>(count);
    }
    return size_ == bytes_.size();
  }

  void BeServed() {
    poller_->Remove(number_, *this);
    sockets_.Serve(std::move(link_), std::string(bytes_.data(), size_).substr(8), *poller_);
  }

  DataSockets& sockets_;
  Poller* poller_;  // The greeter, and when the ticket has been shown that of its requests.
  std::unique_ptr<Link> link_;
  const int number_ = link_->number();
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
    sockets_.Await(std::make_unique<Link>(std::move(socket)));
  }

  DataSockets& sockets_;
  const FileDescriptor socket_;
};

absl::StatusOr<std::unique_ptr<DataSockets>> DataSockets::Start(DataContext& context,
                                                                OpenStreams& open,
                                                                Metrics* metrics) {
  const std::string name = absl::StrCat("embla-", RandomHexId());
  EMBLA_ASSIGN_OR_RETURN(FileDescriptor socket, ListenOn(name));
  const auto guard = std::make_shared<AccessGuard>(context.options.tls, metrics);
  EMBLA_ASSIGN_OR_RETURN(
      TlsContext tls,
      ServerContext(context.options.tls, [guard](TlsRefusal refusal, const absl::Status& why) {
        guard->OnHandshakeRefused(refusal, why);
      }));
  std::unique_ptr<DataSockets> sockets(
      new DataSockets(context, open, std::move(tls), absl::StrCat("@", name)));
  const unsigned pollers =
      std::clamp(std::thread::hardware_concurrency() / kCoresOfPoller, 1u, kPollersMax);
  for (unsigned i = 0; i < pollers; ++i) {
    EMBLA_ASSIGN_OR_RETURN(std::unique_ptr<Poller> poller, Poller::Start(/*looks=*/true));
    sockets->pollers_.push_back(std::move(poller));
  }
  EMBLA_ASSIGN_OR_RETURN(sockets->greeter_, Poller::Start());
  const int number = socket.number();
  EMBLA_RETURN_IF_ERROR(sockets->greeter_->Add(
      number, EPOLLIN | EPOLLET, std::make_shared<Listener>(*sockets, std::move(socket))));
  return sockets;
}

DataSockets::~DataSockets() {
  MutexLock lock(mu_);
  ends_peers_ = true;
  for (PeerStream* const peer : peers_) peer->Abort();
  while (peers_left_ > 0) peer_is_over_.Wait(mu_);
}

void DataSockets::Take(FileDescriptor socket) { Await(Link::FromClient(std::move(socket), tls_)); }

void DataSockets::Await(std::unique_ptr<Link> link) {
  const auto greeting = std::make_shared<Greeting>(*this, std::move(link));
  std::shared_ptr<Greeting> oldest;
  {
    MutexLock lock(mu_);
    std::erase_if(greetings_, [](const auto& each) { return each.expired(); });
    if (greetings_.size() >= kGreetingsMax) {
      oldest = greetings_.front().lock();
      greetings_.pop_front();
    }
    greetings_.push_back(greeting);
  }
  if (oldest != nullptr) oldest->End();
  if (greeter_->Add(greeting->number(), 0, greeting).ok()) greeter_->Wake(greeting);
}

Poller& DataSockets::NextPoller() {
  MutexLock lock(mu_);
  return *pollers_[turn_++ % pollers_.size()];
}

wire::DataSocketOffer DataSockets::MakeOffer() const {
  return {.address = address_, .ticket = RandomHexId(), .by_port = true};
}

wire::DataSocketOffer DataSockets::OfferToPeer(std::optional<Identity> caller) {
  wire::DataSocketOffer offer = MakeOffer();
  MutexLock lock(mu_);
  if (offered_to_peers_.size() >= kPeerOffersMax) offered_to_peers_.pop_front();
  offered_to_peers_.push_back({.ticket = offer.ticket, .caller = std::move(caller)});
  return offer;
}

wire::DataSocketOffer DataSockets::Offer(RequestStream& stream, const std::string& before) {
  wire::DataSocketOffer offer = MakeOffer();
  offer.takes_seals = true;
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

void DataSockets::Serve(std::unique_ptr<Link> link, const std::string& ticket, Poller& poller) {
  const std::optional<Identity> shown = link->peer();
  // A ticket is for who was given it.
  const auto is_stolen = [&shown](const std::optional<Identity>& given) {
    return shown.has_value() && shown != given;
  };
  RequestStream* stream = nullptr;
  std::optional<OfferedToPeer> to_peer;
  {
    MutexLock lock(mu_);
    if (const auto found = offered_.find(ticket); found != offered_.end()) {
      const bool is_offered = !std::exchange(found->second.is_used, true);
      stream = found->second.stream;
      if (!is_offered || is_stolen(stream->caller().identity) || !stream->BeginBeside()) {
        return link->Shutdown();
      }
    } else {
      to_peer = TakeOfferToPeer(ticket);
      const bool is_served = to_peer.has_value() && !is_stolen(to_peer->caller) && !ends_peers_;
      if (!is_served) return link->Shutdown();
      ++peers_left_;
    }
  }
  if (stream != nullptr) {
    SocketStream::Serve(std::move(link), poller, context_, open_, *this, ticket, *stream);
  } else {
    PeerStream::Serve(std::move(link), poller, context_, *this, std::move(to_peer->caller));
  }
}

std::optional<DataSockets::OfferedToPeer> DataSockets::TakeOfferToPeer(const std::string& ticket) {
  const auto found = std::find_if(offered_to_peers_.begin(), offered_to_peers_.end(),
                                  [&](const auto& each) { return each.ticket == ticket; });
  if (found == offered_to_peers_.end()) return std::nullopt;
  OfferedToPeer taken = std::move(*found);
  offered_to_peers_.erase(found);
  return taken;
}

void DataSockets::Add(PeerStream& peer) {
  MutexLock lock(mu_);
  peers_.insert(&peer);
  if (ends_peers_) peer.Abort();
}

void DataSockets::Remove(PeerStream& peer) {
  MutexLock lock(mu_);
  peers_.erase(&peer);
  --peers_left_;
  peer_is_over_.NotifyAll();
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
