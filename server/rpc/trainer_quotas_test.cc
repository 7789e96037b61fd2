#include "server/rpc/trainer_quotas.h"

#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/retry_hint.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/testing/temp_directory.h"

namespace embla::trainer_quotas_test {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::HasSubstr;
using Code = absl::StatusCode;

Identity Caller(Role role, const std::string& name) {
  return {.cluster = "test", .role = role, .name = name};
}
const Identity kAnn = Caller(Role::kTrainer, "ann");
const Identity kBob = Caller(Role::kTrainer, "bob");

InFlightHolder Session(std::uint64_t id) { return {.has_session = true, .id = id}; }

class TrainerQuotasTest : public ::testing::Test {
 protected:
  void Write(const std::string& json) { ASSERT_THAT(AtomicWriteFile(path_, json), IsOk()); }
  // Quotas by the file's present content.
  TrainerQuotas& Quotas() {
    if (quotas_.has_value()) return *quotas_;
    const auto file = OpenTrainerQuotas(path_);
    EXPECT_THAT(file->Load(), IsOk());
    return quotas_.emplace(file, nullptr);
  }
  absl::StatusOr<Hold> Take(const std::optional<Identity>& caller, std::uint64_t rows,
                            std::uint64_t bytes = 0, const InFlightHolder& holder = Session(1)) {
    return Quotas().Take(caller, holder, rows, bytes, now_);
  }

  const testing::TempDirectory directory_;
  const std::string path_ = directory_.path() + "/quotas.json";
  absl::Time now_ = absl::FromUnixSeconds(1'800'000'000);
  std::optional<TrainerQuotas> quotas_;
};

TEST_F(TrainerQuotasTest, RowsInFlightAreGivenBack) {
  Write(R"({"ann": {"rows_in_flight": 100}})");
  auto first = Take(kAnn, 60);
  ASSERT_THAT(first, IsOk());
  // Another session is the same trainer.
  EXPECT_THAT(Take(kAnn, 41, 0, Session(2)),
              StatusIs(Code::kResourceExhausted, HasSubstr("trainer ann, 100 rows in flight")));
  EXPECT_THAT(Take(kAnn, 40), IsOk());
  EXPECT_THAT(Take(kBob, 1'000), IsOk());
  *first = Hold();
  EXPECT_THAT(Take(kAnn, 41), IsOk());
}

TEST_F(TrainerQuotasTest, BytesInFlightAreBounded) {
  Write(R"({"*": {"bytes_in_flight": 1000}})");
  const auto first = Take(kAnn, 1, 900);
  EXPECT_THAT(Take(kAnn, 1, 101), StatusIs(Code::kResourceExhausted, HasSubstr("1000 bytes")));
  EXPECT_THAT(Take(kBob, 1, 101), IsOk()) << "each has the quota of *";
}

TEST_F(TrainerQuotasTest, OneRequestIsAlwaysInFlight) {
  Write(R"({"*": {"rows_in_flight": 1, "bytes_in_flight": 1}})");
  const auto first = Take(kAnn, 1'000'000, 1'000'000);
  ASSERT_THAT(first, IsOk());
  EXPECT_THAT(Take(kAnn, 1, 1), StatusIs(Code::kResourceExhausted));
}

TEST_F(TrainerQuotasTest, ContributionsThatWaitForOthersAreNotInFlight) {
  Write(R"({"ann": {"rows_in_flight": 10}})");
  const InFlightHolder contributions{.has_session = true, .id = 1, .table = TableId{1}};
  const auto first = Take(kAnn, 10, 0, contributions);
  EXPECT_THAT(Take(kAnn, 10, 0, contributions), IsOk());
  EXPECT_THAT(Take(kAnn, 10), IsOk());
}

TEST_F(TrainerQuotasTest, ARateIsKeptAndSaysWhenToComeAgain) {
  Write(R"({"ann": {"rows_per_second": 100}})");
  // A second's tolerance, and a request that is larger than what is left.
  EXPECT_THAT(Take(kAnn, 100), IsOk());
  EXPECT_THAT(Take(kAnn, 300), IsOk());
  const auto refused = Take(kAnn, 1);
  EXPECT_THAT(refused, StatusIs(Code::kResourceExhausted, HasSubstr("100 rows a second")));
  EXPECT_EQ(RetryAfterOf(refused.status()), absl::Seconds(3));
  now_ += absl::Seconds(3) - absl::Milliseconds(1);
  EXPECT_THAT(Take(kAnn, 1), StatusIs(Code::kResourceExhausted));
  now_ += absl::Milliseconds(1);
  EXPECT_THAT(Take(kAnn, 1), IsOk());
  EXPECT_THAT(Take(kBob, 1'000'000), IsOk());
}

TEST_F(TrainerQuotasTest, ALongRunHasTheRate) {
  Write(R"({"ann": {"rows_per_second": 1000}})");
  const absl::Time begin = now_;
  std::uint64_t rows = 0;
  for (std::uint64_t size = 1; now_ < begin + absl::Seconds(100); size = size * 7 % 501) {
    const auto taken = Take(kAnn, size);
    if (taken.ok()) rows += size;
    now_ += taken.ok() ? absl::Microseconds(10) : RetryAfterOf(taken.status());
  }
  EXPECT_GE(rows, 100'000u);
  EXPECT_LE(rows, 100'000u + 1'000 + 501);  // A second at first, and a request.
}

TEST_F(TrainerQuotasTest, OnlyTrainersAndReadersHaveQuotas) {
  Write(R"({"*": {"rows_per_second": 1}})");
  for (const Role role : {Role::kTrainer, Role::kReader}) {
    const Identity caller = Caller(role, absl::StrCat("x", static_cast<int>(role)));
    EXPECT_THAT(Take(caller, 100), IsOk());
    EXPECT_THAT(Take(caller, 100), StatusIs(Code::kResourceExhausted));
  }
  for (const Role role : {Role::kNode, Role::kOperator, Role::kAdmin, Role::kCoordinator}) {
    for (int i = 0; i < 3; ++i) EXPECT_THAT(Take(Caller(role, "x"), 100), IsOk());
  }
}

TEST_F(TrainerQuotasTest, SessionsAndConnectionsAreTrainersWhereNobodyHasAName) {
  Write(R"({"*": {"rows_per_second": 1}})");
  const InFlightHolder connection{.has_session = false, .id = 1};
  for (const InFlightHolder& holder : {Session(1), Session(2), connection}) {
    EXPECT_THAT(Take(std::nullopt, 100, 0, holder), IsOk());
    EXPECT_THAT(Take(std::nullopt, 100, 0, holder), StatusIs(Code::kResourceExhausted));
  }
}

TEST_F(TrainerQuotasTest, WithoutAFileNobodyHasAQuota) {
  TrainerQuotas none(nullptr, nullptr);
  EXPECT_THAT(none.Take(kAnn, Session(1), 1'000'000'000, 0, now_), IsOk());
  EXPECT_EQ(none.accounts(), 0u);
}

TEST_F(TrainerQuotasTest, AFileIsReadAgainAndABadOneLeavesTheQuotas) {
  Write(R"({"ann": {"rows_per_second": 1}})");
  EXPECT_THAT(Take(kAnn, 100), IsOk());
  EXPECT_THAT(Take(kAnn, 100), StatusIs(Code::kResourceExhausted));
  Write("{");
  now_ += absl::Seconds(2);
  EXPECT_THAT(Take(kAnn, 100), StatusIs(Code::kResourceExhausted));
  Write("{}");
  now_ += absl::Seconds(2);
  EXPECT_THAT(Take(kAnn, 100), IsOk());
}

TEST_F(TrainerQuotasTest, TrainersThatRestAreForgotten) {
  Write(R"({"*": {"rows_per_second": 1000, "rows_in_flight": 100}})");
  std::vector<Hold> holds;
  for (int i = 0; i < 10'000; ++i) {
    now_ += absl::Milliseconds(10);
    auto hold = Take(Caller(Role::kTrainer, absl::StrCat("t", i)), 10);
    ASSERT_THAT(hold, IsOk());
    if (i % 1'000 == 0) holds.push_back(*std::move(hold));
  }
  EXPECT_LE(Quotas().accounts(), 64u);
  EXPECT_THAT(Take(Caller(Role::kTrainer, "t0"), 91), StatusIs(Code::kResourceExhausted))
      << "one with a request in flight is not";
}

TEST(ParseTrainerQuotas, SaysWhatIsWrong) {
  EXPECT_THAT(ParseTrainerQuotas("[]"), StatusIs(Code::kInvalidArgument, HasSubstr("by name")));
  EXPECT_THAT(ParseTrainerQuotas("{"), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(ParseTrainerQuotas(R"({"a b": {}})"), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(ParseTrainerQuotas(R"({"ann": 3})"),
              StatusIs(Code::kInvalidArgument, HasSubstr("quota of ann")));
  EXPECT_THAT(ParseTrainerQuotas(R"({"ann": {"rows": 3}})"),
              StatusIs(Code::kInvalidArgument, HasSubstr("rows")));
  for (const char* const value : {"0", "-1", "1.5", "\"many\""}) {
    EXPECT_THAT(ParseTrainerQuotas(absl::StrCat(R"({"ann": {"rows_per_second": )", value, "}}")),
                StatusIs(Code::kInvalidArgument, HasSubstr("rows_per_second")))
        << value;
  }
  const std::string missing = "/nowhere/quotas.json";
  EXPECT_THAT(OpenTrainerQuotas(missing)->Load(),
              StatusIs(Code::kInvalidArgument, HasSubstr("--trainer-quotas /nowhere")));
}

}  // namespace
}  // namespace embla::trainer_quotas_test
