// Blocking TCP on loopback, as plain as it gets.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace embla::bench {

class TcpSocket {
 public:
  TcpSocket() = default;
  explicit TcpSocket(int fd) : fd_(fd) {}
  TcpSocket(TcpSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  TcpSocket& operator=(TcpSocket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~TcpSocket();

  static absl::StatusOr<TcpSocket> Connect(const std::string& address);
  static absl::StatusOr<TcpSocket> Listen();  // 127.0.0.1, any port.
  absl::StatusOr<TcpSocket> Accept() const;
  std::string LocalAddress() const;

  // False when the connection ended.
  bool SendAll(const void* data, std::size_t size) const;
  bool ReceiveAll(void* data, std::size_t size) const;

 private:
  int fd_ = -1;
};

}  // namespace embla::bench
