#include "core/wire/status_codec.h"

#include <gtest/gtest.h>

#include <string>

#include "core/base/retry_hint.h"
#include "core/base/text.h"

namespace embla::wire {
namespace {

TEST(StatusCodec, EveryCodeAndItsMessageSurvive) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "table `t`: row 7");
    EXPECT_EQ(FromGrpc(ToGrpc(status)), status);
    EXPECT_EQ(static_cast<int>(ToGrpc(status).error_code()), code);
    EXPECT_EQ(StatusFromCode(code, "table `t`: row 7"), status);
  }
}

TEST(StatusCodec, UnknownCodesAreUnknown) {
  EXPECT_EQ(StatusFromCode(17, "x").code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(StatusFromCode(-1, "x").code(), absl::StatusCode::kUnknown);
}

TEST(StatusCodec, ARetryHintSurvives) {
  const absl::Status full = absl::ResourceExhaustedError("queue full");
  for (const absl::Duration wait : {absl::Milliseconds(1), absl::Milliseconds(61'250)}) {
    const absl::Status hinted = WithRetryAfter(full, wait);
    EXPECT_EQ(FromGrpc(ToGrpc(hinted)), hinted);
    EXPECT_EQ(RetryAfterOf(FromGrpc(ToGrpc(hinted))), wait);
  }
  EXPECT_TRUE(ToGrpc(full).error_details().empty());
  // Senders may be wrong: neither time runs backwards, nor is anybody put off for ever.
  const absl::Duration never = RetryAfterOf(WithRetryAfter(full, absl::InfiniteDuration()));
  EXPECT_EQ(never, absl::Hours(24));
  EXPECT_EQ(RetryAfterOf(WithRetryAfter(full, absl::Seconds(-1))), absl::Milliseconds(1));
  EXPECT_EQ(FromGrpc({grpc::StatusCode::RESOURCE_EXHAUSTED, "queue full", "no details"}), full);
}

TEST(StatusCodec, ACallThatAPortDoesNotServeNamesThePorts) {
  const absl::Status status = FromGrpc(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, ""));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("--admin-listen"), status.message().npos) << status;
}

TEST(StatusMessage, IsCutAtACharacter) {
  const std::string long_text(kStatusMessageBytesMax - 1, 'x');
  EXPECT_EQ(StatusMessage(absl::InternalError(long_text + "\u00e9\u00e9")), long_text);
}

TEST(StatusMessage, ReplacesWhatIsNoUtf8) {
  EXPECT_EQ(StatusMessage(absl::InternalError("a\xff\xc0\x80"
                                              "b\xed\xa0\x80"
                                              "c\xe2\x82\xac")),
            "a???b???c\xe2\x82\xac");
}

}  // namespace
}  // namespace embla::wire
