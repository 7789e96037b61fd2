#include "core/base/trace_context.h"

#include <cstddef>
#include <random>
#include <string>
#include <string_view>

#include "gtest/gtest.h"

namespace embla {
namespace {

constexpr std::string_view kText = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(TraceContextParse, ReadsWhatItWrites) {
  const TraceContext context = TraceContext::Parse(kText);
  ASSERT_TRUE(context.is_set());
  EXPECT_EQ(context.trace_high, 0x0af7651916cd43dd);
  EXPECT_EQ(context.trace_low, 0x8448eb211c80319c);
  EXPECT_EQ(context.span, 0xb7ad6b7169203331);
  EXPECT_TRUE(context.sampled);
  EXPECT_EQ(context.ToString(), kText);
  EXPECT_EQ(context.TraceId(), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(SpanIdText(7), "0000000000000007");
}

TEST(TraceContextParse, ATextThatBreaksARuleIsNone) {
  struct Case {
    const char* name;
    std::string_view text;
  };
  const Case cases[] = {
      {"empty", ""},
      {"version ff", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
      {"trace of zeros", "00-00000000000000000000000000000000-b7ad6b7169203331-01"},
      {"span of zeros", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"},
      {"upper case", "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01"},
      {"no digit in the version", "0g-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
      {"no digit in the span", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333 -01"},
      {"no digit in the flags", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x"},
      {"another separator", "00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01"},
      {"too short", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"},
      {"version 00 and more", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x"},
      {"later and longer flags", "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01x"},
  };
  for (const Case& c : cases) EXPECT_FALSE(TraceContext::Parse(c.text).is_set()) << c.name;
}

TEST(TraceContextParse, OfALaterVersionTheFirstFourFieldsCount) {
  const TraceContext expected = TraceContext::Parse(kText);
  for (const char* const more : {"", "-", "-what comes later"}) {
    EXPECT_EQ(TraceContext::Parse("cc" + std::string(kText.substr(2)) + more), expected) << more;
  }
}

TEST(TraceContextParse, OfTheFlagsOnlySampledCounts) {
  const std::string other = std::string(kText.substr(0, 53));
  EXPECT_TRUE(TraceContext::Parse(other + "03").sampled);
  const TraceContext context = TraceContext::Parse(other + "fe");
  EXPECT_TRUE(context.is_set());
  EXPECT_FALSE(context.sampled);
  EXPECT_EQ(context.ToString(), other + "00");
}

TEST(TraceContextParse, DamagedTextIsNoneOrAnotherValidOne) {
  std::mt19937 random(20240607);
  for (int round = 0; round < 20'000; ++round) {
    std::string text(kText);
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
      if (random() % 4 == 0) text.resize(random() % (text.size() + 4), '\xff');
      if (!text.empty()) text[random() % text.size()] = static_cast<char>(random());
    }
    const TraceContext context = TraceContext::Parse(text);
    if (!context.is_set()) continue;
    ASSERT_NE(context.trace_high | context.trace_low, 0u) << text;
    ASSERT_EQ(TraceContext::Parse(context.ToString()), context) << text;
  }
}

TEST(TraceContextChild, HasASpanOfItsOwn) {
  const TraceContext parent = TraceContext::Parse(kText);
  TraceContext child = parent.Child();
  EXPECT_TRUE(child.is_set());
  EXPECT_NE(child.span, parent.span);
  EXPECT_NE(child.span, parent.Child().span);
  child.span = parent.span;
  EXPECT_EQ(child, parent);
}

}  // namespace
}  // namespace embla
