// The verbs on directories that a journal wrote, that another process has open, and damaged ones.
#include "tools/embla/journal_cmd.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/testing/status_matchers.h"
#include "core/base/testing/temp_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/journal/decision_record.h"
#include "server/journal/journal_records.h"
#include "server/journal/snapshot_files.h"
#include "server/log/node_log.h"

namespace embla::cli::journal_cmd_test {
namespace {

using embla::testing::IsOk;
using embla::testing::StatusIs;
using embla::testing::TempDirectory;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class JournalCmdTest : public ::testing::Test {
 protected:
  // A process, a plan with table "ads", three updates of it.
  void Write() {
    const auto storage = *DirectoryLogStorage::Open(directory_.path());
    const auto log =
        *NodeLog::Open(*storage, {}, [](const LogRecordView&) { return absl::OkStatus(); });
    Control(*log, JournalKind::kProcess, EncodeProcessRecord({1}));
    Control(*log, JournalKind::kPlanDelta,
            EncodePlanDeltaRecord(NodeId{2}, DeltaBetween(Plan(), *ThePlan())));
    const std::vector<RowId> ids = {RowId{5}, RowId{6}};
    const std::vector<float> gradients = {0.5f, -0.5f};
    for (std::uint64_t seq = 1; seq <= 3; ++seq) {
      DecidedUpdate update;
      update.batch.session = SessionId{9};
      update.batch.seq = UpdateSeq{seq};
      update.time = absl::UnixEpoch();
      update.tables = {{TableId{7}, 0, true, {}}};
      UpdatePart& part = update.batch.parts.emplace_back();
      part.table = TableId{7};
      part.column_end = 1;
      part.ids = ids;
      part.gradients = std::as_bytes(std::span(gradients));
      Control(*log, JournalKind::kUpdate, EncodeDecision(update).payload);
    }
    ASSERT_THAT(log->Close(), IsOk());
  }
  static PlanPtr ThePlan() {
    TablePlan table;
    table.spec.id = TableId{7};
    table.spec.name = "ads";
    table.spec.rows = 10;
    table.spec.dim = 1;
    table.spec.SetDefaults();
    table.replicas = {{{0, 10, 0, 1, {NodeId{2}, 0}}}};
    const std::vector<NodeSpec> nodes = {{NodeId{2}, "n0", "host:1", {{DeviceKind::kCpu, 100}}}};
    return std::make_shared<const Plan>(PlanVersion{4}, "cluster", nodes, std::vector{table});
  }
  // The same, with a snapshot of several files before the second update, and the log given up to
  // it.
  void WriteWithSnapshot() {
    Write();
    const auto storage = *DirectoryLogStorage::Open(directory_.path());
    SnapshotHead head;
    head.record = {.number = 1,
                   .base = 1,
                   .position = 4,
                   .log_process = 1,
                   .time = absl::UnixEpoch(),
                   .sessions = {}};
    head.image.plan = ThePlan();
    head.image.self = NodeId{2};
    const auto snapshot = SnapshotWriter::Begin(*storage, 4096, head);
    ASSERT_THAT(snapshot, IsOk());
    RowWindow window;
    window.table = TableId{7};
    WindowRows rows;
    rows.bytes = Buffer::Allocate(20'000);
    std::memset(rows.bytes.data(), 1, rows.bytes.size());
    ASSERT_THAT((*snapshot)->Add(window, rows), IsOk());
    ASSERT_THAT((*snapshot)->Finish(), IsOk());
    const auto log =
        *NodeLog::Open(*storage, {}, [](const LogRecordView&) { return absl::OkStatus(); });
    ASSERT_THAT(log->Truncate(LogLsn{4}), IsOk());
    ASSERT_THAT(log->Close(), IsOk());
  }
  static void Control(NodeLog& log, JournalKind kind, LogPayload payload) {
    ASSERT_THAT(log.WriteControl(static_cast<std::uint16_t>(kind), std::move(payload)), IsOk());
  }

  // Changes one byte, or changes it back.
  static void Flip(const std::string& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(120);
    const int byte = file.get();
    file.seekp(120);
    file.put(static_cast<char>(byte ^ 0x55));
  }

  absl::Status Dump(std::uint64_t from = 0, std::uint64_t limit = 0, bool json = false) {
    out_.str("");
    return JournalDumpVerb({directory_.path(), from, limit}, {json, out_});
  }
  absl::Status Verify(bool json = false) {
    out_.str("");
    return JournalVerifyVerb({directory_.path()}, {json, out_});
  }

  TempDirectory directory_;
  std::ostringstream out_;
};

TEST_F(JournalCmdTest, PrintsARecordPerLine) {
  Write();
  ASSERT_THAT(Dump(), IsOk());
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("1  process"), HasSubstr("node 2, plan 4, tables: 1"),
                                HasSubstr("session 9 seq 3 step 0: ads 2 ids")));
  ASSERT_THAT(Dump(4, 1, /*json=*/true), IsOk());
  const Json line = Json::parse(out_.str());
  EXPECT_EQ(line["lsn"], 4);
  EXPECT_EQ(line["kind"], "update");
  EXPECT_THAT(line["text"].get<std::string>(), HasSubstr("seq 2"));
}

TEST_F(JournalCmdTest, CountsRecordsByKind) {
  Write();
  ASSERT_THAT(Verify(/*json=*/true), IsOk());
  const Json summary = Json::parse(out_.str());
  EXPECT_EQ(summary["records"], 5);
  EXPECT_EQ(summary["plan_version"], 4);
  EXPECT_EQ(summary["processes"], 1);
  EXPECT_EQ(summary["kinds"]["update"]["records"], 3);
  ASSERT_THAT(Verify(), IsOk());
  EXPECT_THAT(out_.str(), HasSubstr("intact; records 5, processes 1"));
}

// Tables of later records have the names of the snapshot's plan.
TEST_F(JournalCmdTest, BeginsWithTheSnapshotWhereTheLogDoes) {
  WriteWithSnapshot();
  ASSERT_THAT(Verify(), IsOk());
  EXPECT_THAT(out_.str(),
              AllOf(HasSubstr("intact; records 2, processes 1"),
                    HasSubstr("begins with snapshots 1 to 1 of"), HasSubstr("at record 4")));
  ASSERT_THAT(Verify(/*json=*/true), IsOk());
  EXPECT_EQ(Json::parse(out_.str())["snapshots"], 1);
  ASSERT_THAT(Dump(), IsOk());
  EXPECT_THAT(out_.str(), HasSubstr("session 9 seq 3 step 0: ads 2 ids"));
  const std::string snapshot = directory_.path() + "/snapshot-00000000000000000001-";
  // A file between head and end: a start finds that when it comes to its rows.
  Flip(snapshot + "log-00000000000000000003");
  EXPECT_THAT(Verify(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("snapshot")));
  Flip(snapshot + "log-00000000000000000003");
  EXPECT_THAT(Verify(), IsOk());
  std::filesystem::remove(snapshot + "newest");
  std::filesystem::remove(snapshot + "log-00000000000000000001");
  EXPECT_THAT(Verify(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("snapshot")));
}

TEST_F(JournalCmdTest, ADirectoryThatIsMissingIsNotMade) {
  const std::string path = directory_.path() + "/missing";
  EXPECT_THAT(JournalVerifyVerb({path}, {false, out_}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("--data-dir")));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(JournalCmdTest, ADirectoryWithoutAJournalIsNotTakenForAWholeOne) {
  EXPECT_THAT(Verify(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("no journal")));
  EXPECT_THAT(Dump(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("no journal")));
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

TEST_F(JournalCmdTest, ADirectoryInUseIsLeftAlone) {
  Write();
  const auto storage = DirectoryLogStorage::Open(directory_.path());
  ASSERT_THAT(storage, IsOk());
  EXPECT_THAT(Verify(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("stop its")));
}

TEST_F(JournalCmdTest, NamesDamage) {
  Write();
  for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
    if (entry.file_size() < 200) continue;
    Flip(entry.path());
  }
  EXPECT_THAT(Verify(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("offset")));
}

TEST_F(JournalCmdTest, NamesARecordOfANewerProgram) {
  Write();
  {
    const auto storage = *DirectoryLogStorage::Open(directory_.path());
    const auto log =
        *NodeLog::Open(*storage, {}, [](const LogRecordView&) { return absl::OkStatus(); });
    ASSERT_THAT(log->WriteControl(99, "?"), IsOk());
    ASSERT_THAT(log->Close(), IsOk());
  }
  EXPECT_THAT(Verify(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("kind 99")));
}

}  // namespace
}  // namespace embla::cli::journal_cmd_test
