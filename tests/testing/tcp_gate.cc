#include "tests/testing/tcp_gate.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/testing/loopback.h"

namespace embla::testing {
namespace {

constexpr int kLookMs = 5;

// Passes on what has come; false: the connection is over.
bool Pump(int from, int to) {
  char buffer[65536];
  const ssize_t bytes = ::read(from, buffer, sizeof(buffer));
  if (bytes <= 0) return false;
  for (ssize_t sent = 0; sent < bytes;) {
    const ssize_t more =
        ::send(to, buffer + sent, static_cast<std::size_t>(bytes - sent), MSG_NOSIGNAL);
    if (more <= 0) return false;
    sent += more;
  }
  return true;
}

}  // namespace

TcpGate::TcpGate(const std::string& upstream)
    : upstream_(SocketName(upstream)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in name = SocketName(AnyLoopbackPort());
  auto* const any = reinterpret_cast<sockaddr*>(&name);
  socklen_t bytes = sizeof(name);
  EMBLA_CHECK(::bind(listener_.number(), any, bytes) == 0);
  EMBLA_CHECK(::listen(listener_.number(), 64) == 0);
  EMBLA_CHECK(::getsockname(listener_.number(), any, &bytes) == 0);
  address_ = absl::StrCat(LoopbackHost(), ":", ntohs(name.sin_port));
  thread_ = std::thread([this] { Run(); });
}

TcpGate::~TcpGate() {
  is_stopping_ = true;
  thread_.join();
}

void TcpGate::Accept() {
  FileDescriptor near(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC));
  FileDescriptor far(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto* const name = reinterpret_cast<const sockaddr*>(&upstream_);
  if (::connect(far.number(), name, sizeof(upstream_)) == 0) {
    pairs_.push_back({std::move(near), std::move(far)});
  }
}

void TcpGate::Run() {
  while (!is_stopping_) {
    if (is_shut_) {
      ::poll(nullptr, 0, kLookMs);
      continue;
    }
    std::vector<pollfd> looked = {{listener_.number(), POLLIN, 0}};
    for (const Pair& pair : pairs_) {
      looked.push_back({pair.near.number(), POLLIN, 0});
      looked.push_back({pair.far.number(), POLLIN, 0});
    }
    ::poll(looked.data(), looked.size(), kLookMs);
    if (is_shut_) continue;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      Pair& pair = pairs_[i];
      const bool near = looked[2 * i + 1].revents != 0;
      const bool far = looked[2 * i + 2].revents != 0;
      if (near && !Pump(pair.near.number(), pair.far.number())) pair.is_over = true;
      if (far && !Pump(pair.far.number(), pair.near.number())) pair.is_over = true;
    }
    std::vector<Pair> kept;
    for (Pair& pair : pairs_) {
      if (!pair.is_over) kept.push_back(std::move(pair));
    }
    pairs_ = std::move(kept);
    if (looked[0].revents != 0) Accept();
  }
}

}  // namespace embla::testing
