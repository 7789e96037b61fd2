#include "core/wire/message_scan.h"

#include <cstdint>

#include <google/protobuf/io/coded_stream.h>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace embla::wire {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::io::CodedInputStream;

constexpr int kDepthMax = 16;

class Scanner {
 public:
  Scanner(std::string_view bytes, const ScanLimits& limits)
      : in_(reinterpret_cast<const std::uint8_t*>(bytes.data()), static_cast<int>(bytes.size())),
        limits_(limits) {}

  // Reads the fields up to `end`, of a message of `type`.
  absl::Status Scan(int end, const Descriptor& type, int depth) {
    if (depth > kDepthMax) return Refuse(absl::StrCat("messages in messages, ", depth, " deep"));
    while (in_.CurrentPosition() < end) {
      const std::uint32_t tag = in_.ReadTag();
      if (tag >> 3 == 0) return Refuse("bad tag");
      if (++fields_ > limits_.fields_max) {
        return Refuse(absl::StrCat("more than ", limits_.fields_max, " fields"));
      }
      EMBLA_RETURN_IF_ERROR(ScanContent(tag, end, type, depth));
    }
    return absl::OkStatus();
  }

 private:
  enum WireType : std::uint32_t { kVarint = 0, kFixed64 = 1, kDelimited = 2, kFixed32 = 5 };

  absl::Status ScanContent(std::uint32_t tag, int end, const Descriptor& type, int depth) {
    std::uint64_t value = 0;
    bool read = false;
    switch (tag & 7) {
      case kVarint:
        read = in_.ReadVarint64(&value);
        break;
      case kFixed64:
        read = in_.Skip(8);
        break;
      case kFixed32:
        read = in_.Skip(4);
        break;
      case kDelimited: {
        read = in_.ReadVarint64(&value);
        const int left = end - in_.CurrentPosition();
        if (!read || left < 0 || value > static_cast<std::uint64_t>(left)) {
          return Refuse("a field longer than the message");
        }
        const FieldDescriptor* const field = type.FindFieldByNumber(static_cast<int>(tag >> 3));
        if (field != nullptr && field->message_type() != nullptr) {
          const int inner_end = in_.CurrentPosition() + static_cast<int>(value);
          return Scan(inner_end, *field->message_type(), depth + 1);
        }
        read = in_.Skip(static_cast<int>(value));
        break;
      }
      default:
        return Refuse("unknown wire type");
    }
    if (!read || in_.CurrentPosition() > end) return Refuse("truncated");
    return absl::OkStatus();
  }

  absl::Status Refuse(std::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("malformed message: ", absl::string_view(what.data(), what.size()),
                     " at byte ", in_.CurrentPosition()));
  }

  CodedInputStream in_;
  const ScanLimits& limits_;
  std::size_t fields_ = 0;
};

}  // namespace

absl::Status ScanMessage(std::string_view bytes, const Descriptor& type, const ScanLimits& limits) {
  if (bytes.size() > limits.bytes_max) {
    return absl::InvalidArgumentError(absl::StrCat("message of ", bytes.size(), " bytes, at most ",
                                                   limits.bytes_max, " allowed"));
  }
  return Scanner(bytes, limits).Scan(static_cast<int>(bytes.size()), type, 0);
}

}  // namespace embla::wire
