#include "core/base/testing/loopback.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace embla::testing {
namespace {

// 127.64.0.0 and the process id, which has at most 22 bits.
std::uint32_t OwnAddress() {
  return (127u << 24) | (1u << 22) | (static_cast<std::uint32_t>(::getpid()) & 0x3f'ffffu);
}

}  // namespace

const std::string& LoopbackHost() {
  static const std::string* const host = [] {
    const in_addr address{.s_addr = htonl(OwnAddress())};
    char text[INET_ADDRSTRLEN];
    return new std::string(::inet_ntop(AF_INET, &address, text, sizeof(text)));
  }();
  return *host;
}

std::string AnyLoopbackPort() { return LoopbackHost() + ":0"; }

sockaddr_in SocketName(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<std::uint16_t>(std::atoi(address.c_str() + colon + 1)));
  ::inet_pton(AF_INET, address.substr(0, colon).c_str(), &name.sin_addr);
  return name;
}

}  // namespace embla::testing
