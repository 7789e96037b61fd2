#include "core/base/log.h"

#include <nlohmann/json.hpp>
#include <string>

#include "absl/time/time.h"
#include "core/base/log_format.h"
#include "core/base/log_level.h"
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

TEST(LogJson, HasEveryKeyAndTheWordsBetweenThem) {
  EXPECT_EQ(LogJson(absl::FromUnixMillis(1'500), LogLevel::kWarning, "shard",
                    {"plan installed node=", "n1", " version=", "7", " again kind=full"}),
            R"({"time":"1970-01-01T00:00:01.500Z","level":"warning","component":"shard",)"
            R"("message":"plan installed again","node":"n1","version":"7","kind":"full"})");
}

TEST(LogJson, ValueOfAStrangerStaysAValue) {
  const std::string stranger = "x\n\"} {\"level\":\"error\" trainer=root \xff";
  const std::string line =
      LogJson(absl::UnixEpoch(), LogLevel::kInfo, "shard", {"opened client=", stranger});
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto parsed = nlohmann::json::parse(line);
  EXPECT_EQ(parsed.size(), 5u);
  EXPECT_EQ(parsed.at("level"), "info");
  EXPECT_EQ(parsed.at("client"), "x\n\"} {\"level\":\"error\" trainer=root \xef\xbf\xbd");
}

TEST(LogJson, EmptyValueIsAValue) {
  const auto parsed = nlohmann::json::parse(
      LogJson(absl::UnixEpoch(), LogLevel::kInfo, "c", {"a b=", "", " c=", "d"}));
  EXPECT_EQ(parsed.at("b"), "");
  EXPECT_EQ(parsed.at("c"), "d");
}

TEST(LogLevel, ChangesAndSaysSoWhereTheLevelLetsIt) {
  const auto change = [](LogLevel level) {
    ::testing::internal::CaptureStderr();
    ChangeLogLevel("shard", level);
    EXPECT_EQ(CurrentLogLevel(), level);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(change(LogLevel::kWarning).find("I shard log level from=info to=warning\n"),
            std::string::npos);
  EXPECT_EQ(change(LogLevel::kError), "");
  EXPECT_EQ(change(LogLevel::kError), "");
  EXPECT_NE(change(LogLevel::kInfo).find("I shard log level from=error to=info\n"),
            std::string::npos);
  EXPECT_EQ(change(LogLevel::kInfo), "") << "nothing has changed";
}

}  // namespace
}  // namespace embla
