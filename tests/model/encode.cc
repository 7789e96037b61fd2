#include "tests/model/encode.h"

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace embla::model {
namespace {

// Numbers of a small world fit one byte; larger ones are escaped.
class Encoder {
 public:
  Encoder() { out_.reserve(kUsualBytesMax); }

  void Put(std::uint64_t value) {
    if (value < 0xff) {
      out_.push_back(static_cast<char>(value));
      return;
    }
    out_.push_back('\xff');
    for (int i = 0; i < 8; ++i) out_.push_back(static_cast<char>(value >> (8 * i)));
  }
  template <typename Id>
  requires std::is_enum_v<Id>
  void Put(Id id) { Put(static_cast<std::uint64_t>(id)); }

  void Put(const UnitRecord& r) {
    Put(r.owner), Put(r.epoch), Put(r.committed), Put(r.move), Put(r.phase), Put(r.source);
    Put(r.target);
  }
  void Put(const UnitWindows& windows) {
    Put(std::uint64_t{windows.sessions().size()});
    for (const SessionWindow& w : windows.sessions()) Put(w.session), Put(w.floor), Put(w.words[0]);
  }
  void Put(const ChunkVersions& versions) {
    for (const Lsn version : versions) Put(version);
  }
  template <typename Value, std::size_t size>
  void Put(const std::array<Value, size>& rows) {
    for (const Value value : rows) Put(std::uint64_t{static_cast<std::uint8_t>(value + 1)});
  }
  template <std::size_t size>
  void Put(const std::array<Lsn, size>& lsns) {
    for (const Lsn lsn : lsns) Put(lsn);
  }
  void Put(const FinalCut& m) {
    Put(m.move), Put(m.lsn), Put(m.needed), Put(m.windows), Put(std::uint64_t{m.chunks_follow});
  }
  void Put(const HeldCut& cut) { Put(cut.lsn), Put(cut.windows); }
  void Put(const ImportState& i) { Put(i.move), Put(i.source), Put(i.source_epoch); }
  void Put(const ReleasedState& r) { Put(r.move), Put(r.to), Put(r.epoch); }
  template <typename Value>
  void Put(const std::optional<Value>& value) {
    Put(std::uint64_t{value.has_value()});
    if (value.has_value()) Put(*value);
  }
  void Put(const UnitDurable& d) {
    Put(d.epoch), Put(d.min_move), Put(d.relocated), Put(d.lsn), Put(d.windows), Put(d.touched);
    Put(d.import), Put(d.released), Put(d.left);
  }
  void Put(const UnitState& s) {
    Put(s.durable), Put(s.written), Put(s.freezing), Put(s.frozen), Put(s.sent), Put(s.sent_move);
    Put(std::uint64_t{s.is_tired}), Put(std::uint64_t{s.is_releasing});
    Put(std::uint64_t{s.lacks_sent}), Put(std::uint64_t{s.sends}), Put(s.staged), Put(s.cut);
    Put(s.held), Put(s.reserving), Put(std::uint64_t{s.is_covered}), Put(s.seen);
  }
  void Put(const DirectoryCopy& copy) { Put(copy.logged), Put(copy.rows), Put(copy.row_lsn); }
  // The log's content differs from the state's durable part only where a guard is gone.
  void Put(const NodeWorld& n) {
    Put(n.state), Put(n.rows), Put(n.row_lsn), Put(n.staged), Put(std::uint64_t{n.admitted});
    Put(n.changed_for);
    Put(std::uint64_t{n.deciding.size()});
    for (const auto& [lsn, update] : n.deciding) Put(std::uint64_t(update));
    const bool differs = n.logged != n.state.durable;
    Put(std::uint64_t{differs});
    if (differs) Put(n.logged);
    Put(std::uint64_t{n.unsynced}), Put(std::uint64_t{n.waiting});
    Put(std::uint64_t{n.is_tail_open});
    if (n.is_tail_open) Put(n.synced), Put(n.synced_rows), Put(n.synced_row_lsn);
    Put(n.copy), Put(std::uint64_t{n.is_held}), Put(n.lost_move), Put(n.first_heard);
  }
  void PutWithoutMessages(const UnitWorld& u) {
    Put(u.record), Put(u.within);
    for (const NodeWorld& node : u.nodes) Put(node);
    for (const CoordinatedUnit& c : u.coordinators) Put(c.record);
    Put(std::uint64_t{u.acked}), Put(std::uint64_t{u.broken.size()});
    Put(static_cast<std::uint64_t>(u.tail_losses));
    Put(static_cast<std::uint64_t>(u.copies)), Put(static_cast<std::uint64_t>(u.restores));
  }
  void PutMessages(const UnitWorld& u) {
    Put(std::uint64_t{u.messages.size()});
    for (const std::uint16_t id : u.messages) Put(std::uint64_t{id});
  }
  void Put(const RecordFact& m) { Put(m.record); }
  void Put(const CancelFact& m) { Put(m.record), Put(std::uint64_t{m.source_is_lost}); }
  void Put(const HoldsFact& m) { Put(m.from), Put(m.holds.move), Put(m.holds.lsn); }
  void Put(const ReleaseFact& m) {
    Put(m.from), Put(m.release.move), Put(m.release.epoch), Put(m.release.lsn);
  }
  void Put(const Covered& m) { Put(m.move); }
  void Put(const PullFact& m) {
    Put(m.from), Put(m.pull.move), Put(m.pull.epoch), Put(m.pull.held);
    Put(std::uint64_t{m.pull.credit}), Put(std::uint64_t{m.pull.resend});
  }
  void Put(const ChunkFact& m) {
    Put(m.chunk.move), Put(std::uint64_t{m.chunk.chunk}), Put(m.chunk.base), Put(m.chunk.version);
    Put(m.rows);
  }
  void Put(const ReportFact& m) { Put(m.from), Put(m.report.kind), Put(m.report.move); }
  void Put(const PutFact& m) { Put(m.expected), Put(m.desired); }

  std::string Take() && { return std::move(out_); }

 private:
  static constexpr std::size_t kUsualBytesMax = 1024;

  std::string out_;
};

std::string Versions(const ChunkVersions& versions) {
  return absl::StrCat(
      "[",
      absl::StrJoin(versions, " ", [](std::string* out, Lsn v) { absl::StrAppend(out, ToInt(v)); }),
      "]");
}

std::string Words(const RecordFact& m) { return absl::StrCat("record ", ToString(m.record)); }
std::string Words(const CancelFact& m) {
  return absl::StrCat("cancel of move ", ToInt(m.record.move),
                      m.source_is_lost ? ", whose source is lost" : "");
}
std::string Words(const HoldsFact& m) {
  return absl::StrCat("holds the cut at lsn ", ToInt(m.holds.lsn), " for move ",
                      ToInt(m.holds.move));
}
std::string Words(const ReleaseFact& m) {
  return absl::StrCat("release in move ", ToInt(m.release.move), " to epoch ",
                      ToInt(m.release.epoch), " at lsn ", ToInt(m.release.lsn));
}
std::string Words(const Covered& m) { return absl::StrCat("covered in move ", ToInt(m.move)); }
std::string Words(const PullFact& m) {
  return absl::StrCat("pull for move ", ToInt(m.pull.move), " holding ", Versions(m.pull.held),
                      m.pull.resend ? ", send again" : "");
}
std::string Words(const ChunkFact& m) {
  std::string rows = absl::StrJoin(m.rows, " ", [](std::string* out, std::int8_t row) {
    absl::StrAppend(out, row == kAbsent ? "-" : absl::StrCat(static_cast<int>(row)));
  });
  return absl::StrCat("chunk ", m.chunk.chunk, " of move ", ToInt(m.chunk.move), ", base ",
                      ToInt(m.chunk.base), " version ", ToInt(m.chunk.version), " rows [", rows,
                      "]");
}
std::string Words(const FinalCut& m) {
  return absl::StrCat("final cut of move ", ToInt(m.move), " at lsn ", ToInt(m.lsn), " needing ",
                      Versions(m.needed), " with ", m.windows.sessions().size(), " windows",
                      m.chunks_follow ? ", chunks follow" : "");
}
std::string Words(const ReportFact& m) {
  constexpr const char* kNames[] = {"handed over", "ready", "refused", "aborted"};
  return absl::StrCat("report of ", ToInt(m.from), ": move ", ToInt(m.report.move), " ",
                      kNames[static_cast<int>(m.report.kind)]);
}
std::string Words(const PutFact& m) {
  return absl::StrCat("put ", ToString(m.expected), " => ", ToString(m.desired));
}

}  // namespace

std::string Encode(const World& world) {
  Encoder encoder;
  for (const UnitWorld& unit : world) {
    encoder.PutWithoutMessages(unit);
    encoder.PutMessages(unit);
  }
  return std::move(encoder).Take();
}

std::string EncodeWithoutMessages(const World& world) {
  Encoder encoder;
  for (const UnitWorld& unit : world) encoder.PutWithoutMessages(unit);
  return std::move(encoder).Take();
}

std::string Encode(const Message& message) {
  Encoder encoder;
  encoder.Put(std::uint64_t{message.body.index()});
  encoder.Put(static_cast<std::uint64_t>(message.to));
  std::visit([&encoder](const auto& body) { encoder.Put(body); }, message.body);
  return std::move(encoder).Take();
}

std::string ToString(const Message& message) {
  return std::visit([](const auto& body) { return Words(body); }, message.body);
}

std::vector<std::uint32_t> MessagesOf(const World& world) {
  std::vector<std::uint32_t> all;
  std::uint32_t unit = 0;
  for (const UnitWorld& each : world) {
    for (const std::uint16_t id : each.messages) all.push_back(unit << 16 | id);
    ++unit;
  }
  return all;
}

}  // namespace embla::model
