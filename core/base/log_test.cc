#include "core/base/log.h"

#include "gtest/gtest.h"

namespace embla {
namespace {

TEST(LogText, PlainValuesStandAsTheyAre) {
  EXPECT_EQ(LogText({"session opened session=", "7", " client=", "a.b-c/1:80"}),
            "session opened session=7 client=a.b-c/1:80");
}

TEST(LogText, ValueOfAStrangerCannotMakeALine) {
  EXPECT_EQ(LogText({"opened client=", "x\n2026-01-01T00:00:00.000Z I shard all is well"}),
            "opened client=\"x\\x0a2026-01-01T00:00:00.000Z I shard all is well\"");
}

TEST(LogText, ValueOfAStrangerCannotMakeAKey) {
  EXPECT_EQ(LogText({"opened client=", "x trainer=root", " turn=", "1"}),
            "opened client=\"x trainer=root\" turn=1");
  EXPECT_EQ(LogText({"opened client=", "x\" trainer=\"root", " turn=", "1"}),
            "opened client=\"x\\\" trainer=\\\"root\" turn=1");
  EXPECT_EQ(LogText({"opened client=", "x\\", " turn=", "1"}), "opened client=\"x\\\\\" turn=1");
}

TEST(LogText, EmptyValueAndValueThatEndsInEqualsAreQuoted) {
  EXPECT_EQ(LogText({"opened client=", "", " trainer=", "y=", " turn=", "2"}),
            "opened client=\"\" trainer=\"y=\" turn=2");
}

TEST(LogText, ControlCharactersAreEscapedOutsideOfValuesToo) {
  EXPECT_EQ(LogText({"reason: ", "a\r\x1b[31mb\x7f"}), "reason: a\\x0d\\x1b[31mb\\x7f");
}

}  // namespace
}  // namespace embla
