// Ordinary protobuf on the wire, but the large `bytes` fields never pass through protobuf: they are
// sent as slices of the caller's memory, and received with one copy into an aligned buffer.
//
// A message is split into a small protobuf message (everything else) and its large fields, by field
// number. Encoding writes the small message first, then each large field as tag, length, bytes:
// exactly what protobuf would write. Decoding takes fields in any order, the last of a number wins,
// and accepts what any proto3 encoder produces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/buffer.h"

namespace embla::wire {

// The buffer's memory as a slice, without a copy; the last reference frees it.
grpc::Slice SliceOf(Buffer buffer);
grpc::Slice SliceOf(SharedBuffer buffer);
// `memory` keeps `bytes`, and nobody changes them meanwhile.
grpc::Slice SliceOf(std::span<const std::byte> bytes, std::shared_ptr<const void> memory);

// A large field to send, or a piece of one: neighbours with one number are one field's. Slices are
// shared by reference: encoding one again copies nothing.
struct LargeField {
  LargeField(int number, grpc::Slice slice) : number(number), slice(std::move(slice)) {}
  LargeField(int number, Buffer buffer) : LargeField(number, SliceOf(std::move(buffer))) {}
  LargeField(int number, SharedBuffer buffer) : LargeField(number, SliceOf(std::move(buffer))) {}

  int number = 0;
  grpc::Slice slice;
};

using FieldPieces = std::span<const LargeField>;
// Takes the pieces of the first of `fields`, which are not empty.
FieldPieces TakeField(FieldPieces& fields);
std::size_t BytesOf(FieldPieces pieces);

// `fields` that are empty are left out, as proto3 does.
grpc::ByteBuffer EncodeMessage(const google::protobuf::MessageLite& small,
                               const std::vector<LargeField>& fields);

// A message inside an envelope message, with the large fields beside the text of both.
struct SplitMessage {
  std::string envelope;  // Without the submessage.
  int number = 0;        // Field of the envelope that holds the submessage; 0: there is none.
  std::string small;     // The submessage without its large fields.
  std::vector<LargeField> fields;
  bool borrows = false;  // Fields are memory that others may change once the message is sent.

  // Bytes of all its parts.
  std::size_t bytes() const;
};
SplitMessage Split(const google::protobuf::MessageLite& envelope, int number,
                   const google::protobuf::MessageLite& small, std::vector<LargeField> fields);
// Appends what goes before a submessage of so many bytes.
void AppendDelimited(int number, std::size_t bytes, std::string& out);
// `envelope` followed by field `number`, as protobuf would write it. Fields that are borrowed are
// copied.
grpc::ByteBuffer Join(const SplitMessage& message);
// Joined.
grpc::ByteBuffer EncodeNested(const google::protobuf::MessageLite& envelope, int number,
                              const google::protobuf::MessageLite& small,
                              const std::vector<LargeField>& fields);

struct DecodeLimits {
  std::size_t large_bytes_max = std::size_t{256} << 20;  // All large fields together.
  std::size_t small_bytes_max = std::size_t{4} << 20;
  // Fields of the small message and all that it contains; parsed, an empty one has 50 bytes and
  // more.
  std::size_t small_fields_max = 65'536;
};

// Fills `message` with a text that has no large fields. Errors: InvalidArgument (malformed, sizes
// over the limits).
absl::Status DecodeText(std::string_view text, const DecodeLimits& limits,
                        google::protobuf::MessageLite& message);

// Returns the memory for a decoded large field of `size` bytes; called once per occurrence, also
// for 0 bytes. The message really has that many bytes.
using PlaceField = std::function<absl::StatusOr<std::byte*>(int number, std::size_t size)>;
// Told what has come of a large field, as it is copied to its place: 0 first, and then more and
// more bytes, the last of which are still in the processor's caches.
using FieldFilled =
    std::function<void(int number, std::span<const std::byte> field, std::size_t filled)>;

// Fills `small` and copies the fields listed in `large_numbers` to where `place` says.
// Errors: InvalidArgument (truncated, bad tag, sizes over the limits), and those of `place`.
absl::Status DecodeMessage(grpc::ByteBuffer& bytes, std::span<const int> large_numbers,
                           const PlaceField& place, const DecodeLimits& limits,
                           google::protobuf::MessageLite& small,
                           const FieldFilled& filled = nullptr);

// A submessage of an envelope's oneof, and which of its fields are large.
struct NestedMessage {
  int number = 0;
  std::span<const int> large_numbers;
  // Not owned. All its other fields are parsed into it.
  google::protobuf::MessageLite* small = nullptr;
};

// Like DecodeMessage, for an envelope: fills `envelope` first, then the one of `nested` that
// occurs, and returns its number, or 0 when none does. InvalidArgument when several occur.
absl::StatusOr<int> DecodeNested(grpc::ByteBuffer& bytes, std::span<const NestedMessage> nested,
                                 const PlaceField& place, const DecodeLimits& limits,
                                 google::protobuf::MessageLite& envelope,
                                 const FieldFilled& filled = nullptr);

}  // namespace embla::wire
