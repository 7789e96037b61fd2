#include "core/socket/connect.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "core/base/file_descriptor.h"

namespace embla {
namespace {

// Not open: it cannot be reached from here.
FileDescriptor ConnectTo(int family, const void* address, std::size_t bytes) {
  FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return {};
  const int connected = ::connect(socket.number(), static_cast<const sockaddr*>(address),
                                  static_cast<socklen_t>(bytes));
  if (connected != 0 && errno != EINPROGRESS) return {};
  return socket;
}

FileDescriptor ConnectToUnix(const std::string& address) {
  sockaddr_un name{};
  if (!address.starts_with("@") || address.size() > sizeof(name.sun_path)) return {};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path + 1, address.data() + 1, address.size() - 1);
  return ConnectTo(AF_UNIX, &name, offsetof(sockaddr_un, sun_path) + address.size());
}

FileDescriptor ConnectToPort(const std::string& peer) {
  const std::string plain =
      absl::StrReplaceAll(peer, {{"%5B", ""}, {"%5D", ""}, {"[", ""}, {"]", ""}});
  const std::size_t begin = plain.find(':');
  const std::size_t end = plain.rfind(':');
  int port = 0;
  if (begin == end || !absl::SimpleAtoi(plain.substr(end + 1), &port)) return {};
  const std::string host = plain.substr(begin + 1, end - begin - 1);
  FileDescriptor socket;
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<std::uint16_t>(port));
    socket = ConnectTo(AF_INET, &v4, sizeof(v4));
  } else if (::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(static_cast<std::uint16_t>(port));
    socket = ConnectTo(AF_INET6, &v6, sizeof(v6));
  }
  const int on = 1;
  if (socket.is_open()) {
    ::setsockopt(socket.number(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  return socket;
}

}  // namespace

std::unique_ptr<Link> LinkTo(const wire::DataSocketOffer& offer, const std::string& peer,
                             const OfferTaker& taker) {
  if (taker.on_this_host) {
    FileDescriptor connected = ConnectToUnix(offer.address);
    if (connected.is_open()) return std::make_unique<Link>(std::move(connected));
  }
  if (!offer.by_port) return nullptr;
  FileDescriptor connected = ConnectToPort(peer);
  if (!connected.is_open()) return nullptr;
  return Link::ToServer(std::move(connected), taker.tls, taker.node);
}

}  // namespace embla
