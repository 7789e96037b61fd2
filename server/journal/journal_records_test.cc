#include "server/journal/journal_records.h"
#include "server/journal/image_records.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/file.h"
#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "core/plan/plan_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/journal/copied_record.h"
#include "server/journal/decision_record.h"
#include "server/journal/record_bytes.h"
#include "server/journal/record_text.h"
#include "server/journal/unit_records.h"
#include "server/journal/update_record.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;

SharedBuffer BufferOf(std::string_view bytes) {
  Buffer buffer = Buffer::Allocate(bytes.size());
  if (!bytes.empty()) std::memcpy(buffer.data(), bytes.data(), bytes.size());
  return buffer;
}

std::string BytesOf(const Decision& decision) {
  return std::string(EncodeDecision(decision).payload.content());
}

std::string ChunkBytes(const ChunkPieceRecord& piece) {
  RecordWriter out;
  PutChunkPiece(piece, out);
  return std::move(out).Take();
}

constexpr UnitId kUnit{TableId{7}, 3, 0};

// An update and its data, which must outlive it.
struct UpdateExample {
  std::array<RowId, 2> ids = {RowId{5}, RowId{-1}};
  std::array<float, 2> gradients = {0.5f, -0.5f};
  std::array<std::uint32_t, 1> lengths = {2};
  std::array<float, 2> weights = {1.0f, 2.0f};

  DecidedUpdate Make() const {
    DecidedUpdate update;
    UpdateBatch& batch = update.batch;
    batch.session = SessionId{9};
    batch.seq = UpdateSeq{4};
    batch.first_incomplete = UpdateSeq{3};
    batch.step = 100;
    batch.plan_version = PlanVersion{2};
    update.time = absl::UnixEpoch() + absl::Seconds(1);
    update.tables = {{TableId{7}, 0, false, {{3, {0, 1}, true}}}, {TableId{8}, 1, true, {}}};
    UpdatePart& rows = batch.parts.emplace_back();
    rows.table = TableId{7};
    rows.column_end = 1;
    rows.ids = ids;
    rows.gradients = std::as_bytes(std::span(gradients));
    UpdatePart& bags = batch.parts.emplace_back();
    bags.table = TableId{8};
    bags.replica_group = 1;
    bags.form = UpdatePart::Form::kBags;
    bags.column_end = 1;
    bags.clipped = true;
    bags.ids = ids;
    bags.lengths = lengths;
    bags.weights = weights;
    bags.gradients = std::as_bytes(std::span(gradients)).first(4);
    return update;
  }
};

// The same as a synchronous step of two contributions.
DecidedUpdate StepOf(DecidedUpdate update) {
  update.batch.is_step = true;
  update.batch.claim.emplace().table = TableId{7};
  update.batch.contributors = {{SessionId{9}, UpdateSeq{4}, UpdateSeq{3}},
                               {SessionId{12}, UpdateSeq{70}, UpdateSeq{70}}};
  return update;
}

UnitWindows ExampleWindows() {
  UnitWindows windows;
  windows.Record(SessionId{9}, UpdateSeq{4}, UpdateSeq{3});
  return windows;
}

DecidedSweep ExampleSweep() {
  return {TableId{7}, {ZchSweep::Rule::kIdle, 9, 4}, {RowInterval{0, 64}, RowInterval{128, 256}}};
}

DecidedSync ExampleSync() {
  return {{{TableId{7}, {{{0, 4}, {0, 30}}, {{4, 8}, {10, 20}}}}, {TableId{8}, {}}}};
}

ClosedSessions ExampleClosedSessions() {
  ClosedSessions closed;
  for (const std::uint64_t session : {1, 2, 5}) closed.refused.Insert(SessionId{session});
  closed.settled.Insert(SessionId{2});
  return closed;
}

std::vector<LogRecord> ExampleControls() {
  return {OwnRecord{UnitEpoch{2}, MoveId{1}, Lsn{60}, ExampleWindows()},
          ReleaseRecord{{MoveId{2}, NodeId{5}, UnitEpoch{3}}, Lsn{50}, {Lsn{49}, Lsn{50}}},
          AbortRecord{MoveId{3}},
          TrimRecord{MoveId{3}},
          ImportRecord{MoveId{4}, NodeId{2}, UnitEpoch{5}},
          DiscardRecord{MoveId{5}},
          RelocateRecord{MoveId{6}}};
}

// All that a primary orders of a copy, and its word that another is gone. Views `update`.
std::vector<Decision> ExampleCopied(const UpdateExample& update) {
  UpdateBatch batch = update.Make().batch;
  batch.parts.pop_back();
  static constexpr std::string_view kRows = "rows";
  return {CopiedUpdate{TableId{7}, 77, 6, std::move(batch)},
          CopiedRows{.table = TableId{7},
                     .reign = 77,
                     .order = 5,
                     .row_block = BufferOf(kRows),
                     .first = true,
                     .last = true,
                     .windows = ExampleWindows()},
          CopyConfirmed{TableId{7}}, CopyGone{TableId{7}, NodeId{2}}};
}

// A record of each kind, decoded and encoded again.
struct Example {
  JournalKind kind;
  std::string bytes;
  std::function<absl::StatusOr<std::string>(const SharedBuffer&)> again;
};

template <typename Decode, typename Encode>
Example MakeExample(JournalKind kind, std::string bytes, Decode decode, Encode encode) {
  return {kind, std::move(bytes), [=](const SharedBuffer& input) -> absl::StatusOr<std::string> {
            const auto record = [&] {
              if constexpr (std::is_invocable_v<Decode, const SharedBuffer&>) return decode(input);
              if constexpr (!std::is_invocable_v<Decode, const SharedBuffer&>) {
                return decode(input.bytes());
              }
            }();
            if (!record.ok()) return record.status();
            return encode(*record);
          }};
}

std::vector<Example> Examples() {
  const UpdateExample update;
  const std::array<TableId, 2> tables = {TableId{7}, TableId{8}};
  const std::string rows = "rows of a chunk";
  const ChunkPieceRecord piece{
      kUnit, {MoveId{4}, 1, Lsn{0}, Lsn{60}}, 20, 5, std::as_bytes(std::span(rows))};
  std::vector<Example> examples = {
      MakeExample(JournalKind::kProcess, EncodeProcessRecord({3}), DecodeProcessRecord,
                  EncodeProcessRecord),
      MakeExample(JournalKind::kUpdate, EncodeUpdateRecord(update.Make()), DecodeUpdateRecord,
                  EncodeUpdateRecord),
      MakeExample(JournalKind::kSync, EncodeSyncRecord(tables), DecodeSyncRecord,
                  [](const SyncRecord& record) { return EncodeSyncRecord(record.tables); }),
      MakeExample(JournalKind::kAdopted, EncodeAdoptedUnit({kUnit, UnitEpoch{2}}),
                  DecodeAdoptedUnit, EncodeAdoptedUnit),
      MakeExample(JournalKind::kReserved, EncodeReservedUnit({kUnit, 1, {30, 40}}),
                  DecodeReservedUnit, EncodeReservedUnit),
      MakeExample(JournalKind::kChunk, ChunkBytes(piece), DecodeChunkPiece, ChunkBytes),
      MakeExample(JournalKind::kSweep, BytesOf(ExampleSweep()), DecodeSweepRecord, BytesOf),
      MakeExample(JournalKind::kClosedSessions, EncodeClosedSessionsRecord(ExampleClosedSessions()),
                  DecodeClosedSessionsRecord, EncodeClosedSessionsRecord),
      MakeExample(JournalKind::kAveraged, BytesOf(ExampleSync()), DecodeAveragedRecord, BytesOf),
      MakeExample(JournalKind::kStep, EncodeUpdateRecord(StepOf(update.Make())), DecodeStepRecord,
                  EncodeUpdateRecord)};
  for (const LogRecord& record : ExampleControls()) {
    examples.push_back(MakeExample(JournalKind::kControl, EncodeUnitControl(kUnit, record),
                                   DecodeUnitControl, [](const UnitControlRecord& control) {
                                     return EncodeUnitControl(control.unit, control.record);
                                   }));
  }
  for (const Decision& decision : ExampleCopied(update)) {
    examples.push_back(
        MakeExample(JournalKind::kCopied, BytesOf(decision), DecodeCopiedRecord, BytesOf));
  }
  examples.push_back(MakeExample(JournalKind::kFolded, EncodeFoldedUnit({kUnit, PlanVersion{9}}),
                                 DecodeFoldedUnit, EncodeFoldedUnit));
  return examples;
}

TableImage ExampleTableImage() {
  TableSpec spec;
  spec.id = TableId{7};
  spec.name = "t";
  spec.rows = 64;
  spec.dim = 4;
  spec.SetDefaults();
  TableSpec faster = spec;
  faster.optimizer.learning_rate *= 2;
  TableImage image;
  image.table = TableId{7};
  image.windows = {ExampleWindows(), {}};
  image.highest_step = 9;
  image.first_unmade_step = 10;
  image.copy = CopyImage{.position = {.reign = 77, .order = 6, .complete = true},
                         .has_all = true,
                         .primary_since = PlanVersion{3},
                         .spec = spec,
                         .spec_version = PlanVersion{3},
                         .history = {{PlanVersion{3}, spec}, {PlanVersion{4}, faster}}};
  image.groups = GroupImage{.is_due = true, .updates = {2, 0}, .counted = {ExampleWindows(), {}}};
  return image;
}

RestoredUnit ExampleComing() {
  RestoredUnit unit{.unit = kUnit,
                    .durable = {.min_move = MoveId{5}, .touched = {Lsn{0}, Lsn{0}}, .import = {}},
                    .staged = {Lsn{70}, Lsn{0}},
                    .has_memory = true,
                    .device = 1,
                    .run = {16, 48}};
  unit.durable.import = ImportState{MoveId{5}, NodeId{3}, UnitEpoch{4}};
  unit.durable.left = ReleasedState{MoveId{2}, NodeId{3}, UnitEpoch{4}};
  return unit;
}

RestoredUnit ExampleKept() {
  RestoredUnit unit{.unit = kUnit,
                    .durable = {.min_move = MoveId{6},
                                .lsn = Lsn{60},
                                .windows = ExampleWindows(),
                                .touched = {Lsn{59}, Lsn{60}},
                                .import = {}},
                    .staged = {Lsn{0}, Lsn{0}},
                    .run = {}};
  unit.durable.released = ReleasedState{MoveId{5}, NodeId{3}, UnitEpoch{4}};
  return unit;
}

// Two replica groups: a memory with two runs of rows, and none.
PlacesRecord ExamplePlaces() {
  PlacedRows place{.slice = {.row_begin = 0,
                             .row_end = 64,
                             .column_begin = 0,
                             .column_end = 4,
                             .device = {NodeId{}, 1}},
                   .present = RowIntervals({0, 16})};
  place.present.Insert({32, 48});
  return {.table = TableId{7}, .places = {{place}, {}}};
}

std::string RowsBytes(const RowsRecord& record) {
  RecordWriter out;
  PutRows(record, out);
  return std::move(out).Take();
}

// The records that only snapshots have.
std::vector<Example> SnapshotExamples() {
  static constexpr std::string_view kRows = "rows of a window";
  const absl::Time time = absl::UnixEpoch() + absl::Seconds(1);
  const ImageRecord image{.number = 3,
                          .base = 2,
                          .position = 50,
                          .log_process = 4,
                          .time = time,
                          .sessions = {{SessionId{9}, UpdateSeq{4}, time}}};
  const RestoredUnit unit{.unit = kUnit,
                          .durable = {.epoch = UnitEpoch{2},
                                      .min_move = MoveId{5},
                                      .lsn = Lsn{60},
                                      .windows = ExampleWindows(),
                                      .touched = {Lsn{59}, Lsn{60}},
                                      .import = {}},
                          .staged = {},
                          .folded = PlanVersion{9},
                          .run = {}};
  const RowsRecord rows{.window = {TableId{7}, {0, 4}, {16, 32}},
                        .replica_group = 1,
                        .position = 51,
                        .rows_bytes = 20,
                        .offset = 4,
                        .piece = std::as_bytes(std::span(kRows))};
  return {
      MakeExample(JournalKind::kImage, EncodeImage(image), DecodeImage, EncodeImage),
      MakeExample(JournalKind::kTableImage, EncodeTableImage(ExampleTableImage()), DecodeTableImage,
                  EncodeTableImage),
      MakeExample(JournalKind::kUnitAtRest, EncodeUnitAtRest(unit), DecodeUnitAtRest,
                  EncodeUnitAtRest),
      MakeExample(JournalKind::kRows, RowsBytes(rows), DecodeRows, RowsBytes),
      MakeExample(JournalKind::kImageEnd, EncodeImageEnd({7}), DecodeImageEnd, EncodeImageEnd),
      MakeExample(JournalKind::kUnitMoving, EncodeUnitMoving(ExampleComing()), DecodeUnitMoving,
                  EncodeUnitMoving),
      MakeExample(JournalKind::kUnitMoving, EncodeUnitMoving(ExampleKept()), DecodeUnitMoving,
                  EncodeUnitMoving),
      MakeExample(JournalKind::kPlaces, EncodePlaces(ExamplePlaces()), DecodePlaces, EncodePlaces)};
}

std::vector<Example> AllExamples() {
  std::vector<Example> all = Examples();
  std::ranges::move(SnapshotExamples(), std::back_inserter(all));
  return all;
}

// The records as tests/golden has them: u32 kind, u32 bytes, content.
std::string GoldenOf(const std::vector<Example>& examples) {
  std::string bytes;
  const auto add = [&bytes](std::uint32_t value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  for (const Example& example : examples) {
    add(static_cast<std::uint32_t>(example.kind));
    add(static_cast<std::uint32_t>(example.bytes.size()));
    bytes += example.bytes;
  }
  return bytes;
}

TEST(JournalRecords, AllHaveWords) {
  RecordTexts texts;
  for (const Example& example : Examples()) {
    const auto described = texts.Describe(
        {.kind = static_cast<std::uint16_t>(example.kind), .payload = example.bytes});
    ASSERT_THAT(described, IsOk());
    EXPECT_FALSE(described->text.empty()) << described->kind;
  }
}

// The worked example of docs/journal_format.md and a record of each other kind but plans, written
// by another program.
TEST(JournalRecords, TheGoldenFileIsWhatIsWrittenAndRead) {
  const auto golden = ReadFile("tests/golden/journal_records_v2.bin");
  ASSERT_THAT(golden, IsOk());
  EXPECT_TRUE(*golden == GoldenOf(Examples()));
  const auto snapshot = ReadFile("tests/golden/snapshot_records_v2.bin");
  ASSERT_THAT(snapshot, IsOk());
  EXPECT_TRUE(*snapshot == GoldenOf(SnapshotExamples()));
}

TEST(JournalRecords, WhatIsReadIsWhatWasWritten) {
  for (const Example& example : AllExamples()) {
    SCOPED_TRACE(static_cast<int>(example.kind));
    const SharedBuffer bytes = BufferOf(example.bytes);
    const absl::StatusOr<std::string> again = example.again(bytes);
    ASSERT_THAT(again, IsOk());
    EXPECT_EQ(*again, example.bytes);
  }
  const UpdateExample example;
  const SharedBuffer bytes = BufferOf(EncodeUpdateRecord(example.Make()));
  const absl::StatusOr<DecidedUpdate> update = DecodeUpdateRecord(bytes);
  ASSERT_THAT(update, IsOk());
  EXPECT_EQ(update->tables, example.Make().tables);
  EXPECT_EQ(update->time, example.Make().time);
  EXPECT_EQ(update->batch.parts[0].ids[1], RowId{-1});
  EXPECT_EQ(update->batch.parts[1].weights[1], 2.0f);
}

// Whatever is viewed where it lies, the record is the same, and its memory is let go with it.
TEST(JournalRecords, ViewedAndCopiedDecisionsAreTheSameRecord) {
  constexpr std::size_t kIds = 301;  // An odd number of floats: what follows is padded.
  const std::vector<RowId> all_ids(kIds, RowId{7});
  const std::vector<float> all_gradients(3 * kIds, 0.5f);
  const std::vector<float> all_squares(kIds, 2.0f);
  DecidedUpdate update = UpdateExample().Make();
  update.batch.parts.clear();
  for (const std::size_t ids : {kIds, std::size_t{2}, kIds}) {
    UpdatePart& part = update.batch.parts.emplace_back();
    part.table = TableId{7};
    part.column_end = 3;
    part.ids = std::span(all_ids).first(ids);
    part.gradients = std::as_bytes(std::span(all_gradients).first(3 * ids));
    part.row_sum_squares = std::span(all_squares).first(ids);
  }
  const std::string of_update = BytesOf(update);
  const std::string of_copy = BytesOf(CopiedUpdate{TableId{7}, 1, 2, update.batch});
  std::weak_ptr<const void> memory;
  {
    update.batch.memory = Buffer::Allocate(1);  // Stands for that of the arrays.
    memory = update.batch.memory.memory();
    DecisionRecord viewed = EncodeDecision(update);
    DecisionRecord viewed_copy = EncodeDecision(CopiedUpdate{TableId{7}, 1, 2, update.batch});
    update.batch.memory = {};
    EXPECT_TRUE(viewed.payload.content() == of_update);
    EXPECT_TRUE(viewed_copy.payload.content() == of_copy);
    viewed.payload = {};
    EXPECT_FALSE(memory.expired());
    viewed_copy.payload = {};
  }
  EXPECT_TRUE(memory.expired());
}

TEST(JournalRecords, ClosedSessionsComeBack) {
  const ClosedSessions closed = ExampleClosedSessions();
  std::string record = EncodeClosedSessionsRecord(closed);
  const SharedBuffer bytes = BufferOf(record);
  const absl::StatusOr<ClosedSessions> read = DecodeClosedSessionsRecord(bytes.bytes());
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(*read, closed);
  record[4] = 3;  // From session 3 to session 2.
  const SharedBuffer damaged = BufferOf(record);
  EXPECT_TRUE(absl::IsDataLoss(DecodeClosedSessionsRecord(damaged.bytes()).status()));
  record.pop_back();
  const SharedBuffer cut = BufferOf(record);
  EXPECT_TRUE(absl::IsDataLoss(DecodeClosedSessionsRecord(cut.bytes()).status()));
}

TEST(JournalRecords, SweepsAndTtlsComeBack) {
  const DecidedSweep sweep = ExampleSweep();
  std::string record = BytesOf(sweep);
  const SharedBuffer bytes = BufferOf(record);
  const absl::StatusOr<DecidedSweep> read = DecodeSweepRecord(bytes.bytes());
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(*read, sweep);
  record[4] = 3;  // No such rule.
  const SharedBuffer damaged = BufferOf(record);
  EXPECT_EQ(DecodeSweepRecord(damaged.bytes()).status().code(), absl::StatusCode::kDataLoss);
  record.pop_back();
  const SharedBuffer cut = BufferOf(record);
  EXPECT_EQ(DecodeSweepRecord(cut.bytes()).status().code(), absl::StatusCode::kDataLoss);

  const UpdateExample example;
  DecidedUpdate update = example.Make();
  update.batch.parts[1].ttl_steps = 30;
  const SharedBuffer with_ttl = BufferOf(EncodeUpdateRecord(update));
  const absl::StatusOr<DecidedUpdate> again = DecodeUpdateRecord(with_ttl);
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->batch.parts[0].ttl_steps, 0u);
  EXPECT_EQ(again->batch.parts[1].ttl_steps, 30u);
  EXPECT_EQ(again->batch.parts[1].weights[1], 2.0f);
}

TEST(JournalRecords, ImagesAndLearningRatesComeBack) {
  const UpdateExample example;
  DecidedUpdate update = example.Make();
  UpdatePart& images = update.batch.parts[0];
  images.form = UpdatePart::Form::kImages;
  images.state_floats = 1;
  images.state_only = true;
  update.batch.parts[1].learning_rate = 0.25f;
  std::string record = EncodeUpdateRecord(update);
  const SharedBuffer bytes = BufferOf(record);
  const absl::StatusOr<DecidedUpdate> again = DecodeUpdateRecord(bytes);
  ASSERT_THAT(again, IsOk());
  EXPECT_TRUE(again->batch.parts[0].is_images());
  EXPECT_TRUE(again->batch.parts[0].state_only);
  EXPECT_EQ(again->batch.parts[0].state_floats, 1u);
  EXPECT_EQ(again->batch.parts[0].learning_rate, std::nullopt);
  EXPECT_EQ(again->batch.parts[1].learning_rate, 0.25f);
  EXPECT_EQ(again->batch.parts[1].weights[1], 2.0f);
  update.batch.parts[0].learning_rate = 1.0f;  // Goes with gradients only.
  const SharedBuffer mixed = BufferOf(EncodeUpdateRecord(update));
  EXPECT_TRUE(absl::IsDataLoss(DecodeUpdateRecord(mixed).status()));
}

TEST(JournalRecords, AveragedRowsComeBack) {
  std::string record = BytesOf(ExampleSync());
  const SharedBuffer bytes = BufferOf(record);
  const absl::StatusOr<DecidedSync> read = DecodeAveragedRecord(bytes.bytes());
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(*read, ExampleSync());
  record[16] = 0;  // Columns 0 to 0.
  const SharedBuffer damaged = BufferOf(record);
  EXPECT_TRUE(absl::IsDataLoss(DecodeAveragedRecord(damaged.bytes()).status()));
}

TEST(JournalRecords, PlansComeBackAndDamagedOnesAreDataLoss) {
  const std::vector<NodeSpec> nodes = {{NodeId{1}, "n0", "host:1", {{DeviceKind::kCpu, 100}}}};
  const Plan before(PlanVersion{3}, "cluster", nodes, {});
  TablePlan table;
  table.spec.id = TableId{7};
  table.spec.name = "t";
  table.spec.rows = 40;
  table.spec.dim = 4;
  table.spec.SetDefaults();
  table.replicas = {{{0, 40, 0, 4, {NodeId{1}, 0}}}};
  const Plan plan(PlanVersion{5}, "cluster", nodes, {table});
  const std::string bytes = EncodePlanDeltaRecord(NodeId{1}, DeltaBetween(before, plan));
  const absl::StatusOr<InstalledPlan> record =
      DecodePlanDeltaRecord(BufferOf(bytes).bytes(), before);
  ASSERT_THAT(record, IsOk());
  EXPECT_EQ(record->self, NodeId{1});
  EXPECT_EQ(*record->plan, plan);
  EXPECT_TRUE(absl::IsDataLoss(DecodePlanDeltaRecord(BufferOf(bytes).bytes(), plan).status()))
      << "it leads on from another plan";
  std::string damaged = bytes;
  damaged[4] ^= 1;
  EXPECT_TRUE(absl::IsDataLoss(DecodePlanDeltaRecord(BufferOf(damaged).bytes(), before).status()));
}

// The record of plans that programs before this one wrote.
TEST(JournalRecords, APlanAsJsonComesBack) {
  const Plan plan(PlanVersion{3}, "cluster",
                  {{NodeId{1}, "n0", "host:1", {{DeviceKind::kCpu, 100}}}}, {});
  const std::string json = PlanToJson(plan);
  RecordWriter out;
  out.Put(std::uint32_t{1});
  out.Put(static_cast<std::uint32_t>(json.size()));
  out.PutArray(std::span<const char>(json));
  const absl::StatusOr<InstalledPlan> record =
      DecodePlanRecord(BufferOf(std::move(out).Take()).bytes());
  ASSERT_THAT(record, IsOk());
  EXPECT_EQ(record->self, NodeId{1});
  EXPECT_EQ(*record->plan, plan);
}

TEST(JournalRecords, ACutRecordIsDataLoss) {
  for (const Example& example : AllExamples()) {
    SCOPED_TRACE(static_cast<int>(example.kind));
    for (std::size_t size = 0; size < example.bytes.size(); ++size) {
      const SharedBuffer bytes = BufferOf(example.bytes.substr(0, size));
      EXPECT_TRUE(absl::IsDataLoss(example.again(bytes).status())) << size;
    }
  }
}

TEST(JournalRecords, ARecordOfANewerProgramIsRefused) {
  std::string bytes = EncodeProcessRecord({3});
  bytes[0] = static_cast<char>(kJournalFormat + 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(DecodeProcessRecord(BufferOf(bytes).bytes()).status()));
}

// Mutated bytes never crash the decoder, and an accepted record decodes to the same when it is
// written again.
TEST(JournalRecords, MutatedRecordsAreRefusedOrWhole) {
  const std::uint64_t seed = embla::testing::TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const std::vector<Example> examples = AllExamples();
  for (int i = 0; i < 200'000; ++i) {
    const Example& example = examples[random() % examples.size()];
    std::string bytes = example.bytes;
    for (std::uint64_t edits = 1 + random() % 3; edits > 0 && !bytes.empty(); --edits) {
      const std::size_t at = random() % bytes.size();
      const std::uint64_t form = random() % 4;
      if (form == 0) bytes[at] = static_cast<char>(random());
      if (form == 1) bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
      if (form == 2) bytes.erase(at, 1 + random() % 8);
      if (form == 3) bytes.insert(at, bytes.substr(at, 1 + random() % 8));
    }
    const SharedBuffer buffer = BufferOf(bytes);
    const absl::StatusOr<std::string> again = example.again(buffer);
    if (again.ok()) {
      ASSERT_EQ(*again, bytes);
    } else {
      ASSERT_TRUE(absl::IsDataLoss(again.status()) || absl::IsFailedPrecondition(again.status()));
    }
  }
}

// Read since, and the same bytes as before where there is none.
TEST(JournalRecords, AUnitAtRestSaysWhereItWent) {
  RestoredUnit unit{.unit = kUnit, .durable = {.min_move = MoveId{6}}, .staged = {}, .run = {}};
  const std::size_t bytes = EncodeUnitAtRest(unit).size();
  unit.durable.left = ReleasedState{.move = MoveId{5}, .to = NodeId{3}, .epoch = UnitEpoch{4}};
  const std::string encoded = EncodeUnitAtRest(unit);
  EXPECT_EQ(encoded.size(), bytes + 20);
  const auto decoded = DecodeUnitAtRest(std::as_bytes(std::span(encoded)));
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->durable, unit.durable);
  const auto cut = std::as_bytes(std::span(encoded)).first(bytes + 8);
  EXPECT_EQ(DecodeUnitAtRest(cut).status().code(), absl::StatusCode::kDataLoss);
}

TEST(JournalRecords, AUnitOnTheMoveIsWhatItWas) {
  for (const RestoredUnit& unit : {ExampleComing(), ExampleKept()}) {
    const SharedBuffer bytes = BufferOf(EncodeUnitMoving(unit));
    const auto decoded = DecodeUnitMoving(bytes.bytes());
    ASSERT_THAT(decoded, IsOk());
    EXPECT_EQ(decoded->durable, unit.durable);
    EXPECT_EQ(decoded->staged, unit.staged);
    EXPECT_EQ(decoded->has_memory, unit.has_memory);
    EXPECT_EQ(decoded->device, unit.device);
    EXPECT_EQ(decoded->run.row_begin, unit.run.row_begin);
    EXPECT_EQ(decoded->run.row_end, unit.run.row_end);
  }
}

}  // namespace
}  // namespace embla
