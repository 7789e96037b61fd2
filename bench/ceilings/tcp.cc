#include "bench/ceilings/tcp.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace embla::bench {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void SetNoDelay(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace

TcpSocket::~TcpSocket() {
  if (fd_ >= 0) ::close(fd_);
}

absl::StatusOr<TcpSocket> TcpSocket::Connect(const std::string& address) {
  const sockaddr_in peer = Loopback(std::atoi(address.substr(address.rfind(':') + 1).c_str()));
  TcpSocket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.fd_, reinterpret_cast<const sockaddr*>(&peer), sizeof(peer)) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot connect to ", address));
  }
  SetNoDelay(socket.fd_);
  return socket;
}

absl::StatusOr<TcpSocket> TcpSocket::Listen() {
  const sockaddr_in any_port = Loopback(0);
  TcpSocket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(socket.fd_, reinterpret_cast<const sockaddr*>(&any_port), sizeof(any_port)) != 0 ||
      ::listen(socket.fd_, 16) != 0) {
    return absl::UnavailableError("cannot listen on loopback");
  }
  return socket;
}

absl::StatusOr<TcpSocket> TcpSocket::Accept() const {
  TcpSocket socket(::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC));
  if (socket.fd_ < 0) return absl::UnavailableError("accept failed");
  SetNoDelay(socket.fd_);
  return socket;
}

std::string TcpSocket::LocalAddress() const {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
  return absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
}

bool TcpSocket::SendAll(const void* data, std::size_t size) const {
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t sent = ::send(fd_, next, size, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    next += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool TcpSocket::ReceiveAll(void* data, std::size_t size) const {
  char* next = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t received = ::recv(fd_, next, size, 0);
    if (received <= 0) return false;
    next += received;
    size -= static_cast<std::size_t>(received);
  }
  return true;
}

}  // namespace embla::bench
