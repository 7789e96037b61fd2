#include "core/tls/token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/testing/temp_directory.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const Identity kTrainer{.cluster = "test", .role = Role::kTrainer, .name = "t0"};

TEST(NewToken, GivesItsIdentityAndNoTwoAreAlike) {
  const auto token = NewToken(kTrainer);
  ASSERT_THAT(token, IsOk());
  EXPECT_THAT(*token, ::testing::MatchesRegex("test/trainer/t0/[0-9a-f]+"));
  EXPECT_NE(*token, *NewToken(kTrainer));
  const auto claim = ClaimOf(*token);
  ASSERT_THAT(claim, IsOk());
  EXPECT_EQ(*claim, kTrainer);
  EXPECT_THAT(NewToken({.cluster = "test", .role = Role::kNode, .name = "n0"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("needs a certificate")));
  EXPECT_THAT(NewToken({.cluster = "test", .role = Role::kReader, .name = "a/b"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("")));
}

TEST(ClaimOf, RefusesEverythingElse) {
  const std::string token = *NewToken(kTrainer);
  const std::string secret = token.substr(token.rfind('/'));
  for (const std::string& other :
       {std::string(), std::string("x"), token.substr(0, token.size() - 1), token + "0",
        "test/node/n0" + secret, "test/coordinator/c0" + secret, "test/boss/b" + secret,
        "test/trainer" + secret, "TEST/trainer/t0" + secret, "test/trainer/t 0" + secret}) {
    EXPECT_THAT(ClaimOf(other),
                StatusIs(absl::StatusCode::kUnauthenticated,
                         AllOf(HasSubstr("the token is not"), Not(HasSubstr(secret.substr(1))))));
  }
}

class AcceptedTokensTest : public ::testing::Test {
 protected:
  void Write(const std::string& text) { ASSERT_THAT(AtomicWriteFile(file_, text), IsOk()); }
  absl::StatusOr<Identity> Verify(const std::string& token, absl::Duration later = {}) {
    return tokens_.Verify(token, "test", now_ + later);
  }

  const testing::TempDirectory directory_;
  const std::string file_ = directory_.path() + "/tokens";
  const absl::Time now_ = absl::FromUnixSeconds(1'800'000'000);
  const std::string token_ = *NewToken(kTrainer);
  AcceptedTokens tokens_{file_};
};

TEST_F(AcceptedTokensTest, AcceptsTheTokensOfItsLinesUntilTheirEnd) {
  const std::string other = *NewToken(kTrainer);
  Write(absl::StrCat("# Trainers\n\n  ", LineOfToken(kTrainer, token_, now_ + absl::Hours(1)),
                     "  \n", LineOfToken(kTrainer, other, absl::InfiniteFuture())));
  ASSERT_THAT(tokens_.Load(), IsOk());
  for (const std::string& token : {token_, other}) {
    const auto identity = Verify(token);
    ASSERT_THAT(identity, IsOk());
    EXPECT_EQ(*identity, kTrainer);
  }
  EXPECT_THAT(Verify(token_, absl::Hours(1)),
              StatusIs(absl::StatusCode::kUnauthenticated,
                       HasSubstr("the token of spiffe://test/trainer/t0 ended at 2027-01-15T")));
  EXPECT_THAT(Verify(other, absl::Hours(1)), IsOk());
}

TEST_F(AcceptedTokensTest, RefusesOthersAndSaysWhichButNotTheSecret) {
  Write(LineOfToken(kTrainer, token_, absl::InfiniteFuture()));
  ASSERT_THAT(tokens_.Load(), IsOk());
  const auto refused = [&](const std::string& token, const char* why) {
    EXPECT_THAT(Verify(token), StatusIs(absl::StatusCode::kUnauthenticated,
                                        AllOf(HasSubstr(why), Not(HasSubstr(token.substr(20))))));
  };
  refused(*NewToken(kTrainer), "the token of spiffe://test/trainer/t0 is not one that is accepted");
  // The secret of a trainer is not that of an admin.
  refused("test/admin/t0" + token_.substr(token_.rfind('/')), "is not one that is accepted");
  refused(*NewToken({.cluster = "prod", .role = Role::kTrainer, .name = "t0"}),
          "is of another cluster than test");
}

TEST_F(AcceptedTokensTest, ReadsTheFileAgainAndKeepsWhatItHadAfterAMistake) {
  Write("");
  ASSERT_THAT(tokens_.Load(), IsOk());
  EXPECT_THAT(Verify(token_), Not(IsOk()));
  Write(LineOfToken(kTrainer, token_, absl::InfiniteFuture()));
  EXPECT_THAT(Verify(token_), Not(IsOk())) << "it has just looked";
  EXPECT_THAT(Verify(token_, absl::Seconds(2)), IsOk());
  Write("trainer t0 half-a-li");
  EXPECT_THAT(Verify(token_, absl::Seconds(4)), IsOk());
  Write("# Nobody any more.\n");
  EXPECT_THAT(Verify(token_, absl::Seconds(6)), Not(IsOk()));
}

TEST_F(AcceptedTokensTest, SaysWhichLineIsWrong) {
  const std::string hash(64, 'a');
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"trainer t0", "it is not ROLE NAME SHA256 [END]"},
      {"trainer t0 " + hash + " 2026-12-31T00:00:00Z more", "it is not ROLE NAME"},
      {"boss t0 " + hash, "no such role"},
      {"node n0 " + hash, "the role node needs a certificate"},
      {"trainer a/b " + hash, ""},
      {"trainer t0 " + hash.substr(1), "64 hexadecimal digits"},
      {"trainer t0 " + hash.substr(1) + "x", "64 hexadecimal digits"},
      {"trainer t0 " + hash + " tomorrow", "its end is not a time"}};
  for (const auto& [line, why] : cases) {
    Write("# Tokens\n" + line + "\n");
    EXPECT_THAT(tokens_.Load(), StatusIs(absl::StatusCode::kInvalidArgument,
                                         AllOf(HasSubstr(file_ + ", line 2"), HasSubstr(why),
                                               Not(HasSubstr(hash.substr(2))))))
        << line;
  }
  EXPECT_THAT(AcceptedTokens(file_ + ".none").Load(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--tokens")));
}

TEST_F(AcceptedTokensTest, AreBounded) {
  std::string lines;
  for (std::size_t i = 0; i < AcceptedTokens::kTokensMax; ++i) {
    absl::StrAppend(&lines, "reader r", i, " ", std::string(64, 'a'), "\n");
  }
  Write(lines);
  EXPECT_THAT(tokens_.Load(), IsOk());
  Write(absl::StrCat(lines, "reader r ", std::string(64, 'a')));
  EXPECT_THAT(tokens_.Load(), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("has more than 10000 tokens")));
}

TEST(TokenFile, IsReadAgain) {
  const testing::TempDirectory directory;
  const std::string path = directory.path() + "/token";
  TokenFile file(path);
  EXPECT_THAT(file.Load(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--token-file")));
  const std::string first = *NewToken(kTrainer);
  const std::string second = *NewToken(kTrainer);
  ASSERT_THAT(AtomicWriteFile(path, first + "\n"), IsOk());
  ASSERT_THAT(file.Load(), IsOk());
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  EXPECT_EQ(file.Current(now), first);
  ASSERT_THAT(AtomicWriteFile(path, second), IsOk());
  EXPECT_EQ(file.Current(now + absl::Seconds(2)), second);
  ASSERT_THAT(AtomicWriteFile(path, "nothing"), IsOk());
  EXPECT_EQ(file.Current(now + absl::Seconds(4)), second);
}

}  // namespace
}  // namespace embla
