// How much memory the messages take that a connection has begun to send and has not completed.
//
// gRPC takes in as many bytes as a message states, on every stream, before any handler hears of the
// message. A server that knows what passes over the socket can know how much that is: HTTP/2 says
// in 9 bytes before each frame how long it is and to which stream it belongs, gRPC in 5 bytes
// before each message how long that is. So this follows both directions of a connection:
//   - a stream is open from the client's first HEADERS until either side ends or resets it;
//   - bytes of DATA frames of an open stream belong to its message until it is complete. gRPC holds
//     a message that is complete no longer than until its handler takes it.
// gRPC holds more than the bytes of DATA: it keeps the whole buffer of 64 KiB, at most, of
// which a part of a message is a slice, and a record for each slice. So a piece of a message counts
// with everything that was received since the piece before it, at least as a record and at most as
// a buffer. A client whose parts lie sparsely among other frames is charged for the buffers.
//
// Bytes that are no HTTP/2 make the counts wrong, but gRPC ends such a connection.
//
// Thread safety: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/container/flat_hash_map.h"

namespace embla {

class Http2Parts {
 public:
  // Bytes that the server's socket has received from the client, and has taken for it, in order.
  void OnReceived(std::span<const std::byte> bytes);
  void OnSent(std::span<const std::byte> bytes);

  // Held by all messages that are not complete.
  std::size_t bytes() const { return bytes_; }

 private:
  struct FrameHead {
    std::size_t length = 0;  // Bytes of the payload.
    std::uint8_t type = 0;
    std::uint8_t flags = 0;
    std::uint32_t stream = 0;
  };
  // A frame's payload or a part of it.
  struct Piece {
    std::span<const std::byte> bytes;
    bool is_first = false;
    bool is_last = false;
  };
  // Cuts the bytes of one direction into frames.
  class Frames {
   public:
    explicit Frames(std::size_t preface_bytes) : preface_left_(preface_bytes) {}

    // Calls take(const FrameHead&, const Piece&) for every piece, in order.
    template <typename Take>
    void Cut(std::span<const std::byte> bytes, const Take& take);

   private:
    std::size_t preface_left_;
    std::array<std::byte, 9> head_bytes_{};
    std::size_t head_size_ = 0;  // Bytes in head_bytes_; all of them while a payload is on its way.
    FrameHead head_;
    std::size_t payload_left_ = 0;
  };
  // The message that is on its way on a stream.
  struct Part {
    std::uint32_t prefix_size = 0;  // Received of the bytes before the message.
    std::size_t left = 0;  // Bytes of the message still to come, once its prefix is complete.
    std::size_t charged = 0;
  };

  static FrameHead ParseHead(const std::array<std::byte, 9>& bytes);
  static bool EndsStream(const FrameHead& head);
  void Begin(std::uint32_t stream);
  void Advance(Part& part, std::span<const std::byte> bytes);
  void Close(std::uint32_t stream);

  Frames received_{24};  // The client's first bytes are "PRI * HTTP/2.0" and so on.
  Frames sent_{0};
  std::uint32_t last_stream_ = 0;
  std::size_t uncharged_ = 0;  // Received since the last piece that was charged.
  std::size_t bytes_ = 0;
  absl::flat_hash_map<std::uint32_t, Part> open_;
};

}  // namespace embla
