#include "server/rpc/move_codec.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/wire/large_fields.h"
#include "embla/v1/data.pb.h"

namespace embla {
namespace {

constexpr int kChunkLarge[] = {v1::MoveChunk::kRowsFieldNumber};

void Fill(const UnitId& unit, v1::UnitName& out) {
  out.set_table_id(ToInt(unit.table));
  out.set_row_granule(unit.row_granule);
  out.set_column_granule(unit.column_granule);
}

absl::StatusOr<UnitId> FromMessage(const v1::UnitName& unit) {
  if (unit.table_id() == 0) return absl::InvalidArgumentError("the unit has no table");
  return UnitId{.table = TableId{unit.table_id()},
                .row_granule = unit.row_granule(),
                .column_granule = unit.column_granule()};
}

v1::UnitRecord::Phase ToMessage(MovePhase phase) {
  switch (phase) {
    case MovePhase::kNone:
      return v1::UnitRecord::PHASE_NONE;
    case MovePhase::kOpen:
      return v1::UnitRecord::PHASE_OPEN;
    case MovePhase::kAborted:
      return v1::UnitRecord::PHASE_ABORTED;
  }
  return v1::UnitRecord::PHASE_NONE;
}

absl::StatusOr<MovePhase> FromMessage(v1::UnitRecord::Phase phase) {
  switch (phase) {
    case v1::UnitRecord::PHASE_NONE:
      return MovePhase::kNone;
    case v1::UnitRecord::PHASE_OPEN:
      return MovePhase::kOpen;
    case v1::UnitRecord::PHASE_ABORTED:
      return MovePhase::kAborted;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("the record has the unknown phase ", static_cast<int>(phase)));
  }
}

void Fill(const UnitId& unit, const UnitRecord& record, v1::UnitRecord& out) {
  Fill(unit, *out.mutable_unit());
  out.set_owner(ToInt(record.owner));
  out.set_epoch(ToInt(record.epoch));
  out.set_committed(ToInt(record.committed));
  out.set_move(ToInt(record.move));
  out.set_phase(ToMessage(record.phase));
  out.set_source(ToInt(record.source));
  out.set_target(ToInt(record.target));
}

// The protocol stands on what Opened and HandedOver promise of a record.
absl::Status Check(const UnitRecord& record) {
  const bool is_open = record.phase == MovePhase::kOpen;
  if (record.epoch == UnitEpoch{0} || record.owner == NodeId{0} || record.committed > record.move ||
      (record.move == MoveId{0} && is_open) ||
      (is_open && record.source != record.owner && !IsAnew(record))) {
    return absl::InvalidArgumentError(
        absl::StrCat("no unit can be at the record ", ToString(record)));
  }
  return absl::OkStatus();
}

absl::StatusOr<UnitRecord> FromMessage(const v1::UnitRecord& message) {
  UnitRecord record{.owner = NodeId{message.owner()},
                    .epoch = UnitEpoch{message.epoch()},
                    .committed = MoveId{message.committed()},
                    .move = MoveId{message.move()}};
  EMBLA_ASSIGN_OR_RETURN(record.phase, FromMessage(message.phase()));
  record.source = NodeId{message.source()};
  record.target = NodeId{message.target()};
  EMBLA_RETURN_IF_ERROR(Check(record));
  return record;
}

absl::StatusOr<UnitOrder> FromMessage(const v1::MoveOrder& message) {
  UnitOrder order;
  EMBLA_ASSIGN_OR_RETURN(order.unit, FromMessage(message.record().unit()));
  EMBLA_ASSIGN_OR_RETURN(order.record, FromMessage(message.record()));
  order.cancels = message.cancels();
  order.source_is_lost = message.source_is_lost();
  order.target_device = message.target_device();
  order.run = {.row_begin = message.run_row_begin(), .row_end = message.run_row_end()};
  if (order.run.row_begin < 0 || order.run.row_end < order.run.row_begin) {
    return absl::InvalidArgumentError(
        absl::StrCat("the run [", order.run.row_begin, ", ", order.run.row_end, ") is no range"));
  }
  order.bytes_per_second = message.bytes_per_second();
  order.settles = message.settles();
  order.plan = PlanVersion{message.plan_version()};
  order.drops_aside = message.drops_aside();
  return order;
}

struct KindPair {
  UnitReport::Kind kind;
  v1::MoveReport::Kind wire;
};
constexpr KindPair kKinds[] = {
    {UnitReport::Kind::kHandedOver, v1::MoveReport::KIND_HANDED_OVER},
    {UnitReport::Kind::kReady, v1::MoveReport::KIND_READY},
    {UnitReport::Kind::kRefused, v1::MoveReport::KIND_REFUSED},
    {UnitReport::Kind::kReadRecord, v1::MoveReport::KIND_READ_RECORD},
    {UnitReport::Kind::kAborted, v1::MoveReport::KIND_ABORTED},
    {UnitReport::Kind::kProgress, v1::MoveReport::KIND_PROGRESS},
    {UnitReport::Kind::kSettled, v1::MoveReport::KIND_SETTLED},
};

absl::StatusOr<UnitReport> FromMessage(const v1::MoveReport& message) {
  const auto* const kind =
      std::find_if(std::begin(kKinds), std::end(kKinds),
                   [&message](const KindPair& pair) { return pair.wire == message.kind(); });
  if (kind == std::end(kKinds)) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown kind ", static_cast<int>(message.kind())));
  }
  UnitReport report{.kind = kind->kind, .move = MoveId{message.move()}};
  EMBLA_ASSIGN_OR_RETURN(report.unit, FromMessage(message.unit()));
  report.message = message.message();
  report.bytes_sent = message.bytes_sent();
  report.frozen = absl::Microseconds(message.frozen_us());
  return report;
}

template <typename Value, typename Message>
absl::StatusOr<std::vector<Value>> EachFromMessage(const Message& messages, const char* what) {
  std::vector<Value> values;
  values.reserve(static_cast<std::size_t>(messages.size()));
  for (const auto& message : messages) {
    absl::StatusOr<Value> value = FromMessage(message);
    if (!value.ok())
      return Annotate(value.status(), std::string(what) + " " + std::to_string(values.size()));
    values.push_back(*std::move(value));
  }
  return values;
}

// ---- Peers' messages.
void Fill(const ChunkVersions& versions, google::protobuf::RepeatedField<std::uint64_t>& out) {
  out.Reserve(static_cast<int>(versions.size()));
  for (const Lsn version : versions) out.Add(ToInt(version));
}

template <typename Field>
ChunkVersions FromInts(const Field& field) {
  ChunkVersions versions;
  versions.reserve(static_cast<std::size_t>(field.size()));
  for (const std::uint64_t version : field) versions.push_back(Lsn{version});
  return versions;
}

void Fill(const Pull& pull, v1::MoveMessage& message) {
  v1::MovePull& out = *message.mutable_pull();
  out.set_epoch(ToInt(pull.epoch));
  Fill(pull.held, *out.mutable_held());
  out.set_credit(pull.credit);
  out.set_resend(pull.resend);
}

void Fill(const Chunk& chunk, v1::MoveMessage& message) {
  v1::MoveChunk& out = *message.mutable_chunk();
  out.set_chunk(chunk.chunk);
  out.set_base(ToInt(chunk.base));
  out.set_version(ToInt(chunk.version));
}

void Fill(const FinalCut& cut, v1::MoveMessage& message) {
  v1::MoveFinal& out = *message.mutable_final();
  out.set_lsn(ToInt(cut.lsn));
  out.set_chunks_follow(cut.chunks_follow);
  Fill(cut.needed, *out.mutable_needed());
  for (const SessionWindow& window : cut.windows.sessions()) {
    v1::SessionWindow& session = *out.add_windows();
    session.set_session(ToInt(window.session));
    session.set_floor(ToInt(window.floor));
    session.mutable_words()->Add(window.words.begin(), window.words.end());
  }
}

void Fill(const Holds& holds, v1::MoveMessage& message) {
  message.mutable_holds()->set_lsn(ToInt(holds.lsn));
}

void Fill(const Release& release, v1::MoveMessage& message) {
  v1::MoveRelease& out = *message.mutable_release();
  out.set_epoch(ToInt(release.epoch));
  out.set_lsn(ToInt(release.lsn));
}

void Fill(const Covered&, v1::MoveMessage& message) { message.mutable_covered(); }

// Without the rows of a chunk.
v1::MoveMessage ToMessage(const PeerMessage& message, const wire::PeerProof& peer) {
  v1::MoveMessage out;
  out.mutable_peer()->set_nonce(peer.nonce);
  out.mutable_peer()->set_node(peer.node);
  out.mutable_peer()->set_token(peer.token);
  Fill(message.unit, *out.mutable_unit());
  out.set_from_node(ToInt(message.from));
  out.set_move(ToInt(MoveOf(message)));
  std::visit([&out](const auto& body) { Fill(body, out); }, message.body);
  if (message.is_urgent) out.mutable_chunk()->set_urgent(true);
  return out;
}

absl::StatusOr<UnitWindows> FromMessage(
    const google::protobuf::RepeatedPtrField<v1::SessionWindow>& windows) {
  std::vector<SessionWindow> sessions;
  for (const v1::SessionWindow& window : windows) {
    SessionWindow session{.session = SessionId{window.session()},
                          .floor = UpdateSeq{window.floor()}};
    if (static_cast<std::size_t>(window.words_size()) != session.words.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the window of session ", window.session(), " has ", window.words_size(),
                       " words, it must have ", session.words.size()));
    }
    std::copy(window.words().begin(), window.words().end(), session.words.begin());
    sessions.push_back(session);
  }
  return UnitWindows::FromSessions(std::move(sessions));
}

}  // namespace

v1::MoveOrders ToMessage(std::span<const UnitOrder> orders) {
  v1::MoveOrders message;
  for (const UnitOrder& order : orders) {
    v1::MoveOrder& out = *message.add_orders();
    Fill(order.unit, order.record, *out.mutable_record());
    out.set_cancels(order.cancels);
    out.set_source_is_lost(order.source_is_lost);
    out.set_target_device(order.target_device);
    out.set_run_row_begin(order.run.row_begin);
    out.set_run_row_end(order.run.row_end);
    out.set_bytes_per_second(order.bytes_per_second);
    out.set_settles(order.settles);
    out.set_plan_version(ToInt(order.plan));
    out.set_drops_aside(order.drops_aside);
  }
  return message;
}

absl::StatusOr<std::vector<UnitOrder>> FromMessage(const v1::MoveOrders& message) {
  return EachFromMessage<UnitOrder>(message.orders(), "move order");
}

v1::MoveReports ToMessage(std::span<const UnitReport> reports) {
  v1::MoveReports message;
  for (const UnitReport& report : reports) {
    v1::MoveReport& out = *message.add_reports();
    for (const KindPair& pair : kKinds) {
      if (pair.kind == report.kind) out.set_kind(pair.wire);
    }
    Fill(report.unit, *out.mutable_unit());
    out.set_move(ToInt(report.move));
    out.set_message(report.message);
    out.set_bytes_sent(report.bytes_sent);
    out.set_frozen_us(static_cast<std::uint64_t>(absl::ToInt64Microseconds(report.frozen)));
  }
  return message;
}

absl::StatusOr<std::vector<UnitReport>> FromMessage(const v1::MoveReports& message) {
  return EachFromMessage<UnitReport>(message.reports(), "move report");
}

grpc::ByteBuffer EncodeMove(PeerMessage message, const wire::PeerProof& peer) {
  v1::MoveMessage envelope = ToMessage(message, peer);
  if (!envelope.has_chunk()) return wire::EncodeMessage(envelope, {});
  const std::unique_ptr<v1::MoveChunk> chunk(envelope.release_chunk());
  return wire::EncodeNested(envelope, v1::MoveMessage::kChunkFieldNumber, *chunk,
                            {{v1::MoveChunk::kRowsFieldNumber, std::move(message.rows)}});
}

wire::Frame EncodeMoveFrame(PeerMessage message, const wire::PeerProof& peer,
                            std::uint64_t sequence) {
  v1::ReplicateRequest request;
  request.set_sequence(sequence);
  *request.mutable_move() = ToMessage(message, peer);
  return wire::MakeFrame({.envelope = request.SerializeAsString(),
                          .number = 0,
                          .small = {},
                          .fields = {{v1::MoveChunk::kRowsFieldNumber, std::move(message.rows)}}});
}

wire::PeerProof ProofOf(const v1::MoveMessage& message) {
  return {.nonce = message.peer().nonce(),
          .node = message.peer().node(),
          .token = message.peer().token()};
}

absl::StatusOr<PeerMessage> FromMessage(const v1::MoveMessage& message, Buffer rows) {
  PeerMessage out;
  EMBLA_ASSIGN_OR_RETURN(out.unit, FromMessage(message.unit()));
  out.from = NodeId{message.from_node()};
  const MoveId move{message.move()};
  if (out.from == NodeId{0} || move == MoveId{0}) {
    return absl::InvalidArgumentError("from_node and move must not be 0");
  }
  switch (message.payload_case()) {
    case v1::MoveMessage::kPull:
      out.body = Pull{.move = move,
                      .epoch = UnitEpoch{message.pull().epoch()},
                      .held = FromInts(message.pull().held()),
                      .credit = message.pull().credit(),
                      .resend = message.pull().resend()};
      return out;
    case v1::MoveMessage::kChunk:
      out.body = Chunk{.move = move,
                       .chunk = message.chunk().chunk(),
                       .base = Lsn{message.chunk().base()},
                       .version = Lsn{message.chunk().version()}};
      out.rows = std::move(rows);
      out.is_urgent = message.chunk().urgent();
      return out;
    case v1::MoveMessage::kFinal: {
      FinalCut cut{.move = move,
                   .lsn = Lsn{message.final().lsn()},
                   .needed = FromInts(message.final().needed()),
                   .chunks_follow = message.final().chunks_follow()};
      EMBLA_ASSIGN_OR_RETURN(cut.windows, FromMessage(message.final().windows()));
      out.body = std::move(cut);
      return out;
    }
    case v1::MoveMessage::kHolds:
      out.body = Holds{.move = move, .lsn = Lsn{message.holds().lsn()}};
      return out;
    case v1::MoveMessage::kRelease: {
      const UnitEpoch epoch{message.release().epoch()};
      if (epoch == UnitEpoch{0}) return absl::InvalidArgumentError("a release to epoch 0");
      out.body = Release{.move = move, .epoch = epoch, .lsn = Lsn{message.release().lsn()}};
      return out;
    }
    case v1::MoveMessage::kCovered:
      out.body = Covered{.move = move};
      return out;
    default:
      return absl::InvalidArgumentError(
          "the payload is missing, or of a kind that this build does not know");
  }
}

absl::StatusOr<MoveCall> DecodeMove(grpc::ByteBuffer& bytes, BufferPool& pool,
                                    const wire::RequestLimits& limits) {
  v1::MoveMessage message;
  v1::MoveChunk chunk;
  Buffer rows;
  const wire::NestedMessage payloads[] = {
      {v1::MoveMessage::kChunkFieldNumber, kChunkLarge, &chunk}};
  const wire::PlaceField place = [&](int, std::size_t size) -> absl::StatusOr<std::byte*> {
    rows = pool.Take(size);
    return rows.data();
  };
  const wire::DecodeLimits decode{.large_bytes_max = limits.request_bytes_max};
  EMBLA_ASSIGN_OR_RETURN(const int payload,
                         wire::DecodeNested(bytes, payloads, place, decode, message));
  if (payload != 0 && message.payload_case() != v1::MoveMessage::PAYLOAD_NOT_SET) {
    return absl::InvalidArgumentError("the message has two members of a oneof");
  }
  if (payload != 0) *message.mutable_chunk() = std::move(chunk);
  MoveCall call;
  EMBLA_ASSIGN_OR_RETURN(call.message, FromMessage(message, std::move(rows)));
  call.peer = ProofOf(message);
  return call;
}
}  // namespace embla
