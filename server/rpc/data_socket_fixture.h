// Test support: a client of data sockets that has nothing from us but docs/data_sockets.md.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/file_descriptor.h"
#include "embla/v1/data.pb.h"

namespace embla::data_socket {

constexpr std::uint32_t kIds = 5;               // Fields of LookupRequest,
constexpr std::uint32_t kRows = 2;              // of LookupReply,
inline constexpr std::uint32_t kUpdateIds = 8;  // and of UpdateRequest.
inline constexpr std::uint32_t kGradients = 12;

struct Array {
  std::uint32_t number = 0;
  std::string bytes;
};

struct Frame {
  std::string text;
  std::vector<Array> arrays;
};

template <typename T>
void Append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

inline std::string ToBytes(const std::string& text, const std::vector<Array>& arrays) {
  std::string bytes;
  Append(bytes, static_cast<std::uint32_t>(text.size()));
  Append(bytes, static_cast<std::uint32_t>(arrays.size()));
  for (const Array& array : arrays) {
    Append(bytes, array.number);
    Append(bytes, static_cast<std::uint32_t>(array.bytes.size()));
  }
  bytes += text;
  for (const Array& array : arrays) bytes += array.bytes;
  return bytes;
}

// A blocking connection.
class Peer {
 public:
  explicit Peer(FileDescriptor socket) : socket_(std::move(socket)) {}
  explicit Peer(const std::string& address)
      : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path + 1, address.data() + 1, address.size() - 1);
    EXPECT_EQ(::connect(socket_.number(), reinterpret_cast<const sockaddr*>(&name),
                        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size())),
              0);
  }

  void Send(const std::string& bytes) {
    std::size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t count =
          ::send(socket_.number(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return;  // Closed: Receive says so.
      sent += static_cast<std::size_t>(count);
    }
  }

  // Nothing: the connection is over.
  std::optional<Frame> Receive() {
    std::uint32_t sizes[2];
    if (!Receive(sizes, sizeof(sizes))) return std::nullopt;
    Frame frame{.text = std::string(sizes[0], '\0'), .arrays = std::vector<Array>(sizes[1])};
    for (Array& array : frame.arrays) {
      std::uint32_t of_array[2];
      if (!Receive(of_array, sizeof(of_array))) return std::nullopt;
      array = {of_array[0], std::string(of_array[1], '\0')};
    }
    if (!Receive(frame.text.data(), frame.text.size())) return std::nullopt;
    for (Array& array : frame.arrays) {
      if (!Receive(array.bytes.data(), array.bytes.size())) return std::nullopt;
    }
    return frame;
  }
  bool IsOver() { return !Receive().has_value(); }

  // The next reply, with its rows.
  std::pair<v1::StreamReply, std::string> Reply() {
    std::pair<v1::StreamReply, std::string> reply;
    const std::optional<Frame> frame = Receive();
    EXPECT_TRUE(frame.has_value());
    if (!frame.has_value()) return reply;
    EXPECT_TRUE(reply.first.ParseFromString(frame->text));
    for (const Array& array : frame->arrays) {
      EXPECT_EQ(array.number, kRows);
      reply.second += array.bytes;
    }
    return reply;
  }

 private:
  bool Receive(void* data, std::size_t size) {
    return size == 0 ||
           ::recv(socket_.number(), data, size, MSG_WAITALL) == static_cast<ssize_t>(size);
  }

  FileDescriptor socket_;
};

}  // namespace embla::data_socket
