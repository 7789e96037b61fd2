// Test support: a peer that speaks HTTP/2 as no gRPC client would.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>

#include "core/base/file_descriptor.h"
#include "core/base/testing/loopback.h"

namespace embla::http2 {

// Not open: the connection could not be made.
inline FileDescriptor Connect(const std::string& address) {
  sockaddr_storage name{};
  socklen_t bytes = 0;
  if (address.starts_with("unix:")) {
    auto& unix_name = reinterpret_cast<sockaddr_un&>(name);
    unix_name.sun_family = AF_UNIX;
    std::strncpy(unix_name.sun_path, address.c_str() + 5, sizeof(unix_name.sun_path) - 1);
    bytes = sizeof(sockaddr_un);
  } else {
    reinterpret_cast<sockaddr_in&>(name) = testing::SocketName(address);
    bytes = sizeof(sockaddr_in);
  }
  FileDescriptor socket(::socket(name.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket.is_open() &&
      ::connect(socket.number(), reinterpret_cast<sockaddr*>(&name), bytes) != 0) {
    socket.Close();
  }
  return socket;
}

// Whether the server has closed the connection. Bytes from the server are thrown away.
inline bool IsClosed(const FileDescriptor& socket) {
  char bytes[4096];
  while (true) {
    const ssize_t count = ::recv(socket.number(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (count > 0) continue;
    return count == 0 || errno != EAGAIN;
  }
}

// gRPC servers speak first, so a connection that was taken has something to read.
inline bool IsServed(const FileDescriptor& socket) {
  char byte = 0;
  return ::recv(socket.number(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 1;
}

inline std::string BigEndian(std::uint32_t value, int bytes) {
  std::string text;
  while (bytes > 0) text.push_back(static_cast<char>(value >> (8 * --bytes)));
  return text;
}

enum FrameType : std::uint8_t { kData = 0, kHeaders = 1, kReset = 3, kSettings = 4 };

inline std::string Frame(FrameType type, std::uint8_t flags, std::uint32_t stream,
                         const std::string& payload) {
  return BigEndian(static_cast<std::uint32_t>(payload.size()), 3) + static_cast<char>(type) +
         static_cast<char>(flags) + BigEndian(stream, 4) + payload;
}

// The first bytes of a client. `settings` are pairs of a number (2 bytes) and a value (4 bytes).
inline std::string Hello(const std::string& settings = "") {
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettings, 0, 0, settings);
}
// A setting: the window of every stream has 0 bytes, so nothing of a reply may be sent.
inline std::string NoWindow() { return BigEndian(4, 2) + BigEndian(0, 4); }

// The start of a call, in HPACK without any table: POST, http, and literal fields.
inline std::string Headers(std::uint32_t stream, const std::string& path) {
  const auto literal = [](const std::string& name, const std::string& value) {
    return std::string(1, '\0') + static_cast<char>(name.size()) + name +
           static_cast<char>(value.size()) + value;
  };
  return Frame(kHeaders, 4, stream,
               "\x83\x86" + literal(":path", path) + literal(":authority", "x") +
                   literal("content-type", "application/grpc") + literal("te", "trailers"));
}
// A whole message, and the end of what the client says on this stream. At most 16 KiB.
inline std::string Message(std::uint32_t stream, const std::string& message) {
  return Frame(
      kData, 1, stream,
      std::string(1, '\0') + BigEndian(static_cast<std::uint32_t>(message.size()), 4) + message);
}
inline std::string Reset(std::uint32_t stream) { return Frame(kReset, 0, stream, BigEndian(8, 4)); }

inline bool Send(const FileDescriptor& socket, const std::string& bytes) {
  return ::send(socket.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

// Reads until the server has begun to answer on `streams` streams. False: it closed the connection.
inline bool AwaitAnswers(const FileDescriptor& socket, std::size_t streams) {
  std::set<std::string> answered;
  const auto read = [&](std::size_t bytes) {
    std::string text(bytes, '\0');
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t count = ::recv(socket.number(), text.data() + done, bytes - done, 0);
      if (count <= 0) return std::string();
      done += static_cast<std::size_t>(count);
    }
    return text;
  };
  while (answered.size() < streams) {
    const std::string head = read(9);  // Length (3), type, flags, stream (4).
    if (head.empty()) return false;
    std::size_t length = 0;
    for (int i = 0; i < 3; ++i) length = length << 8 | static_cast<unsigned char>(head[i]);
    if (length > 0 && read(length).empty()) return false;
    if (head[3] == kHeaders) answered.insert(head.substr(5));
  }
  return true;
}

}  // namespace embla::http2
