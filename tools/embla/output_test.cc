#include "tools/embla/output.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace embla::cli {
namespace {

const Terminal kScreen = {.redraws = true, .colours = true};

TEST(Coloured, PutsNothingAroundTheTextWithoutATerminal) {
  EXPECT_EQ(Coloured("dead", Colour::kRed, Terminal()), "dead");
  EXPECT_EQ(Coloured("dead", Colour::kRed, kScreen), "\x1b[31mdead\x1b[0m");
}

TEST(Terminal, FileIsNone) {
  const Terminal terminal = Terminal::Of(-1);
  EXPECT_FALSE(terminal.redraws);
  EXPECT_FALSE(terminal.colours);
}

TEST(TimeView, IsIsoInUtcAndNullForWhatNeverWas) {
  EXPECT_EQ(TimeView(absl::FromUnixMillis(1'767'225'600'007)), "2026-01-01T00:00:00.007Z");
  EXPECT_EQ(TimeView(absl::UnixEpoch()), nullptr);
  EXPECT_EQ(TimeView(absl::InfinitePast()), nullptr);
}

TEST(ErrorText, NamesTheProgramTheCodeAndTheMessage) {
  const absl::Status status = absl::NotFoundError("no table \"b\"");
  EXPECT_EQ(ErrorText(status, false, Terminal()), "embla: NOT_FOUND: no table \"b\"\n");
}

TEST(ErrorText, IsOneObjectWithWhatToDoAsJson) {
  const auto text = ErrorText(absl::NotFoundError("no table \"b\""), true, kScreen);
  const auto error = nlohmann::json::parse(text).at("error");
  EXPECT_EQ(error.at("code"), "NOT_FOUND");
  EXPECT_EQ(error.at("message"), "no table \"b\"");
  EXPECT_EQ(error.at("exit_code"), 4);
  EXPECT_THAT(error.at("what_to_do").get<std::string>(), ::testing::HasSubstr("embla table ls"));
}

}  // namespace
}  // namespace embla::cli
