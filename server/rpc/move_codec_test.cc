#include "server/rpc/move_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include <grpcpp/support/slice.h>

#include "core/base/testing/status_matchers.h"
#include "core/base/text.h"
#include "core/wire/replicate_codec.h"
#include "embla/v1/data.pb.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;
using ::embla::testing::StatusIs;
using ::testing::HasSubstr;

constexpr UnitId kUnit{.table = TableId{7}, .row_granule = 12, .column_granule = 3};

UnitRecord OpenRecord() {
  return {.owner = NodeId{1},
          .epoch = UnitEpoch{4},
          .committed = MoveId{2},
          .move = MoveId{5},
          .phase = MovePhase::kOpen,
          .source = NodeId{1},
          .target = NodeId{2}};
}

UnitOrder SomeOrder() {
  return {.unit = kUnit,
          .record = OpenRecord(),
          .cancels = true,
          .source_is_lost = true,
          .target_device = 3,
          .run = {.row_begin = 100, .row_end = 2000},
          .bytes_per_second = 1 << 30,
          .plan = PlanVersion{77}};
}

absl::StatusOr<PeerMessage> Decode(const v1::MoveMessage& message) {
  BufferPool pool;
  grpc::Slice slice(message.SerializeAsString());
  grpc::ByteBuffer bytes(&slice, 1);
  absl::StatusOr<MoveCall> call = DecodeMove(bytes, pool, {});
  if (!call.ok()) return call.status();
  return std::move(call->message);
}

absl::StatusOr<PeerMessage> RoundTrip(PeerMessage message) {
  BufferPool pool;
  grpc::ByteBuffer bytes =
      EncodeMove(std::move(message), {.nonce = "nonce", .node = "n1", .token = "token"});
  absl::StatusOr<MoveCall> call = DecodeMove(bytes, pool, {});
  if (!call.ok()) return call.status();
  EXPECT_EQ(call->peer.nonce, "nonce");
  EXPECT_EQ(call->peer.node, "n1");
  EXPECT_EQ(call->peer.token, "token");
  return std::move(call->message);
}

v1::MoveMessage ValidMessage() {
  v1::MoveMessage message;
  message.mutable_unit()->set_table_id(1);
  message.set_from_node(1);
  message.set_move(1);
  return message;
}

TEST(MoveCodecOrders, ComeBackAsTheyWere) {
  std::vector<UnitOrder> orders = {SomeOrder(), SomeOrder(), SomeOrder(), SomeOrder()};
  orders[1].cancels = false;
  orders[1].record = {.owner = NodeId{2}, .epoch = UnitEpoch{5}};
  orders[2].record.target = orders[2].record.owner;  // To another device of its node.
  orders[3].record.source = NodeId{0};               // From a node that is lost.
  const auto decoded = FromMessage(ToMessage(orders));
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(*decoded, orders);
}

TEST(MoveCodecOrders, RefuseRecordsThatNoUnitCanBeAt) {
  const auto refused = [](auto spoil) {
    UnitOrder order = SomeOrder();
    spoil(order);
    const auto decoded = FromMessage(ToMessage(std::vector<UnitOrder>{SomeOrder(), order}));
    EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(decoded.status()), HasSubstr("move order 1: "));
  };
  refused([](UnitOrder& order) { order.unit.table = TableId{0}; });
  refused([](UnitOrder& order) { order.record.epoch = UnitEpoch{0}; });
  refused([](UnitOrder& order) { order.record.owner = NodeId{0}; });
  refused([](UnitOrder& order) { order.record.move = MoveId{0}; });
  refused([](UnitOrder& order) { order.record.committed = MoveId{6}; });
  refused([](UnitOrder& order) { order.record.source = NodeId{3}; });
  refused([](UnitOrder& order) { order.run.row_end = 99; });
  v1::MoveOrders unknown = ToMessage(std::vector<UnitOrder>{SomeOrder()});
  unknown.mutable_orders(0)->mutable_record()->set_phase(static_cast<v1::UnitRecord::Phase>(9));
  EXPECT_THAT(Message(FromMessage(unknown).status()), HasSubstr("unknown phase 9"));
}

TEST(MoveCodecReports, ComeBackAsTheyWere) {
  std::vector<UnitReport> reports;
  for (int kind = 0; kind <= static_cast<int>(UnitReport::Kind::kProgress); ++kind) {
    reports.push_back({.unit = kUnit,
                       .kind = static_cast<UnitReport::Kind>(kind),
                       .move = MoveId{9},
                       .message = "why",
                       .bytes_sent = 1000,
                       .frozen = absl::Microseconds(kind)});
  }
  const auto decoded = FromMessage(ToMessage(reports));
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(*decoded, reports);
}

TEST(MoveCodecReports, RefuseUnknownKinds) {
  v1::MoveReports message = ToMessage(std::vector<UnitReport>{{.unit = kUnit}});
  message.mutable_reports(0)->set_kind(v1::MoveReport::KIND_UNSPECIFIED);
  EXPECT_THAT(Message(FromMessage(message).status()), HasSubstr("move report 0: unknown kind 0"));
}

TEST(MoveCodecPeers, PullsComeBackAsTheyWere) {
  const Pull pull{.move = MoveId{5},
                  .epoch = UnitEpoch{4},
                  .held = {Lsn{0}, Lsn{9}, Lsn{1u << 20}},
                  .credit = 8,
                  .resend = true};
  const auto decoded = RoundTrip({.unit = kUnit, .from = NodeId{2}, .body = pull});
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->unit, kUnit);
  EXPECT_EQ(decoded->from, NodeId{2});
  EXPECT_EQ(std::get<Pull>(decoded->body), pull);
}

TEST(MoveCodecPeers, ChunksCarryTheirRows) {
  const Chunk chunk{.move = MoveId{5}, .chunk = 3, .base = Lsn{2}, .version = Lsn{77}};
  Buffer rows = Buffer::Allocate(1 << 20);
  std::memset(rows.data(), 0x5a, rows.size());
  const auto decoded =
      RoundTrip({.unit = kUnit, .from = NodeId{1}, .body = chunk, .rows = std::move(rows)});
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(std::get<Chunk>(decoded->body), chunk);
  ASSERT_EQ(decoded->rows.size(), std::size_t{1} << 20);
  for (const std::byte byte : decoded->rows.bytes()) ASSERT_EQ(byte, std::byte{0x5a});
}

TEST(MoveCodecPeers, FinalCutsCarryTheirWindows) {
  UnitWindows windows;
  for (std::uint64_t seq = 1; seq < 300; seq += 7) {
    windows.Record(SessionId{3}, UpdateSeq{seq}, UpdateSeq{seq > 200 ? seq - 200 : 1});
    windows.Record(SessionId{8}, UpdateSeq{seq}, UpdateSeq{seq});
  }
  const FinalCut cut{
      .move = MoveId{5}, .lsn = Lsn{1000}, .needed = {Lsn{999}, Lsn{1000}}, .windows = windows};
  const auto decoded = RoundTrip({.unit = kUnit, .from = NodeId{1}, .body = cut});
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(std::get<FinalCut>(decoded->body), cut);
}

TEST(MoveCodecPeers, RefuseWhatCannotBe) {
  const auto refused = [](auto spoil) {
    v1::MoveMessage message = ValidMessage();
    spoil(message);
    const auto decoded = Decode(message);
    EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
    return Message(decoded.status());
  };
  EXPECT_THAT(refused([](v1::MoveMessage&) {}), HasSubstr("payload is missing"));
  EXPECT_THAT(refused([](v1::MoveMessage& m) { m.set_from_node(0); }), HasSubstr("from_node"));
  EXPECT_THAT(refused([](v1::MoveMessage& m) { m.set_move(0); }), HasSubstr("move"));
  EXPECT_THAT(refused([](v1::MoveMessage& m) { m.clear_unit(); }), HasSubstr("no table"));
  EXPECT_THAT(refused([](v1::MoveMessage& m) {
                v1::SessionWindow& window = *m.mutable_final()->add_windows();
                window.set_session(1);
                window.set_floor(1);
                window.add_words(0);
              }),
              HasSubstr("has 1 words, it must have 4"));
  EXPECT_THAT(refused([](v1::MoveMessage& m) {
                for (const std::uint64_t session : {2, 1}) {
                  v1::SessionWindow& window = *m.mutable_final()->add_windows();
                  window.set_session(session);
                  window.set_floor(1);
                  for (int i = 0; i < 4; ++i) window.add_words(0);
                }
              }),
              HasSubstr("ascending"));
}

std::string Serialized(PeerMessage message) {
  const grpc::ByteBuffer bytes =
      EncodeMove(std::move(message), {.nonce = "nonce", .node = "n1", .token = "token"});
  std::vector<grpc::Slice> slices;
  if (!bytes.Dump(&slices).ok()) return "";
  std::string all;
  for (const grpc::Slice& slice : slices) {
    all.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return all;
}

// A message of each kind, with what it carries.
std::vector<std::string> SerializedMessages() {
  const ChunkVersions versions = {Lsn{0}, Lsn{9}, Lsn{1u << 20}};
  UnitWindows windows;
  for (std::uint64_t seq = 1; seq < 300; seq += 7) {
    windows.Record(SessionId{3}, UpdateSeq{seq}, UpdateSeq{seq});
  }
  std::vector<std::string> all;
  const auto add = [&all](auto body, Buffer rows = {}) {
    all.push_back(Serialized(
        {.unit = kUnit, .from = NodeId{2}, .body = std::move(body), .rows = std::move(rows)}));
  };
  add(Pull{.move = MoveId{5}, .epoch = UnitEpoch{4}, .held = versions, .credit = 8});
  Buffer rows = Buffer::Allocate(200);
  std::memset(rows.data(), 'r', rows.size());
  add(Chunk{.move = MoveId{5}, .chunk = 3, .base = Lsn{2}, .version = Lsn{77}}, std::move(rows));
  add(FinalCut{.move = MoveId{5}, .lsn = Lsn{1000}, .needed = versions, .windows = windows});
  add(Holds{.move = MoveId{5}, .lsn = Lsn{1000}});
  add(Release{.move = MoveId{5}});
  add(Covered{.move = MoveId{5}});
  return all;
}

// A data socket carries all that a call does: its text has everything but the rows.
TEST(MoveCodecPeers, GoByFrames) {
  const Chunk chunk{.move = MoveId{9}, .chunk = 3, .base = Lsn{4}, .version = Lsn{80}};
  PeerMessage message{.unit = kUnit, .from = NodeId{1}, .body = chunk};
  message.rows = Buffer::Allocate(4);
  std::memcpy(message.rows.data(), "rows", 4);
  message.is_urgent = true;
  const wire::Frame frame = EncodeMoveFrame(
      std::move(message), {.nonce = "nonce", .node = "n1", .token = "token"}, /*sequence=*/17);
  ASSERT_EQ(frame.pieces.size(), 1u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(frame.pieces[0].begin()), 4), "rows");
  const auto text = wire::DecodeReplicateText(frame.head.substr(16), {});
  ASSERT_THAT(text, IsOk());
  EXPECT_EQ(text->order.sequence, 17u);
  ASSERT_NE(text->move, nullptr);
  EXPECT_EQ(ProofOf(*text->move).token, "token");
  const absl::StatusOr<PeerMessage> decoded = FromMessage(*text->move, Buffer());
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->unit, kUnit);
  EXPECT_EQ(decoded->from, NodeId{1});
  EXPECT_EQ(std::get<Chunk>(decoded->body), chunk);
  EXPECT_TRUE(decoded->is_urgent);
}

// Decodes it like one that comes by a data socket.
absl::StatusOr<PeerMessage> DecodeFromText(const std::string& message) {
  std::string text;
  wire::AppendDelimited(v1::ReplicateRequest::kMoveFieldNumber, message.size(), text);
  const auto decoded = wire::DecodeReplicateText(text + message, {});
  if (!decoded.ok()) return decoded.status();
  if (decoded->move == nullptr) return absl::InvalidArgumentError("it is an update");
  return FromMessage(*decoded->move, Buffer());
}

// Anything may arrive: it is refused or decoded, and never read beyond its end.
TEST(MoveCodecPeers, SurviveRandomDamage) {
  constexpr std::uint64_t kSeed = 77;
  std::cout << "seed=" << kSeed << '\n';
  std::mt19937_64 random(kSeed);
  for (const std::string& valid : SerializedMessages()) {
    int decoded = 0;
    for (int i = 0; i < 10'000; ++i) {
      std::string damaged =
          valid.substr(0, random() % 2 == 0 ? valid.size() : 1 + random() % valid.size());
      for (std::uint64_t n = random() % 4; n > 0; --n) {
        damaged[random() % damaged.size()] = static_cast<char>(random());
      }
      BufferPool pool;
      grpc::Slice slice(damaged);
      grpc::ByteBuffer bytes(&slice, 1);
      const absl::StatusOr<MoveCall> call = DecodeMove(bytes, pool, {});
      const absl::StatusOr<PeerMessage> by_text = DecodeFromText(damaged);
      if (call.ok()) {
        EXPECT_THAT(by_text, IsOk());
        ++decoded;
        continue;
      }
      ASSERT_THAT(call, StatusIs(absl::StatusCode::kInvalidArgument));
    }
    EXPECT_GT(decoded, 0);
  }
}

}  // namespace
}  // namespace embla
