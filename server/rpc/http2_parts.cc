#include "server/rpc/http2_parts.h"

#include <algorithm>

namespace embla {
namespace {

constexpr std::uint8_t kData = 0;
constexpr std::uint8_t kHeaders = 1;
constexpr std::uint8_t kReset = 3;
constexpr std::uint8_t kEndStream = 1;

constexpr std::size_t kFrameHeadBytes = 9;
constexpr std::uint32_t kMessagePrefixBytes = 5;  // A flag, and the length.
// gRPC takes for a piece of a message a record, and up to a whole buffer.
constexpr std::size_t kRecordBytes = 64;
constexpr std::size_t kBufferBytes = std::size_t{64} << 10;

}  // namespace

Http2Parts::FrameHead Http2Parts::ParseHead(const std::array<std::byte, 9>& bytes) {
  const auto at = [&bytes](std::size_t i) { return std::to_integer<std::uint32_t>(bytes[i]); };
  return {.length = at(0) << 16 | at(1) << 8 | at(2),
          .type = static_cast<std::uint8_t>(at(3)),
          .flags = static_cast<std::uint8_t>(at(4)),
          .stream = (at(5) << 24 | at(6) << 16 | at(7) << 8 | at(8)) & 0x7fff'ffff};
}

bool Http2Parts::EndsStream(const FrameHead& head) {
  if (head.type == kReset) return true;
  return (head.type == kData || head.type == kHeaders) && (head.flags & kEndStream) != 0;
}

template <typename Take>
void Http2Parts::Frames::Cut(std::span<const std::byte> bytes, const Take& take) {
  const std::size_t preface = std::min(preface_left_, bytes.size());
  preface_left_ -= preface;
  bytes = bytes.subspan(preface);
  while (!bytes.empty()) {
    if (head_size_ < head_bytes_.size()) {
      const std::size_t taken = std::min(head_bytes_.size() - head_size_, bytes.size());
      std::copy_n(bytes.begin(), taken,
                  head_bytes_.begin() + static_cast<std::ptrdiff_t>(head_size_));
      head_size_ += taken;
      bytes = bytes.subspan(taken);
      if (head_size_ < head_bytes_.size()) return;
      head_ = ParseHead(head_bytes_);
      payload_left_ = head_.length;
      if (payload_left_ > 0) continue;
    }
    const std::size_t taken = std::min(payload_left_, bytes.size());
    const Piece piece{.bytes = bytes.first(taken),
                      .is_first = payload_left_ == head_.length,
                      .is_last = payload_left_ == taken};
    payload_left_ -= taken;
    bytes = bytes.subspan(taken);
    if (piece.is_last) head_size_ = 0;
    take(head_, piece);
  }
}

void Http2Parts::OnReceived(std::span<const std::byte> bytes) {
  received_.Cut(bytes, [this](const FrameHead& head, const Piece& piece) {
    uncharged_ += piece.bytes.size() + (piece.is_first ? kFrameHeadBytes : 0);
    if (head.type == kHeaders && piece.is_first) Begin(head.stream);
    if (head.type == kData) {
      const auto part = open_.find(head.stream);
      if (part != open_.end()) Advance(part->second, piece.bytes);
    }
    if (piece.is_last && EndsStream(head)) Close(head.stream);
  });
}

void Http2Parts::OnSent(std::span<const std::byte> bytes) {
  sent_.Cut(bytes, [this](const FrameHead& head, const Piece& piece) {
    if (piece.is_last && EndsStream(head)) Close(head.stream);
  });
}

// A client's streams have ascending odd numbers; other HEADERS are trailers, or for a stream that
// is over.
void Http2Parts::Begin(std::uint32_t stream) {
  if (stream <= last_stream_ || stream % 2 == 0) return;
  last_stream_ = stream;
  open_.emplace(stream, Part{});
}

void Http2Parts::Advance(Part& part, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (part.prefix_size < kMessagePrefixBytes) {
      if (part.prefix_size > 0) part.left = part.left << 8 | std::to_integer<std::size_t>(bytes[0]);
      ++part.prefix_size;
      bytes = bytes.subspan(1);
    } else {
      const std::size_t taken = std::min(part.left, bytes.size());
      part.left -= taken;
      bytes = bytes.subspan(taken);
    }
    if (part.prefix_size == kMessagePrefixBytes && part.left == 0) {
      bytes_ -= part.charged;
      part = {};
    }
  }
  if (part.prefix_size == 0) return;
  const std::size_t charge = std::clamp(uncharged_, kRecordBytes, kBufferBytes);
  uncharged_ = 0;
  part.charged += charge;
  bytes_ += charge;
}

void Http2Parts::Close(std::uint32_t stream) {
  const auto part = open_.find(stream);
  if (part == open_.end()) return;
  bytes_ -= part->second.charged;
  open_.erase(part);
}

}  // namespace embla
