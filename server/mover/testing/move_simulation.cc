#include "server/mover/testing/move_simulation.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/migration/unit_record.h"

namespace embla::testing {
namespace {

Buffer CopyOf(const Buffer& buffer) {
  Buffer copy = Buffer::Allocate(buffer.size());
  if (!buffer.empty()) std::memcpy(copy.data(), buffer.data(), buffer.size());
  return copy;
}

std::string AddressOf(NodeId node) { return absl::StrCat(ToInt(node)); }

// Records become durable one after another, when the simulation says so.
class SlowLog final : public MoveLog {
 public:
  absl::Status AppendAdopted(const UnitId&, UnitEpoch) override { return absl::OkStatus(); }
  absl::Status AppendReserved(const UnitId&, std::uint32_t, const RowRun&) override {
    return absl::OkStatus();
  }
  absl::Status AppendChunk(const UnitId&, const Chunk&, std::span<const std::byte>) override {
    return absl::OkStatus();
  }
  void AppendControl(const UnitId&, const LogRecord&, Done done) override {
    waiting_.push_back(std::move(done));
  }
  bool FinishOne(const absl::Status& status) {
    if (waiting_.empty()) return false;
    const Done done = std::move(waiting_.front());
    waiting_.pop_front();
    done(status);
    return true;
  }
  bool is_idle() const { return waiting_.empty(); }

 private:
  std::deque<Done> waiting_;
};

class Transport final : public MoveTransport {
 public:
  using Deliver = std::function<void(const std::string& address, PeerMessage message, Done done)>;
  explicit Transport(Deliver deliver) : deliver_(std::move(deliver)) {}
  void Send(const std::string& address, PeerMessage message, Done done) override {
    deliver_(address, std::move(message), std::move(done));
  }

 private:
  const Deliver deliver_;
};

class Control final : public MoveControl {
 public:
  using Deliver = std::function<void(const UnitReport& report)>;
  explicit Control(Deliver deliver) : deliver_(std::move(deliver)) {}
  void Report(std::vector<UnitReport> reports) override {
    for (const UnitReport& report : reports) deliver_(report);
  }

 private:
  const Deliver deliver_;
};

}  // namespace

struct MoveSimulation::Node {
  Node(MoveSimulation& simulation, NodeId id)
      : id(id),
        host(simulation.options_.chunks, simulation.options_.seed + ToInt(id)),
        transport([&simulation](const std::string& address, PeerMessage message,
                                MoveTransport::Done done) {
          Node& to = *simulation.nodes_[static_cast<std::size_t>(std::stoi(address)) - 1];
          auto shared = std::make_shared<PeerMessage>(std::move(message));
          const bool is_lost = simulation.Happens(simulation.options_.lose);
          simulation.network_.push_back([done, is_lost] {
            done(is_lost ? absl::UnavailableError("lost") : absl::OkStatus());
          });
          if (is_lost) return;
          simulation.Post([&to, shared] {
            PeerMessage copy{.unit = shared->unit, .from = shared->from, .body = shared->body};
            copy.rows = CopyOf(shared->rows);
            (void)to.mover.OnMessage(std::move(copy));
          });
        }),
        control([&simulation, id](const UnitReport& report) {
          simulation.Post([&simulation, id, report] { simulation.OnReport(id, report); });
        }),
        queue(std::make_shared<TaskQueue>()),
        mover(OptionsFor(), {host, transport, control, log, simulation.clock_}, nullptr, queue) {}

  static MoverOptions OptionsFor() {
    MoverOptions options;
    options.credit_chunks = 2;
    options.behind_max = 1;
    options.freeze_deadline = absl::Seconds(10);
    options.sender = {.reads_max = 1, .flying_per_target_max = 2};
    return options;
  }

  const NodeId id;
  FakeUnitHost host;
  SlowLog log;
  Transport transport;
  Control control;
  const std::shared_ptr<TaskQueue> queue;
  Mover mover;
};

struct MoveSimulation::UnitRow {
  UnitId id;
  UnitRecord stored;
  CoordinatedUnit coordinated;
};

struct MoveSimulation::Trainer {
  SessionId session{};
  std::uint64_t next_seq = 1;
  std::map<std::uint64_t, Pending> unfinished;  // By seq.
  std::map<std::uint64_t, Pending> finished;
};

MoveSimulation::MoveSimulation(const SimulationOptions& options)
    : options_(options), random_(options.seed) {
  for (std::uint32_t n = 1; n <= options.nodes; ++n) {
    nodes_.push_back(std::make_unique<Node>(*this, NodeId{n}));
    nodes_.back()->host.faults = options.host;
  }
  for (std::uint32_t u = 0; u < options.units; ++u) {
    auto row = std::make_unique<UnitRow>();
    row->id = {.table = TableId{1}, .row_granule = u, .column_granule = 0};
    const auto owner = static_cast<std::uint32_t>(Random(options.nodes));
    row->stored.owner = NodeId{owner + 1};
    nodes_[owner]->host.Place(row->id);
    units_.push_back(std::move(row));
  }
  for (std::uint32_t s = 1; s <= options.sessions; ++s) {
    trainers_.push_back(std::make_unique<Trainer>());
    trainers_.back()->session = SessionId{s};
  }
}

MoveSimulation::~MoveSimulation() {
  for (const auto& node : nodes_) node->queue->Close();
}

void MoveSimulation::Run(int steps) {
  for (int i = 0; i < steps && violation_.empty(); ++i) TakeStep();
}

void MoveSimulation::TakeStep() {
  Node& node = *nodes_[Random(nodes_.size())];
  Trainer& trainer = *trainers_[Random(trainers_.size())];
  const std::uint64_t what = Random(100);  // Weights that let everything be done in the end.
  if (what < 30) {
    node.queue->RunOne();
  } else if (what < 55) {
    node.host.RunOne();
  } else if (what < 63) {
    node.log.FinishOne(Happens(options_.log_full) ? absl::ResourceExhaustedError("full")
                                                  : absl::OkStatus());
  } else if (what < 90) {
    DeliverOne();
  } else if (what < 92) {
    clock_.Advance(absl::Milliseconds(1 + Random(50)));
    node.mover.Tick();
  } else if (what < 94) {
    TickCoordinator();
  } else if (what < 95) {
    if (has_faults_) StartOrCancelMove();
  } else if (what < 96) {
    if (has_faults_) BeginUpdate(trainer);
  } else if (what < 98 && !trainer.unfinished.empty()) {
    auto update = trainer.unfinished.begin();
    std::advance(update, Random(trainer.unfinished.size()));
    SendUpdate(trainer, UpdateSeq{update->first});
  }
  CheckOneWriter();
}

void MoveSimulation::DeliverOne() {
  if (network_.empty()) return;
  std::swap(network_[Random(network_.size())], network_.back());
  const std::function<void()> message = std::move(network_.back());
  network_.pop_back();
  message();
}

bool MoveSimulation::ComeToRest() {
  has_faults_ = false;
  for (const auto& node : nodes_) node->host.faults = {};
  constexpr int kStepsMax = 400'000;
  for (int i = 0; i < kStepsMax && violation_.empty(); ++i) {
    TakeStep();
    if (IsAtRest()) return true;
  }
  return false;
}

bool MoveSimulation::IsAtRest() const {
  for (const auto& trainer : trainers_) {
    if (!trainer->unfinished.empty()) return false;
  }
  for (const auto& row : units_) {
    const MovePhase phase = row->stored.phase;
    if (phase == MovePhase::kOpen || phase == MovePhase::kCommitted) return false;
  }
  for (const auto& node : nodes_) {
    if (node->queue->size() != 0 || !node->host.is_idle() || !node->log.is_idle()) return false;
    for (const auto& row : units_) {
      if (!node->host.Knows(row->id)) continue;
      const bool is_owner = row->stored.owner == node->id;
      if (node->host.IsHere(row->id) != is_owner || node->host.HasStaged(row->id)) return false;
    }
  }
  return network_.empty();
}

std::string MoveSimulation::Describe() const {
  std::string text = absl::StrCat("messages=", network_.size());
  for (const auto& trainer : trainers_) {
    absl::StrAppend(&text, " unfinished=", trainer->unfinished.size());
  }
  for (const auto& row : units_) {
    absl::StrAppend(&text, "\nunit ", row->id.row_granule, " ", ToString(row->stored));
    for (const auto& node : nodes_) {
      if (!node->host.Knows(row->id)) continue;
      absl::StrAppend(&text, " node ", ToInt(node->id), node->host.IsHere(row->id) ? " here" : "",
                      node->host.HasStaged(row->id) ? " staged" : "",
                      node->host.TakesUpdates(row->id) ? " writes" : "");
    }
  }
  for (const auto& node : nodes_) {
    absl::StrAppend(&text, "\nnode ", ToInt(node->id), " tasks=", node->queue->size(),
                    node->host.is_idle() ? "" : " device busy",
                    node->log.is_idle() ? "" : " log busy");
  }
  return text;
}

void MoveSimulation::StartOrCancelMove() {
  UnitRow& row = *units_[Random(units_.size())];
  if (row.stored.phase == MovePhase::kOpen) {
    if (Random(100) == 0) Coordinate(row, CancelMove{});
    return;
  }
  Coordinate(row, StartMove{NodeId{static_cast<std::uint32_t>(1 + Random(nodes_.size()))}});
}

void MoveSimulation::TickCoordinator() {
  Coordinate(*units_[Random(units_.size())], CoordinatorTick{});
}

void MoveSimulation::Coordinate(UnitRow& row, const CoordinatorEvent& event) {
  CoordinatorStep step = StepCoordinator(row.coordinated, event);
  row.coordinated = step.state;
  for (const CoordinatorAction& action : step.actions) {
    if (const auto* const put = std::get_if<PutToStore>(&action)) {
      if (row.stored == put->expected) {
        commits_ += put->desired.phase == MovePhase::kCommitted ? 1 : 0;
        aborts_ += put->desired.phase == MovePhase::kAborted ? 1 : 0;
        row.stored = put->desired;
      }
      Coordinate(row, StoredRecord{row.stored});
    } else if (std::holds_alternative<ReadFromStore>(action)) {
      Coordinate(row, StoredRecord{row.stored});
    } else if (const auto* const tell = std::get_if<TellRecord>(&action)) {
      Tell(tell->to, row, tell->record, /*freeze=*/false);
    } else if (const auto* const freeze = std::get_if<TellFreeze>(&action)) {
      Tell(freeze->to, row, freeze->record, /*freeze=*/true);
    }
  }
}

void MoveSimulation::Tell(NodeId to, const UnitRow& row, const UnitRecord& record, bool freeze) {
  UnitOrder order{.unit = row.id, .record = record, .freeze = freeze};
  order.source_address = AddressOf(record.source);
  order.target_address = AddressOf(record.target);
  order.bytes_per_second = options_.bytes_per_second;
  Post([this, to, order] { nodes_[ToInt(to) - 1]->mover.OnOrders(to, {order}); });
}

void MoveSimulation::OnReport(NodeId from, const UnitReport& report) {
  UnitRow& row = *units_[report.unit.row_granule];
  switch (report.kind) {
    case UnitReport::Kind::kCaughtUp:
      return Coordinate(row, ReportEvent{{ReportKind::kCaughtUp, report.move}});
    case UnitReport::Kind::kSealed:
      return Coordinate(row, ReportEvent{{ReportKind::kSealed, report.move}});
    case UnitReport::Kind::kRefused:
    case UnitReport::Kind::kAbort:
      return Coordinate(row, ReportEvent{{ReportKind::kRefused, report.move}});
    case UnitReport::Kind::kCovered:
      return Coordinate(row, ReportEvent{{ReportKind::kCovered, report.move}});
    case UnitReport::Kind::kReadRecord:
      return Tell(from, row, row.stored, /*freeze=*/false);
    case UnitReport::Kind::kProgress:
      return;
  }
}

void MoveSimulation::BeginUpdate(Trainer& trainer) {
  if (trainer.unfinished.size() >= options_.updates_in_flight_max) return;
  Pending update{.unit = units_[Random(units_.size())]->id, .chunks = {}};
  for (std::uint32_t c = 0; c < options_.chunks; ++c) {
    if (Random(options_.chunks) == 0) update.chunks.push_back(c);
  }
  const std::uint64_t seq = trainer.next_seq++;
  trainer.unfinished[seq] = std::move(update);
  SendUpdate(trainer, UpdateSeq{seq});
}

void MoveSimulation::SendUpdate(Trainer& trainer, UpdateSeq seq) {
  const Pending& update = trainer.unfinished.at(ToInt(seq));
  const UnitUpdate part{.session = trainer.session,
                        .seq = seq,
                        .first_incomplete = UpdateSeq{trainer.unfinished.begin()->first},
                        .epoch = {},
                        .chunks = update.chunks};
  const NodeId owner = units_[update.unit.row_granule]->stored.owner;
  const std::size_t to = Random(4) == 0 ? Random(nodes_.size()) : ToInt(owner) - 1;
  Post([this, &trainer, seq, part, unit = update.unit, to] {
    nodes_[to]->host.Update(unit, part, [this, &trainer, seq](PartStatus status) {
      if (status != PartStatus::kApplied && status != PartStatus::kDuplicate) {
        ++refused_;
        return;
      }
      Post([this, &trainer, seq] {
        const auto found = trainer.unfinished.find(ToInt(seq));
        if (found == trainer.unfinished.end()) return;
        ++acked_;
        trainer.finished.insert(trainer.unfinished.extract(found));
      });
    });
  });
}

void MoveSimulation::Post(std::function<void()> message) {
  if (Happens(options_.lose)) return;
  if (Happens(options_.repeat)) network_.push_back(message);
  network_.push_back(std::move(message));
}

void MoveSimulation::CheckOneWriter() {
  for (const auto& row : units_) {
    std::string writers;
    int count = 0;
    for (const auto& node : nodes_) {
      if (!node->host.Knows(row->id) || !node->host.TakesUpdates(row->id)) continue;
      absl::StrAppend(&writers, " ", ToInt(node->id));
      ++count;
    }
    if (count > 1) {
      violation_ = absl::StrCat("unit ", row->id.row_granule, " has several writers:", writers,
                                ", the store says ", ToString(row->stored));
    }
  }
}

void MoveSimulation::CheckAtRest() {
  std::vector<std::vector<ChunkRows>> want(units_.size(), std::vector<ChunkRows>(options_.chunks));
  for (const auto& trainer : trainers_) {
    for (const auto& [seq, update] : trainer->finished) {
      for (const std::uint32_t chunk : update.chunks) {
        want[update.unit.row_granule][chunk][{trainer->session, UpdateSeq{seq}}] = 1;
      }
    }
  }
  for (const auto& row : units_) {
    const Node& owner = *nodes_[ToInt(row->stored.owner) - 1];
    if (owner.host.RowsOf(row->id) == want[row->id.row_granule]) continue;
    violation_ = absl::StrCat("unit ", row->id.row_granule,
                              ": the rows are not those of every update once, the store says ",
                              ToString(row->stored));
  }
}

}  // namespace embla::testing
