#include "core/wire/status_codec.h"

#include <array>

#include "absl/time/time.h"
#include "core/base/retry_hint.h"
#include "core/base/text.h"
#include "embla/v1/status.pb.h"

namespace embla::wire {
namespace {

constexpr std::int32_t kCodeMax = 16;  // UNAUTHENTICATED
constexpr char kRetryInfoUrl[] = "type.googleapis.com/google.rpc.RetryInfo";

// Length of the UTF-8 character at the front of `text`, or 0 when there is none.
std::size_t CharacterBytes(std::string_view text) {
  const auto byte = [&text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  std::size_t length = 0;
  if (byte(0) < 0x80) return 1;
  if (byte(0) >= 0xc2 && byte(0) < 0xe0) length = 2;
  if (byte(0) >= 0xe0 && byte(0) < 0xf0) length = 3;
  if (byte(0) >= 0xf0 && byte(0) < 0xf5) length = 4;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and beyond U+10FFFF.
  if (byte(0) == 0xe0 && byte(1) < 0xa0) return 0;
  if (byte(0) == 0xed && byte(1) > 0x9f) return 0;
  if (byte(0) == 0xf0 && byte(1) < 0x90) return 0;
  if (byte(0) == 0xf4 && byte(1) > 0x8f) return 0;
  return length;
}

std::string RetryDetails(grpc::StatusCode code, const std::string& message, absl::Duration wait) {
  v1::RetryInfo retry;
  google::protobuf::Duration& delay = *retry.mutable_retry_delay();
  delay.set_seconds(absl::IDivDuration(wait, absl::Seconds(1), &wait));
  delay.set_nanos(static_cast<std::int32_t>(absl::ToInt64Nanoseconds(wait)));
  v1::StatusDetails details;
  details.set_code(code);
  details.set_message(message);
  google::protobuf::Any& detail = *details.add_details();
  detail.set_type_url(kRetryInfoUrl);
  detail.set_value(retry.SerializeAsString());
  return details.SerializeAsString();
}

// Zero: there is none.
absl::Duration RetryDelayIn(const std::string& serialized) {
  v1::StatusDetails details;
  if (!details.ParseFromString(serialized)) return absl::ZeroDuration();
  for (const google::protobuf::Any& detail : details.details()) {
    v1::RetryInfo retry;
    if (detail.type_url() != kRetryInfoUrl || !retry.ParseFromString(detail.value())) continue;
    return absl::Seconds(retry.retry_delay().seconds()) +
           absl::Nanoseconds(retry.retry_delay().nanos());
  }
  return absl::ZeroDuration();
}

}  // namespace

std::string StatusMessage(const absl::Status& status) {
  std::string_view rest = ToStd(status.message());
  std::string message;
  while (!rest.empty()) {
    const std::size_t length = CharacterBytes(rest);
    if (message.size() + (length == 0 ? 1 : length) > kStatusMessageBytesMax) break;
    message += length == 0 ? "?" : rest.substr(0, length);
    rest.remove_prefix(length == 0 ? 1 : length);
  }
  return message;
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // Both enums are google.rpc.Code.
  const auto code = static_cast<grpc::StatusCode>(status.code());
  std::string message = StatusMessage(status);
  const absl::Duration wait = RetryAfterOf(status);
  if (wait == absl::ZeroDuration()) return grpc::Status(code, message);
  return grpc::Status(code, message, RetryDetails(code, message, wait));
}

absl::Status FromGrpc(const grpc::Status& status) {
  // gRPC's own answer for a service that a port does not have is empty.
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED && status.error_message().empty()) {
    return absl::UnimplementedError(
        "this port does not serve the call: the coordinator serves trainers and shard servers at "
        "its --listen (7070), operators at its --admin-listen (7071), and nodes serve rows");
  }
  const absl::Status plain = StatusFromCode(status.error_code(), status.error_message());
  if (status.error_details().empty()) return plain;
  const absl::Duration wait = RetryDelayIn(status.error_details());
  return wait == absl::ZeroDuration() ? plain : WithRetryAfter(plain, wait);
}

absl::Status StatusFromCode(std::int32_t code, std::string_view message) {
  const bool known = code >= 0 && code <= kCodeMax;
  return absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      ToAbsl(message));
}

}  // namespace embla::wire
