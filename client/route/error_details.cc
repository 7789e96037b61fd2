#include "client/route/error_details.h"

#include <string>

#include "absl/strings/cord.h"
#include "core/base/text.h"

namespace embla::client {
namespace {

// A payload each, so that whoever adds one leaves the others as they are.
constexpr char kTable[] = "embla.client/table";
constexpr char kNode[] = "embla.client/node";
constexpr char kOutcomeUnknown[] = "embla.client/outcome_unknown";

void Set(const char* type, std::string_view value, absl::Status& status) {
  if (!status.ok() && !value.empty()) status.SetPayload(type, absl::Cord(ToAbsl(value)));
}

std::string Get(const char* type, const absl::Status& status) {
  const auto payload = status.GetPayload(type);
  return payload.has_value() ? std::string(*payload) : std::string();
}

bool IsRetryable(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kAborted:
      return true;
    default:
      return false;
  }
}

}  // namespace

ErrorDetails DetailsOf(const absl::Status& status) {
  return {.table = Get(kTable, status),
          .node = Get(kNode, status),
          .retryable = IsRetryable(status.code()),
          .outcome_unknown = status.GetPayload(kOutcomeUnknown).has_value()};
}

absl::Status AboutTable(absl::Status status, std::string_view table) {
  Set(kTable, table, status);
  return status;
}

absl::Status AboutNode(absl::Status status, std::string_view node) {
  Set(kNode, node, status);
  return status;
}

absl::Status OutcomeUnknown(absl::Status status) {
  Set(kOutcomeUnknown, "1", status);
  return status;
}

}  // namespace embla::client
