// Matchers for absl::Status, absl::StatusOr and grpc::Status whose failures print the status.
//
//   EXPECT_THAT(node.Update(request), IsOk());
//   EXPECT_THAT(plan, StatusIs(absl::StatusCode::kNotFound, HasSubstr("table 7")));
//   EXPECT_THAT(client.RowCount("users"), IsOkAndHolds(Gt(3)));
#pragma once

#include <gmock/gmock.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace embla::testing {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& value) {
  return value.status();
}
// A grpc::Status, whose codes have the same numbers.
template <typename T>
requires requires(const T& status) {
  status.error_code();
  status.error_message();
}
absl::Status StatusOf(const T& status) {
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

MATCHER(IsOk, negation ? "is an error" : "is OK") {
  *result_listener << "which is " << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

MATCHER_P(StatusIs, code, "has the code " + absl::StatusCodeToString(code)) {
  *result_listener << "which is " << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code;
}

// The message, a std::string, has to satisfy `message`.
MATCHER_P2(StatusIs, code, message,
           "has the code " + absl::StatusCodeToString(code) + " and a message that " +
               ::testing::DescribeMatcher<std::string>(message)) {
  *result_listener << "which is " << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code &&
         ::testing::Matches(message)(std::string(StatusOf(arg).message()));
}

// A StatusOr whose value satisfies `value`.
MATCHER_P(IsOkAndHolds, value, "is OK and has a value that satisfies the matcher") {
  if (!arg.ok()) {
    *result_listener << "which is " << arg.status().ToString();
    return false;
  }
  return ::testing::ExplainMatchResult(value, *arg, result_listener);
}

}  // namespace embla::testing
