// Messages of a stream on a socket, without gRPC (docs/data_sockets.md). A frame is
//
//   u32 text_bytes, u32 arrays, arrays x { u32 number, u32 bytes }, text, the arrays' bytes
//
// little-endian, without padding. The text is the message as protobuf writes it, but without its
// large fields, which are the arrays: who receives knows what comes, and where it is to go, before
// it comes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <grpcpp/support/slice.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/wire/large_fields.h"
#include "core/wire/seal.h"

namespace embla::wire {

inline constexpr std::size_t kFrameArraysMax = 8;

struct FrameArray {
  std::uint32_t number = 0;  // Field of the submessage.
  std::uint32_t bytes = 0;
};

struct Frame {
  std::string head;                 // Everything before the arrays.
  std::vector<grpc::Slice> pieces;  // The arrays, one after the other.
  bool borrows = false;             // See SplitMessage.
  std::shared_ptr<Seal> seal;       // Its memory is the last piece; null: there is none.

  std::size_t bytes() const;
};
// A frame whose text is `text`, without arrays.
Frame MakeFrame(std::string_view text);
// Requires: each field has less than 4 GiB, and at most kFrameArraysMax of them are not empty.
Frame MakeFrame(const SplitMessage& message, std::shared_ptr<Seal> seal = nullptr);

// Takes the bytes of a connection apart.
class FrameReader {
 public:
  class Sink {
   public:
    // A frame begins. `places` has one entry per array; where it stays null, the array is dropped.
    // Views are valid during the call. An error ends the connection.
    virtual absl::Status BeginFrame(std::string_view text, std::span<const FrameArray> arrays,
                                    std::span<std::byte*> places) = 0;
    // The first `filled` bytes of an array that has a place are there: more than before.
    virtual void Filled(std::size_t /*array*/, std::size_t /*filled*/) {}
    // All arrays are where they belong.
    virtual absl::Status EndFrame() = 0;

   protected:
    ~Sink() = default;
  };

  // `sink` is not owned and outlives the reader. Longer texts are refused.
  FrameReader(Sink& sink, std::size_t text_bytes_max)
      : sink_(sink), text_bytes_max_(text_bytes_max) {}

  // Where the next bytes belong, so that they can be received there; then say how many came. Empty:
  // they are to be taken by Take.
  std::span<std::byte> Place() const;
  absl::Status Placed(std::size_t bytes);

  // Takes bytes from the front up to the end of a frame at most, and returns how many.
  // Errors: InvalidArgument (no frame), and the sink's.
  absl::StatusOr<std::size_t> Take(std::span<const std::byte> bytes);

  // Nothing of the next frame has come.
  bool is_between_frames() const { return text_.empty() && array_ == arrays_.size(); }

 private:
  absl::StatusOr<std::size_t> TakeHead(std::span<const std::byte> bytes);
  absl::Status Begin();
  absl::Status Advance();

  Sink& sink_;
  const std::size_t text_bytes_max_;
  std::string text_;                // The head, as far as it has come.
  std::vector<FrameArray> arrays_;  // The frame's whose arrays come now.
  std::array<std::byte*, kFrameArraysMax> places_{};
  std::size_t array_ = 0;  // The one that comes now; arrays_.size(): the head does.
  std::size_t filled_ = 0;
};

}  // namespace embla::wire
