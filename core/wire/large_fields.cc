#include "core/wire/large_fields.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/message.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/wire/message_scan.h"

namespace embla::wire {
namespace {

using ::google::protobuf::MessageLite;
using ::google::protobuf::io::CodedInputStream;

// A field is copied in pieces of this size where somebody looks at them.
constexpr std::size_t kPieceBytes = std::size_t{32} << 10;

// A slice of its own costs more than copying this little.
constexpr std::size_t kCopiedBytesMax = 256;

enum WireType : std::uint32_t { kVarint = 0, kFixed64 = 1, kDelimited = 2, kFixed32 = 5 };

void AppendVarint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

std::size_t VarintBytes(std::uint64_t value) {
  std::size_t bytes = 1;
  for (; value >= 0x80; value >>= 7) ++bytes;
  return bytes;
}

std::uint64_t DelimitedTag(int number) {
  return (static_cast<std::uint64_t>(number) << 3) | kDelimited;
}

// Collects bytes and slices in order.
class SliceWriter {
 public:
  std::string& text() { return text_; }

  // `copies`: nothing of the fields is read any more once the message is finished.
  void Append(FieldPieces fields, bool copies = false) {
    while (!fields.empty()) {
      const FieldPieces field = TakeField(fields);
      const std::size_t bytes = BytesOf(field);
      if (bytes == 0) continue;
      AppendVarint(text_, DelimitedTag(field.front().number));
      AppendVarint(text_, bytes);
      if (bytes <= kCopiedBytesMax) {
        for (const LargeField& piece : field) AppendText(piece.slice);
        continue;
      }
      Flush();
      if (copies) {
        slices_.push_back(Copied(field));
        continue;
      }
      for (const LargeField& piece : field) {
        if (piece.slice.size() > 0) slices_.push_back(piece.slice);
      }
    }
  }

  grpc::ByteBuffer Finish() {
    Flush();
    return grpc::ByteBuffer(slices_.data(), slices_.size());
  }

 private:
  static grpc::Slice Copied(FieldPieces pieces) {
    Buffer copy = Buffer::Allocate(BytesOf(pieces));
    std::byte* end = copy.data();
    for (const LargeField& piece : pieces) {
      std::memcpy(end, piece.slice.begin(), piece.slice.size());
      end += piece.slice.size();
    }
    return SliceOf(std::move(copy));
  }
  void AppendText(const grpc::Slice& slice) {
    text_.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  void Flush() {
    if (text_.empty()) return;
    slices_.emplace_back(text_.data(), text_.size());
    text_.clear();
  }

  std::string text_;
  std::vector<grpc::Slice> slices_;
};

std::size_t EncodedBytes(const std::vector<LargeField>& fields) {
  std::size_t bytes = 0;
  for (FieldPieces rest = fields; !rest.empty();) {
    const FieldPieces field = TakeField(rest);
    const std::size_t size = BytesOf(field);
    if (size == 0) continue;
    bytes += VarintBytes(DelimitedTag(field.front().number)) + VarintBytes(size) + size;
  }
  return bytes;
}

absl::Status Malformed(const char* what, std::size_t position) {
  return absl::InvalidArgumentError(
      absl::StrCat("malformed message: ", what, " at byte ", position));
}

bool Contains(std::span<const int> numbers, int number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

// Reads the fields of one message, or of one submessage of it.
class FieldReader {
 public:
  FieldReader(grpc::ByteBuffer& bytes, const PlaceField& place, const DecodeLimits& limits,
              const FieldFilled& filled)
      : size_(bytes.Length()),
        source_(&bytes),
        in_(&source_),
        place_(place),
        limits_(limits),
        filled_(filled) {}

  struct Field {
    std::uint32_t tag = 0;
    std::size_t size = 0;  // Bytes of a delimited field's content.

    int number() const { return static_cast<int>(tag >> 3); }
    bool delimited() const { return (tag & 7) == kDelimited; }
  };

  std::size_t size() const { return size_; }
  std::size_t position() const { return static_cast<std::size_t>(in_.CurrentPosition()); }

  // The next field's tag; its content must lie before `end`.
  absl::StatusOr<Field> Next(std::size_t end) {
    Field field;
    field.tag = in_.ReadTag();
    if (field.tag == 0 || field.number() == 0) return Malformed("bad tag", position());
    if (field.delimited()) {
      std::uint64_t size = 0;
      if (!in_.ReadVarint64(&size)) return Malformed("bad length", position());
      if (position() > end || size > end - position()) {
        return Malformed("a field longer than the message", position());
      }
      field.size = static_cast<std::size_t>(size);
    }
    return field;
  }

  absl::Status Skip(const Field& field, std::size_t end) {
    if (!field.delimited()) {
      std::string ignored;
      return CopyScalar(field, end, ignored);
    }
    if (!in_.Skip(static_cast<int>(field.size))) return Malformed("truncated", position());
    return absl::OkStatus();
  }

  // Copies large fields to their place, everything else to `small`.
  absl::Status ReadFields(std::size_t end, std::span<const int> large_numbers, std::string& small) {
    while (position() < end) {
      EMBLA_ASSIGN_OR_RETURN(const Field field, Next(end));
      if (field.delimited() && Contains(large_numbers, field.number())) {
        EMBLA_RETURN_IF_ERROR(ReadLarge(field));
      } else {
        EMBLA_RETURN_IF_ERROR(CopySmall(field, end, small));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CopySmall(const Field& field, std::size_t end, std::string& small) {
    if (field.size > limits_.small_bytes_max || small.size() > limits_.small_bytes_max) {
      return absl::InvalidArgumentError(absl::StrCat(
          "message has more than ", limits_.small_bytes_max, " bytes beside its payloads"));
    }
    if (++small_fields_ > limits_.small_fields_max) {
      return absl::InvalidArgumentError(absl::StrCat(
          "message has more than ", limits_.small_fields_max, " fields beside its payloads"));
    }
    AppendVarint(small, field.tag);
    if (!field.delimited()) return CopyScalar(field, end, small);
    AppendVarint(small, field.size);
    const std::size_t old_size = small.size();
    small.resize(old_size + field.size);
    if (!in_.ReadRaw(small.data() + old_size, static_cast<int>(field.size))) {
      return Malformed("truncated", position());
    }
    return absl::OkStatus();
  }

 private:
  absl::Status CopyScalar(const Field& field, std::size_t end, std::string& small) {
    char fixed[8];
    std::uint64_t varint = 0;
    bool read = false;
    switch (field.tag & 7) {
      case kVarint:
        read = in_.ReadVarint64(&varint);
        AppendVarint(small, varint);
        break;
      case kFixed64:
        read = in_.ReadRaw(fixed, 8);
        small.append(fixed, 8);
        break;
      case kFixed32:
        read = in_.ReadRaw(fixed, 4);
        small.append(fixed, 4);
        break;
      default:
        return Malformed("unknown wire type", position());
    }
    if (!read || position() > end) return Malformed("truncated", position());
    return absl::OkStatus();
  }

  absl::Status ReadLarge(const Field& field) {
    if (field.size > limits_.large_bytes_max - large_bytes_) {
      return absl::InvalidArgumentError(absl::StrCat("payloads of ", large_bytes_ + field.size,
                                                     " bytes or more, at most ",
                                                     limits_.large_bytes_max, " allowed"));
    }
    large_bytes_ += field.size;
    EMBLA_ASSIGN_OR_RETURN(std::byte* const target, place_(field.number(), field.size));
    const std::size_t piece = filled_ ? kPieceBytes : field.size;
    std::size_t copied = 0;
    if (filled_) filled_(field.number(), {target, field.size}, copied);
    while (copied < field.size) {
      const std::size_t bytes = std::min(piece, field.size - copied);
      if (!in_.ReadRaw(target + copied, static_cast<int>(bytes))) {
        return Malformed("truncated", position());
      }
      copied += bytes;
      if (filled_) filled_(field.number(), {target, field.size}, copied);
    }
    return absl::OkStatus();
  }

  const std::size_t size_;
  grpc::ProtoBufferReader source_;
  CodedInputStream in_;
  const PlaceField& place_;
  const DecodeLimits& limits_;
  const FieldFilled& filled_;  // May be null.
  std::size_t large_bytes_ = 0;
  std::size_t small_fields_ = 0;
};

absl::Status CheckReadable(const grpc::ByteBuffer& bytes) {
  if (!bytes.Valid()) return absl::InvalidArgumentError("malformed message: no bytes");
  // CodedInputStream counts with int.
  if (bytes.Length() > std::numeric_limits<int>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("message of ", bytes.Length(), " bytes, at most 2^31 - 1 allowed"));
  }
  return absl::OkStatus();
}

// A message with no more bytes than two per field that is allowed cannot have too many.
absl::Status ScanSmall(std::string_view small, const DecodeLimits& limits,
                       const MessageLite& message) {
  const auto* const described = dynamic_cast<const google::protobuf::Message*>(&message);
  if (described == nullptr || small.size() / 2 <= limits.small_fields_max) return absl::OkStatus();
  return ScanMessage(small, *described->GetDescriptor(),
                     {.bytes_max = small.size(), .fields_max = limits.small_fields_max});
}

absl::Status Merge(std::string_view small, const DecodeLimits& limits, MessageLite& message) {
  EMBLA_RETURN_IF_ERROR(ScanSmall(small, limits, message));
  CodedInputStream in(reinterpret_cast<const std::uint8_t*>(small.data()),
                      static_cast<int>(small.size()));
  if (message.MergeFromCodedStream(&in) && in.ConsumedEntireMessage()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("malformed message: not a ", message.GetTypeName()));
}

const NestedMessage* Find(std::span<const NestedMessage> nested, const FieldReader::Field& field) {
  if (!field.delimited()) return nullptr;
  for (const NestedMessage& candidate : nested) {
    if (candidate.number == field.number()) return &candidate;
  }
  return nullptr;
}

// Everything but the submessages.
absl::Status ReadEnvelope(FieldReader& reader, std::span<const NestedMessage> nested,
                          const DecodeLimits& limits, MessageLite& envelope) {
  std::string small;
  while (reader.position() < reader.size()) {
    EMBLA_ASSIGN_OR_RETURN(const FieldReader::Field field, reader.Next(reader.size()));
    EMBLA_RETURN_IF_ERROR(Find(nested, field) != nullptr
                              ? reader.Skip(field, reader.size())
                              : reader.CopySmall(field, reader.size(), small));
  }
  return Merge(small, limits, envelope);
}

// Parses a message that has only submessages.
absl::StatusOr<int> ReadNested(FieldReader& reader, std::span<const NestedMessage> nested,
                               const DecodeLimits& limits) {
  int found = 0;
  while (reader.position() < reader.size()) {
    EMBLA_ASSIGN_OR_RETURN(const FieldReader::Field field, reader.Next(reader.size()));
    const NestedMessage* const target = Find(nested, field);
    if (target == nullptr) {
      EMBLA_RETURN_IF_ERROR(reader.Skip(field, reader.size()));
      continue;
    }
    if (found != 0 && found != target->number) {
      return Malformed("two members of a oneof", reader.position());
    }
    found = target->number;
    std::string small;
    EMBLA_RETURN_IF_ERROR(
        reader.ReadFields(reader.position() + field.size, target->large_numbers, small));
    EMBLA_RETURN_IF_ERROR(Merge(small, limits, *target->small));
  }
  return found;
}

}  // namespace

grpc::Slice SliceOf(Buffer buffer) {
  if (buffer.empty()) return grpc::Slice();
  auto* const owned = new Buffer(std::move(buffer));
  return grpc::Slice(
      owned->data(), owned->size(), [](void* user_data) { delete static_cast<Buffer*>(user_data); },
      owned);
}

grpc::Slice SliceOf(SharedBuffer buffer) {
  if (buffer.empty()) return grpc::Slice();
  auto* const held = new SharedBuffer(std::move(buffer));
  // gRPC only reads what it sends.
  return grpc::Slice(
      const_cast<std::byte*>(held->data()), held->size(),
      [](void* user_data) { delete static_cast<SharedBuffer*>(user_data); }, held);
}

grpc::Slice SliceOf(std::span<const std::byte> bytes, std::shared_ptr<const void> memory) {
  using Memory = std::shared_ptr<const void>;
  auto* const held = new Memory(std::move(memory));
  return grpc::Slice(
      const_cast<std::byte*>(bytes.data()), bytes.size(),
      [](void* user_data) { delete static_cast<Memory*>(user_data); }, held);
}

FieldPieces TakeField(FieldPieces& fields) {
  const auto end = std::find_if(fields.begin(), fields.end(), [&](const LargeField& piece) {
    return piece.number != fields.front().number;
  });
  const FieldPieces field(fields.begin(), end);
  fields = fields.subspan(field.size());
  return field;
}

std::size_t BytesOf(FieldPieces pieces) {
  std::size_t bytes = 0;
  for (const LargeField& piece : pieces) bytes += piece.slice.size();
  return bytes;
}

grpc::ByteBuffer EncodeMessage(const MessageLite& small, const std::vector<LargeField>& fields) {
  SliceWriter writer;
  small.AppendToString(&writer.text());
  writer.Append(fields);
  return writer.Finish();
}

std::size_t SplitMessage::bytes() const {
  return envelope.size() + small.size() + EncodedBytes(fields);
}

SplitMessage Split(const MessageLite& envelope, int number, const MessageLite& small,
                   std::vector<LargeField> fields) {
  return {.envelope = envelope.SerializeAsString(),
          .number = number,
          .small = small.SerializeAsString(),
          .fields = std::move(fields)};
}

void AppendDelimited(int number, std::size_t bytes, std::string& out) {
  AppendVarint(out, DelimitedTag(number));
  AppendVarint(out, bytes);
}

grpc::ByteBuffer Join(const SplitMessage& message) {
  SliceWriter writer;
  writer.text() = message.envelope;
  if (message.number != 0) {
    AppendDelimited(message.number, message.small.size() + EncodedBytes(message.fields),
                    writer.text());
    writer.text().append(message.small);
    writer.Append(message.fields, message.borrows);
  }
  return writer.Finish();
}

grpc::ByteBuffer EncodeNested(const MessageLite& envelope, int number, const MessageLite& small,
                              const std::vector<LargeField>& fields) {
  return Join(Split(envelope, number, small, fields));
}

absl::Status DecodeText(std::string_view text, const DecodeLimits& limits, MessageLite& message) {
  if (text.size() > limits.small_bytes_max) {
    return absl::InvalidArgumentError(absl::StrCat("message has ", text.size(),
                                                   " bytes beside its payloads, at most ",
                                                   limits.small_bytes_max));
  }
  message.Clear();
  return Merge(text, limits, message);
}

absl::Status DecodeMessage(grpc::ByteBuffer& bytes, std::span<const int> large_numbers,
                           const PlaceField& place, const DecodeLimits& limits, MessageLite& small,
                           const FieldFilled& filled) {
  EMBLA_RETURN_IF_ERROR(CheckReadable(bytes));
  FieldReader reader(bytes, place, limits, filled);
  std::string text;
  EMBLA_RETURN_IF_ERROR(reader.ReadFields(reader.size(), large_numbers, text));
  small.Clear();
  return Merge(text, limits, small);
}

absl::StatusOr<int> DecodeNested(grpc::ByteBuffer& bytes, std::span<const NestedMessage> nested,
                                 const PlaceField& place, const DecodeLimits& limits,
                                 MessageLite& envelope, const FieldFilled& filled) {
  EMBLA_RETURN_IF_ERROR(CheckReadable(bytes));
  envelope.Clear();
  FieldReader first(bytes, place, limits, filled);
  EMBLA_RETURN_IF_ERROR(ReadEnvelope(first, nested, limits, envelope));
  FieldReader second(bytes, place, limits, filled);
  return ReadNested(second, nested, limits);
}

}  // namespace embla::wire
