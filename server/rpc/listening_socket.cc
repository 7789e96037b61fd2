#include "server/rpc/listening_socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace embla {
namespace {

absl::Status CannotListen(const ListenAddress& address, int error) {
  return absl::UnavailableError(absl::StrCat("cannot listen on ", address.text,
                                             ": the address is in use or not ours (",
                                             std::strerror(error), ")"));
}

absl::StatusOr<FileDescriptor> BindAndListen(const ListenAddress& address, const sockaddr* name,
                                             socklen_t name_bytes) {
  FileDescriptor socket(::socket(name->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return CannotListen(address, errno);
  const int on = 1;
  const int off = 0;
  // A restart may not wait for connections of the process before it. Two servers on one port are
  // still refused: that would need SO_REUSEPORT.
  ::setsockopt(socket.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (name->sa_family == AF_INET6) {
    ::setsockopt(socket.number(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (::bind(socket.number(), name, name_bytes) != 0 || ::listen(socket.number(), SOMAXCONN) != 0) {
    return CannotListen(address, errno);
  }
  return socket;
}

int PortOf(const FileDescriptor& socket) {
  sockaddr_storage name{};
  socklen_t bytes = sizeof(name);
  if (::getsockname(socket.number(), reinterpret_cast<sockaddr*>(&name), &bytes) != 0) return 0;
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(name).sin6_port
                                          : reinterpret_cast<sockaddr_in&>(name).sin_port);
}

absl::StatusOr<ListeningSockets> ListenOnUnixSocket(const ListenAddress& address) {
  std::string path = address.text.substr(sizeof("unix:") - 1);
  if (path.starts_with("//")) path.erase(0, 2);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof(name.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("the path of ", address.text, " has ",
                                                   path.size(), " bytes, at most ",
                                                   sizeof(name.sun_path) - 1, " are possible"));
  }
  std::memcpy(name.sun_path, path.data(), path.size());
  const auto* const any = reinterpret_cast<const sockaddr*>(&name);
  struct stat found {};
  if (::lstat(path.c_str(), &found) == 0 && S_ISSOCK(found.st_mode)) {
    const FileDescriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const bool served = ::connect(probe.number(), any, sizeof(name)) == 0 || errno == EAGAIN;
    if (served) return CannotListen(address, EADDRINUSE);
    ::unlink(path.c_str());
  }
  ListeningSockets listening;
  EMBLA_ASSIGN_OR_RETURN(FileDescriptor socket, BindAndListen(address, any, sizeof(name)));
  listening.sockets.push_back(std::move(socket));
  listening.unix_path = path;
  return listening;
}

// One socket for IPv6 and IPv4, or for IPv4 alone where the machine has no IPv6.
absl::StatusOr<ListeningSockets> ListenOnEveryAddress(const ListenAddress& address) {
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(static_cast<std::uint16_t>(address.port));
  absl::StatusOr<FileDescriptor> socket =
      BindAndListen(address, reinterpret_cast<const sockaddr*>(&v6), sizeof(v6));
  if (!socket.ok()) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = v6.sin6_port;
    socket = BindAndListen(address, reinterpret_cast<const sockaddr*>(&v4), sizeof(v4));
  }
  EMBLA_RETURN_IF_ERROR(socket.status());
  ListeningSockets listening;
  listening.port = PortOf(*socket);
  listening.sockets.push_back(*std::move(socket));
  return listening;
}

void SetPort(sockaddr* name, int port) {
  auto& field = name->sa_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(name)->sin6_port
                                            : reinterpret_cast<sockaddr_in*>(name)->sin_port;
  field = htons(static_cast<std::uint16_t>(port));
}

}  // namespace

absl::StatusOr<ListeningSockets> Listen(const ListenAddress& address) {
  if (address.unix_socket) return ListenOnUnixSocket(address);
  if (address.host == "0.0.0.0" || address.host == "::") return ListenOnEveryAddress(address);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(address.host.c_str(), nullptr, &hints, &found); error != 0) {
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on ", address.text, ": the host is not known (", gai_strerror(error), ")"));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, ::freeaddrinfo);
  ListeningSockets listening;
  listening.port = address.port;
  absl::Status failed;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    if (each->ai_family != AF_INET && each->ai_family != AF_INET6) continue;
    SetPort(each->ai_addr, listening.port);  // All addresses of a name get the first one's port.
    absl::StatusOr<FileDescriptor> socket = BindAndListen(address, each->ai_addr, each->ai_addrlen);
    if (!socket.ok()) {
      failed = socket.status();
      continue;
    }
    listening.port = PortOf(*socket);
    listening.sockets.push_back(*std::move(socket));
  }
  if (listening.sockets.empty()) return failed;
  return listening;
}

absl::StatusOr<ListeningSockets> Duplicate(const ListeningSockets& sockets) {
  ListeningSockets duplicate;
  duplicate.port = sockets.port;
  for (const FileDescriptor& socket : sockets.sockets) {
    FileDescriptor copy(::fcntl(socket.number(), F_DUPFD_CLOEXEC, 0));
    if (!copy.is_open()) {
      return absl::UnavailableError(
          absl::StrCat("cannot take over a listener: ", std::strerror(errno)));
    }
    duplicate.sockets.push_back(std::move(copy));
  }
  return duplicate;
}

}  // namespace embla
