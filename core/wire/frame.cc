#include "core/wire/frame.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace embla::wire {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are little-endian");

struct Prefix {
  std::uint32_t text_bytes = 0;
  std::uint32_t arrays = 0;

  std::size_t head_bytes() const {
    return sizeof(Prefix) + arrays * sizeof(FrameArray) + text_bytes;
  }
};

template <typename T>
void Append(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

std::size_t Frame::bytes() const {
  std::size_t bytes = head.size();
  for (const grpc::Slice& piece : pieces) bytes += piece.size();
  return bytes;
}

Frame MakeFrame(std::string_view text) {
  Frame frame;
  Append(frame.head, Prefix{.text_bytes = static_cast<std::uint32_t>(text.size())});
  frame.head.append(text);
  return frame;
}

Frame MakeFrame(const SplitMessage& message, std::shared_ptr<Seal> seal) {
  std::string prefix;  // The submessage's tag and length.
  Frame frame;
  frame.borrows = message.borrows;
  std::vector<FrameArray> arrays;
  for (FieldPieces rest = message.fields; !rest.empty();) {
    const FieldPieces field = TakeField(rest);
    const std::size_t bytes = BytesOf(field);
    if (bytes == 0) continue;
    EMBLA_CHECK(bytes <= std::numeric_limits<std::uint32_t>::max());
    arrays.push_back(
        {static_cast<std::uint32_t>(field.front().number), static_cast<std::uint32_t>(bytes)});
    for (const LargeField& piece : field) {
      if (piece.slice.size() > 0) frame.pieces.push_back(piece.slice);
    }
  }
  if (seal != nullptr) {
    const std::span<const std::byte> bytes = seal->bytes();
    arrays.push_back({Seal::kArray, static_cast<std::uint32_t>(bytes.size())});
    frame.pieces.push_back(SliceOf(bytes, seal));
    frame.seal = std::move(seal);
  }
  EMBLA_CHECK(arrays.size() <= kFrameArraysMax);
  if (message.number != 0) AppendDelimited(message.number, message.small.size(), prefix);
  Append(frame.head, Prefix{.text_bytes = static_cast<std::uint32_t>(
                                message.envelope.size() + prefix.size() + message.small.size()),
                            .arrays = static_cast<std::uint32_t>(arrays.size())});
  for (const FrameArray& array : arrays) Append(frame.head, array);
  frame.head.append(message.envelope).append(prefix).append(message.small);
  return frame;
}

std::span<std::byte> FrameReader::Place() const {
  if (array_ == arrays_.size() || places_[array_] == nullptr) return {};
  return {places_[array_] + filled_, arrays_[array_].bytes - filled_};
}

absl::Status FrameReader::Placed(std::size_t bytes) {
  filled_ += bytes;
  if (places_[array_] != nullptr && bytes > 0) sink_.Filled(array_, filled_);
  return Advance();
}

absl::StatusOr<std::size_t> FrameReader::Take(std::span<const std::byte> bytes) {
  std::size_t taken = 0;
  if (array_ == arrays_.size()) {
    EMBLA_ASSIGN_OR_RETURN(taken, TakeHead(bytes));
    if (arrays_.empty()) return taken;  // The head goes on, or was all of the frame.
  }
  while (array_ < arrays_.size() && taken < bytes.size()) {
    const std::size_t count =
        std::min(bytes.size() - taken, std::size_t{arrays_[array_].bytes} - filled_);
    if (std::byte* const place = places_[array_]; place != nullptr) {
      std::memcpy(place + filled_, bytes.data() + taken, count);
    }
    taken += count;
    EMBLA_RETURN_IF_ERROR(Placed(count));
  }
  return taken;
}

// Takes what belongs to the head, and begins the frame when all of it is there.
absl::StatusOr<std::size_t> FrameReader::TakeHead(std::span<const std::byte> bytes) {
  std::size_t taken = 0;
  const auto take_until = [&](std::size_t size) {
    if (text_.size() >= size) return true;
    const std::size_t count = std::min(size - text_.size(), bytes.size() - taken);
    text_.append(reinterpret_cast<const char*>(bytes.data()) + taken, count);
    taken += count;
    return text_.size() == size;
  };
  if (!take_until(sizeof(Prefix))) return taken;
  Prefix prefix;
  std::memcpy(&prefix, text_.data(), sizeof(prefix));
  if (prefix.text_bytes > text_bytes_max_ || prefix.arrays > kFrameArraysMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("malformed frame: text of ", prefix.text_bytes, " bytes and ", prefix.arrays,
                     " arrays, at most ", text_bytes_max_, " and ", kFrameArraysMax));
  }
  if (take_until(prefix.head_bytes())) EMBLA_RETURN_IF_ERROR(Begin());
  return taken;
}

absl::Status FrameReader::Begin() {
  Prefix prefix;
  std::memcpy(&prefix, text_.data(), sizeof(prefix));
  arrays_.resize(prefix.arrays);
  if (prefix.arrays > 0) {
    std::memcpy(arrays_.data(), text_.data() + sizeof(Prefix), prefix.arrays * sizeof(FrameArray));
  }
  places_.fill(nullptr);
  array_ = 0;
  filled_ = 0;
  const std::string text = std::move(text_);
  text_.clear();
  EMBLA_RETURN_IF_ERROR(
      sink_.BeginFrame(std::string_view(text).substr(prefix.head_bytes() - prefix.text_bytes),
                       arrays_, std::span(places_).first(arrays_.size())));
  if (arrays_.empty()) return sink_.EndFrame();
  return Advance();
}

// On to the next array that has not come.
absl::Status FrameReader::Advance() {
  while (array_ < arrays_.size() && filled_ == arrays_[array_].bytes) {
    ++array_;
    filled_ = 0;
  }
  if (array_ < arrays_.size()) return absl::OkStatus();
  arrays_.clear();
  array_ = 0;
  return sink_.EndFrame();
}

}  // namespace embla::wire
