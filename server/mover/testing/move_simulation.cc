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

// Units begin on device 0.
std::uint32_t TargetDeviceOf(MoveId move) { return ToInt(move) % 2; }

MoverOptions OptionsOfMover() {
  MoverOptions options;
  options.credit_chunks = 2;
  options.behind_max = 1;
  options.rounds_max = 3;
  options.freeze_deadline = absl::Seconds(10);
  options.fold_interval = absl::ZeroDuration();
  options.fold_pause = absl::Milliseconds(200);
  options.sender = {.reads_max = 1, .flying_per_target_max = 2};
  return options;
}

}  // namespace

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
  std::map<std::uint64_t, Pending> abandoned;  // Applied or not, nobody asks any more.
};

MoveSimulation::MoveSimulation(const SimulationOptions& options)
    : options_(options), random_(options.seed) {
  for (std::uint32_t n = 1; n <= options.nodes; ++n) AddNode(NodeId{n});
  for (std::uint32_t u = 0; u < options.units; ++u) {
    auto row = std::make_unique<UnitRow>();
    row->id = {.table = TableId{1}, .row_granule = u, .column_granule = 0};
    const auto owner = static_cast<std::uint32_t>(Random(options.nodes));
    row->stored.owner = NodeId{owner + 1};
    nodes_[owner]->Place(row->id);
    units_.push_back(std::move(row));
  }
  for (std::uint32_t s = 1; s <= options.sessions; ++s) {
    trainers_.push_back(std::make_unique<Trainer>());
    trainers_.back()->session = SessionId{s};
  }
  for (const auto& node : nodes_) node->Start(options.host);
}

MoveSimulation::~MoveSimulation() = default;

void MoveSimulation::AddNode(NodeId id) {
  SimulatedNodeOptions node;
  node.id = id;
  node.chunks = options_.chunks;
  for (std::uint32_t n = 1; n <= options_.nodes; ++n) {
    node.addresses[NodeId{n}] = absl::StrCat(n);
  }
  node.seed = options_.seed + ToInt(id);
  node.mover = OptionsOfMover();
  node.clock = &clock_;
  node.send = [this](const std::string& address, PeerMessage message, MoveTransport::Done done) {
    Carry(NodeOf(address), std::move(message), std::move(done));
  };
  node.report = [this, id](const UnitReport& report) {
    Post([this, id, report] { OnReport(id, report); });
  };
  nodes_.push_back(std::make_unique<SimulatedNode>(std::move(node)));
  nodes_.back()->log().is_full = [this] { return Happens(options_.log_full); };
}

void MoveSimulation::Carry(SimulatedNode& to, PeerMessage message, MoveTransport::Done done) {
  auto shared = std::make_shared<PeerMessage>(std::move(message));
  const bool is_lost = Happens(options_.lose) || !to.is_up();
  network_.push_back(
      [done, is_lost] { done(is_lost ? absl::UnavailableError("lost") : absl::OkStatus()); });
  if (is_lost) return;
  Post([&to, shared] {
    if (!to.is_up()) return;
    PeerMessage copy{.unit = shared->unit, .from = shared->from, .body = shared->body};
    copy.rows = CopyOf(shared->rows);
    (void)to.mover().OnMessage(std::move(copy));
  });
}

void MoveSimulation::Run(int steps) {
  for (int i = 0; i < steps && violation_.empty(); ++i) TakeStep();
}

void MoveSimulation::TakeStep() {
  if (Happens(options_.kill)) Kill(*nodes_[Random(nodes_.size())]);
  SimulatedNode& node = *nodes_[Random(nodes_.size())];
  Trainer& trainer = *trainers_[Random(trainers_.size())];
  const std::uint64_t what = Random(100);  // Weights that let everything be done in the end.
  if (what < 63) {
    StepNode(node, what);
  } else if (what < 90) {
    DeliverOne();
  } else if (what < 92) {
    clock_.Advance(absl::Milliseconds(1 + Random(50)));
    if (node.is_up()) node.mover().Tick();
  } else if (what < 94) {
    TickCoordinator();
  } else if (what < 95) {
    if (has_faults_) StartOrCancelMove();
  } else if (what < 96) {
    if (has_faults_) BeginUpdate(trainer);
  } else if (what < 98 && !trainer.unfinished.empty()) {
    auto update = trainer.unfinished.begin();
    std::advance(update, Random(trainer.unfinished.size()));
    if (Happens(options_.abandon)) {
      trainer.abandoned.insert(trainer.unfinished.extract(update));
    } else {
      SendUpdate(trainer, UpdateSeq{update->first});
    }
  }
  CheckOneWriter();
}

void MoveSimulation::StepNode(SimulatedNode& node, std::uint64_t what) {
  if (!node.is_up()) {
    if (Random(20) == 0) node.Start(has_faults_ ? options_.host : HostFaults{});
  } else if (options_.image > 0 && Happens(options_.image)) {
    node.RequestImage();
  } else if (what < 30) {
    node.queue().RunOne();
    if (Random(50) == 0) node.host().asks_apart = Random(4) == 0;
  } else if (what < 55) {
    node.host().RunOne();
  } else if (!has_faults_ || Happens(options_.sync)) {
    node.log().Sync(1 + Random(4));
  }
}

void MoveSimulation::Kill(SimulatedNode& node) {
  if (!node.is_up()) return;
  ++deaths_;
  node.Kill(Random(node.log().unsynced() + 1));
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
  for (const auto& node : nodes_) {
    if (node->is_up()) node->host().faults = {};
  }
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
    if (row->stored.phase == MovePhase::kOpen) return false;
  }
  for (const auto& node : nodes_) {
    if (!node->is_up() || !node->is_idle()) return false;
    FakeUnitHost& host = node->host();
    for (const auto& row : units_) {
      if (!host.Knows(row->id)) continue;
      const bool is_owner = row->stored.owner == node->id();
      if (host.IsHere(row->id) != is_owner || host.HasStaged(row->id)) return false;
    }
  }
  return network_.empty();
}

std::uint64_t MoveSimulation::folds() const {
  std::uint64_t folds = 0;
  for (const auto& node : nodes_) folds += node->is_up() ? node->host().joined : 0;
  return folds;
}

std::uint64_t MoveSimulation::images() const {
  std::uint64_t images = 0;
  for (const auto& node : nodes_) images += node->images();
  return images;
}

std::uint64_t MoveSimulation::starts_amid_moves() const {
  std::uint64_t starts = 0;
  for (const auto& node : nodes_) starts += node->starts_amid_moves();
  return starts;
}

std::string MoveSimulation::Describe() const {
  std::string text = absl::StrCat("messages=", network_.size());
  for (const auto& trainer : trainers_) {
    absl::StrAppend(&text, " unfinished=", trainer->unfinished.size());
  }
  for (const auto& row : units_) {
    absl::StrAppend(&text, "\nunit ", row->id.row_granule, " ", ToString(row->stored));
    for (const auto& node : nodes_) {
      if (!node->is_up() || !node->host().Knows(row->id)) continue;
      FakeUnitHost& host = node->host();
      absl::StrAppend(&text, " node ", ToInt(node->id()), host.IsHere(row->id) ? " here" : "",
                      host.HasStaged(row->id) ? " staged" : "",
                      host.TakesUpdates(row->id) ? " writes" : "");
    }
  }
  for (const auto& node : nodes_) {
    absl::StrAppend(&text, "\nnode ", ToInt(node->id()),
                    !node->is_up()    ? " is dead"
                    : node->is_idle() ? ""
                                      : " is busy");
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
  UnitRow& row = *units_[Random(units_.size())];
  if (Happens(options_.kill_coordinator)) row.coordinated = {};
  Coordinate(row, CoordinatorTick{});
}

void MoveSimulation::Coordinate(UnitRow& row, const CoordinatorEvent& event) {
  CoordinatorStep step = StepCoordinator(row.coordinated, event);
  row.coordinated = step.state;
  for (const CoordinatorAction& action : step.actions) {
    if (const auto* const put = std::get_if<PutToStore>(&action)) {
      if (row.stored == put->expected) {
        const bool commits = put->desired.phase == MovePhase::kNone;
        commits_ += commits ? 1 : 0;
        commits_within_nodes_ += commits && IsWithinNode(put->desired) ? 1 : 0;
        aborts_ += put->desired.phase == MovePhase::kAborted ? 1 : 0;
        row.stored = put->desired;
      }
      Coordinate(row, StoredRecord{row.stored});
    } else if (std::holds_alternative<ReadFromStore>(action)) {
      Coordinate(row, StoredRecord{row.stored});
    } else if (const auto* const tell = std::get_if<TellRecord>(&action)) {
      Tell(tell->to, row, tell->record, /*cancel=*/nullptr);
    } else if (const auto* const cancel = std::get_if<TellCancel>(&action)) {
      Tell(cancel->to, row, cancel->record, cancel);
    }
  }
}

void MoveSimulation::Tell(NodeId to, const UnitRow& row, const UnitRecord& record,
                          const TellCancel* cancel) {
  UnitOrder order{.unit = row.id, .record = record, .cancels = cancel != nullptr};
  order.source_is_lost = cancel != nullptr && cancel->source_is_lost;
  order.target_device = TargetDeviceOf(record.move);
  order.bytes_per_second = options_.bytes_per_second;
  Post([node = nodes_[ToInt(to) - 1].get(), order] {
    if (node->is_up()) node->mover().OnOrders(node->id(), {order});
  });
}

void MoveSimulation::OnReport(NodeId from, const UnitReport& report) {
  UnitRow& row = *units_[report.unit.row_granule];
  switch (report.kind) {
    case UnitReport::Kind::kHandedOver:
      return Coordinate(row, ReportEvent{{ReportKind::kHandedOver, report.move}});
    case UnitReport::Kind::kReady:
      return Coordinate(row, ReportEvent{{ReportKind::kReady, report.move}});
    case UnitReport::Kind::kRefused:
      return Coordinate(row, ReportEvent{{ReportKind::kRefused, report.move}});
    case UnitReport::Kind::kAborted:
      return Coordinate(row, ReportEvent{{ReportKind::kAborted, report.move}});
    case UnitReport::Kind::kReadRecord:
      return Tell(from, row, row.stored, /*cancel=*/nullptr);
    case UnitReport::Kind::kProgress:
    case UnitReport::Kind::kSettled:
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
  SimulatedNode& node = *nodes_[to];
  const auto answered = [this, &node, &trainer, seq](PartStatus status) {
    if (status != PartStatus::kApplied && status != PartStatus::kDuplicate) {
      ++refused_;
      return;
    }
    // A duplicate waits too: the log may not have the first one yet.
    node.log().WhenSynced([this, &trainer, seq] { Acknowledge(trainer, seq); });
  };
  Post([&node, part, unit = update.unit, answered] {
    if (node.is_up()) node.host().Update(unit, part, answered);
  });
}

void MoveSimulation::Acknowledge(Trainer& trainer, UpdateSeq seq) {
  Post([this, &trainer, seq] {
    const auto found = trainer.unfinished.find(ToInt(seq));
    if (found == trainer.unfinished.end()) return;
    ++acked_;
    trainer.finished.insert(trainer.unfinished.extract(found));
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
      if (!node->is_up() || !node->host().Knows(row->id)) continue;
      if (!node->host().TakesUpdates(row->id)) continue;
      absl::StrAppend(&writers, " ", ToInt(node->id()));
      ++count;
    }
    if (count > 1) {
      violation_ = absl::StrCat("unit ", row->id.row_granule, " has several writers:", writers,
                                ", the store says ", ToString(row->stored));
    }
  }
}

void MoveSimulation::CheckAtRest() {
  std::vector<std::vector<ChunkRows>> rows;
  for (const auto& row : units_) {
    rows.push_back(nodes_[ToInt(row->stored.owner) - 1]->host().RowsOf(row->id));
  }
  // Takes an update out of the rows, chunk by chunk; what is left is too much.
  const auto take = [&rows](const Trainer& trainer, std::uint64_t seq, const Pending& update) {
    std::size_t times = 0;
    for (const std::uint32_t chunk : update.chunks) {
      ChunkRows& of_chunk = rows[update.unit.row_granule][chunk];
      const auto found = of_chunk.find({trainer.session, UpdateSeq{seq}});
      if (found == of_chunk.end()) continue;
      ++times;
      if (--found->second == 0) of_chunk.erase(found);
    }
    return times;
  };
  bool is_whole = true;
  for (const auto& trainer : trainers_) {
    for (const auto& [seq, update] : trainer->finished) {
      is_whole = is_whole && take(*trainer, seq, update) == update.chunks.size();
    }
    for (const auto& [seq, update] : trainer->abandoned) {
      const std::size_t times = take(*trainer, seq, update);
      is_whole = is_whole && (times == 0 || times == update.chunks.size());
    }
  }
  for (const auto& row : units_) {
    const std::uint32_t device = nodes_[ToInt(row->stored.owner) - 1]->host().DeviceOf(row->id);
    if (device == TargetDeviceOf(row->stored.committed)) continue;
    violation_ = absl::StrCat("unit ", row->id.row_granule, " is on device ", device,
                              ", the store says ", ToString(row->stored));
  }
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const bool is_left = std::any_of(rows[u].begin(), rows[u].end(),
                                     [](const ChunkRows& chunk) { return !chunk.empty(); });
    if (is_whole && !is_left) continue;
    violation_ = absl::StrCat("unit ", u,
                              ": the rows are not those of every update once, the store"
                              " says ",
                              ToString(units_[u]->stored));
  }
}

}  // namespace embla::testing
