#include "core/base/span_log.h"

#include <algorithm>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

const absl::Time kBegin = absl::FromUnixMicros(1'700'000'000'000'123);

Span MakeSpan() {
  return {.context = {.trace_high = 1, .trace_low = 2, .span = 3, .sampled = true},
          .parent = 4,
          .method = "Lookup",
          .begin = kBegin};
}

TEST(SpanLogWrite, MakesALineOfASpan) {
  SpanLog log("rpc");
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(log.Write("traced request", MakeSpan(), kBegin + absl::Microseconds(1500),
                        absl::OkStatus(), " rows=7"));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr(" I rpc traced request trace_id=00000000000000010000000000000002 "
                        "span_id=0000000000000003 parent_id=0000000000000004 method=Lookup "
                        "status=OK begin_unix_us=1700000000000123 seconds=0.001500 rows=7\n"));
}

TEST(SpanLogWrite, AnErrorIsOneValueOfBoundedLength) {
  SpanLog log("rpc");
  const std::string message = "no rows=7\n" + std::string(2 * SpanLog::kErrorBytesMax, 'z');
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(log.Write("traced request", MakeSpan(), kBegin, absl::NotFoundError(message), ""));
  const std::string line = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(line, HasSubstr(" status=NOT_FOUND "));
  EXPECT_THAT(line, HasSubstr(" error=\"no rows=7\\x0azz"));
  EXPECT_THAT(line, EndsWith("zz\"\n"));
  EXPECT_EQ(std::ranges::count(line, 'z'), SpanLog::kErrorBytesMax - 10);
}

TEST(SpanLogWrite, WritesSoManyLinesASecond) {
  SpanLog log("rpc");
  const auto write = [&log](absl::Time end) {
    return log.Write("traced request", MakeSpan(), end, absl::OkStatus(), "");
  };
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < SpanLog::kLinesPerSecondMax; ++i) {
    EXPECT_TRUE(write(kBegin + absl::Microseconds(i)));
  }
  EXPECT_FALSE(write(kBegin + absl::Milliseconds(2)));
  EXPECT_FALSE(write(kBegin + absl::Milliseconds(999)));
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(lines, '\n'), SpanLog::kLinesPerSecondMax);
  EXPECT_TRUE(write(kBegin + absl::Seconds(1)));
  EXPECT_TRUE(write(kBegin - absl::Hours(1))) << "a clock that is set back silences nothing";
}

}  // namespace
}  // namespace embla
