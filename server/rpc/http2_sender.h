// Test support: a client that begins messages on many streams and completes none, within the
// windows that the server gives it.
#pragma once

#include <poll.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "server/rpc/http2_fixture.h"

namespace embla::http2 {

class Sender {
 public:
  explicit Sender(const std::string& address) : socket_(Connect(address)) {
    is_closed_ = !Send(socket_, Hello());
  }

  const FileDescriptor& socket() const { return socket_; }
  bool is_closed() const { return is_closed_; }
  // Returns a setting of the server, in its acknowledged form; 0: nothing so far.
  std::size_t Setting(std::uint16_t number) {
    Read();
    return settings_[number];
  }
  // Whether the server has sent something of a message on the stream.
  bool Answers(std::uint32_t stream) {
    Read();
    return answered_.contains(stream);
  }

  void Open(std::uint32_t stream, const std::string& path) {
    Write(Headers(stream, path));
    windows_[stream] = initial_window_;
  }
  // Starts a call whose message is said to have `stated` bytes.
  void Begin(std::uint32_t stream, const std::string& path, std::uint32_t stated) {
    Open(stream, path);
    Payload(stream, std::string(1, '\0') + BigEndian(stated, 4), 0);
  }
  // Sends a whole message, without ending the call.
  void SendMessage(std::uint32_t stream, const std::string& message) {
    Payload(
        stream,
        std::string(1, '\0') + BigEndian(static_cast<std::uint32_t>(message.size()), 4) + message,
        0);
  }

  // Sends as many of `bytes` more as the server takes within `limit`, in frames of `frame_bytes`,
  // each with `garbage` bytes of a frame behind it that means nothing. Returns how many that were.
  struct Shape {
    std::size_t frame_bytes = 16384;
    std::size_t garbage = 0;
  };
  std::size_t SendMore(std::uint32_t stream, std::size_t bytes, const Shape& shape,
                       absl::Duration limit) {
    const absl::Time end = Clock::Real().Now() + limit;
    std::size_t sent = 0;
    while (sent < bytes && !is_closed_) {
      Read();
      const std::int64_t window = std::min(windows_[stream], connection_window_);
      const std::size_t piece =
          std::min({bytes - sent, shape.frame_bytes,
                    static_cast<std::size_t>(std::max<std::int64_t>(window, 0))});
      if (piece == 0) {
        if (Clock::Real().Now() >= end) break;
        AwaitInput();
        continue;
      }
      Payload(stream, std::string(piece, '\1'), shape.garbage);
      sent += piece;
    }
    return sent;
  }

  // Takes in what the server has said. is_closed() is right afterwards.
  void Read() {
    char bytes[65536];
    while (!is_closed_) {
      const ssize_t count = ::recv(socket_.number(), bytes, sizeof(bytes), MSG_DONTWAIT);
      if (count < 0 && errno == EAGAIN) break;
      if (count <= 0) is_closed_ = true;
      if (count > 0) input_.append(bytes, static_cast<std::size_t>(count));
    }
    std::size_t at = 0;
    while (input_.size() - at >= 9) {
      const std::size_t length = Number(at, 3);
      if (input_.size() - at < 9 + length) break;
      Take(static_cast<std::uint8_t>(input_[at + 3]), static_cast<std::uint8_t>(input_[at + 4]),
           static_cast<std::uint32_t>(Number(at + 5, 4)), at + 9, length);
      at += 9 + length;
    }
    input_.erase(0, at);
  }

 private:
  static constexpr std::uint8_t kWindowUpdate = 8;
  static constexpr std::uint8_t kPing = 6;
  static constexpr std::uint8_t kAck = 1;

  std::size_t Number(std::size_t at, std::size_t bytes) const {
    std::size_t number = 0;
    for (std::size_t i = 0; i < bytes; ++i) {
      number = number << 8 | static_cast<unsigned char>(input_[at + i]);
    }
    return number;
  }

  void Take(std::uint8_t type, std::uint8_t flags, std::uint32_t stream, std::size_t payload,
            std::size_t length) {
    if (type == kData) answered_.insert(stream);
    if (type == kWindowUpdate) {
      const auto more = static_cast<std::int64_t>(Number(payload, 4));
      (stream == 0 ? connection_window_ : windows_[stream]) += more;
    } else if (type == kSettings && (flags & kAck) == 0) {
      for (std::size_t at = payload; at < payload + length; at += 6) {
        settings_[static_cast<std::uint16_t>(Number(at, 2))] = Number(at + 2, 4);
        if (Number(at, 2) == 4) SetInitialWindow(static_cast<std::int64_t>(Number(at + 2, 4)));
      }
      Write(Frame(kSettings, kAck, 0, ""));
    } else if (type == kPing && (flags & kAck) == 0) {
      Write(Frame(FrameType{kPing}, kAck, 0, input_.substr(payload, length)));
    }
  }

  void SetInitialWindow(std::int64_t window) {
    for (auto& [stream, left] : windows_) left += window - initial_window_;
    initial_window_ = window;
  }

  void Payload(std::uint32_t stream, const std::string& bytes, std::size_t garbage) {
    std::string frames = Frame(kData, 0, stream, bytes);
    while (garbage > 0) {
      const std::size_t length = std::min<std::size_t>(garbage, 16384);
      frames += Frame(FrameType{0xbb}, 0, 0, std::string(length, '\2'));
      garbage -= length;
    }
    Write(frames);
    windows_[stream] -= static_cast<std::int64_t>(bytes.size());
    connection_window_ -= static_cast<std::int64_t>(bytes.size());
  }

  void Write(const std::string& bytes) { is_closed_ = is_closed_ || !Send(socket_, bytes); }
  void AwaitInput() const {
    pollfd poll{.fd = socket_.number(), .events = POLLIN, .revents = 0};
    ::poll(&poll, 1, 20);
  }

  FileDescriptor socket_;
  bool is_closed_ = false;
  std::string input_;
  std::int64_t initial_window_ = 65535;
  std::int64_t connection_window_ = 65535;
  std::map<std::uint32_t, std::int64_t> windows_;
  std::map<std::uint16_t, std::size_t> settings_;
  std::set<std::uint32_t> answered_;
};

}  // namespace embla::http2
