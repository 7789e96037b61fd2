#include "server/mover/testing/simulated_node.h"

#include <cstring>
#include <utility>
#include <variant>

#include "core/base/check.h"

namespace embla::testing {
namespace {

Buffer BufferOf(const std::vector<std::byte>& bytes) {
  Buffer buffer = Buffer::Allocate(bytes.size());
  if (!bytes.empty()) std::memcpy(buffer.data(), bytes.data(), bytes.size());
  return buffer;
}

// Calls to the host during replay take effect at once, and never fail.
class HostInReplay {
 public:
  explicit HostInReplay(FakeUnitHost& host) : host_(host) {}

  template <typename Method, typename... Args>
  void Do(Method method, Args&&... args) {
    (host_.*method)(std::forward<Args>(args)...,
                    [](const absl::Status& status) { EMBLA_CHECK(status.ok()); });
    while (host_.RunOne()) {
    }
  }

 private:
  FakeUnitHost& host_;
};

}  // namespace

struct SimulatedNode::Process {
  explicit Process(SimulatedNode& node);
  ~Process() { queue->Close(); }

  class Transport;
  class Control;

  FakeUnitHost host;
  const std::unique_ptr<MoveTransport> transport;
  const std::unique_ptr<MoveControl> control;
  const std::shared_ptr<TaskQueue> queue;
  Mover mover;
};

class SimulatedNode::Process::Transport final : public MoveTransport {
 public:
  explicit Transport(const SimulatedNodeOptions& options) : options_(options) {}
  void Send(const std::string& address, PeerMessage message, Done done) override {
    options_.send(address, std::move(message), std::move(done));
  }

 private:
  const SimulatedNodeOptions& options_;
};

class SimulatedNode::Process::Control final : public MoveControl {
 public:
  explicit Control(const SimulatedNodeOptions& options) : options_(options) {}
  void Report(std::vector<UnitReport> reports) override {
    for (const UnitReport& report : reports) options_.report(report);
  }

 private:
  const SimulatedNodeOptions& options_;
};

SimulatedNode::Process::Process(SimulatedNode& node)
    : host(node.options_.chunks, node.options_.seed),
      transport(std::make_unique<Transport>(node.options_)),
      control(std::make_unique<Control>(node.options_)),
      queue(std::make_shared<TaskQueue>()),
      mover(node.options_.mover, {host, *transport, *control, node.log_, *node.options_.clock},
            nullptr, queue) {}

SimulatedNode::SimulatedNode(SimulatedNodeOptions options) : options_(std::move(options)) {}

SimulatedNode::~SimulatedNode() = default;

Mover& SimulatedNode::mover() { return process_->mover; }

FakeUnitHost& SimulatedNode::host() { return process_->host; }

TaskQueue& SimulatedNode::queue() { return *process_->queue; }

void SimulatedNode::Start(const HostFaults& faults) {
  EMBLA_CHECK(process_ == nullptr);
  process_ = std::make_unique<Process>(*this);
  FakeUnitHost& host = process_->host;
  UnitReplay replay;
  const std::vector<TestLog::Record>& records = log_.Open();
  std::size_t next = 0;
  if (image_.has_value()) {
    next = image_->position;
    BeginWith(*image_, host, replay);
  } else {
    for (const UnitId& unit : placed_) host.Place(unit);
  }
  for (; next < records.size(); ++next) ReplayRecord(records[next], host, replay);
  host.faults = faults;
  host.log_update = [this](const UnitId& unit, const UnitUpdate& update, bool is_gated) {
    return log_.AppendUpdate({unit, update, is_gated});
  };
  log_process_ = replay.log_process();
  process_->mover.Restore({options_.id, log_process_, std::move(replay).Take()});
  while (host.RunOne()) {  // The gates: requests come behind them.
  }
  process_->mover.OnPlan(PlanVersion{1}, options_.addresses);
}

void SimulatedNode::Kill(std::size_t unsynced) {
  if (process_ == nullptr) return;
  TakeSyncedImage();
  next_image_.reset();
  process_.reset();
  log_.Die(unsynced);
}

void SimulatedNode::RequestImage() {
  TakeSyncedImage();
  process_->mover.WhenLogged([this](const Mover::LoggedUnits* units) {
    if (units == nullptr) return;
    next_image_ = Image{log_.records(), log_process_, (*units)(), process_->host.TakeImage()};
    ++images_;
  });
}

void SimulatedNode::TakeSyncedImage() {
  if (!next_image_.has_value() || log_.synced() < next_image_->position) return;
  image_ = std::exchange(next_image_, std::nullopt);
}

void SimulatedNode::BeginWith(const Image& image, FakeUnitHost& host, UnitReplay& replay) {
  host.Begin(image.tables);
  bool is_amid_moves = false;
  for (const RestoredUnit& unit : image.units) {
    is_amid_moves |= unit.has_memory || unit.durable.released.has_value();
    if (!unit.has_memory) continue;
    HostInReplay(host).Do(&FakeUnitHost::Reserve, unit.unit, unit.device, unit.run);
    for (std::uint32_t chunk = 0; chunk < unit.staged.size(); ++chunk) {
      if (unit.staged[chunk] == Lsn{0}) continue;
      host.WriteStaged(unit.unit, chunk, image.tables.at(unit.unit).staged.value()[chunk]);
    }
  }
  starts_amid_moves_ += is_amid_moves ? 1 : 0;
  replay.Restore(image.log_process, image.units);
}

bool SimulatedNode::is_idle() const {
  return process_->queue->size() == 0 && process_->host.is_idle() && log_.is_idle();
}

void SimulatedNode::ReplayRecord(const TestLog::Record& record, FakeUnitHost& host,
                                 UnitReplay& replay) {
  if (std::holds_alternative<TestLog::ProcessBegins>(record)) {
    replay.BeginProcess();
  } else if (const auto* const update = std::get_if<TestLog::Update>(&record)) {
    const UnitUpdate& part = update->update;
    host.Replay(update->unit, part, update->is_gated);
    if (!update->is_gated) return;
    EMBLA_CHECK(replay.Apply(update->unit, part.session, part.seq, part.first_incomplete).ok());
  } else if (const auto* const adopted = std::get_if<TestLog::Adopted>(&record)) {
    replay.Adopt(adopted->unit, options_.chunks, adopted->epoch, host.WindowsOf(adopted->unit));
  } else if (const auto* const folded = std::get_if<TestLog::Folded>(&record)) {
    host.JoinRest(folded->unit, replay.Fold(folded->unit, folded->plan).value(), folded->plan);
  } else if (const auto* const reserved = std::get_if<TestLog::Reserved>(&record)) {
    const UnitId& unit = reserved->unit;
    if (replay.Reserve(unit, options_.chunks, reserved->device, reserved->run)) {
      HostInReplay(host).Do(&FakeUnitHost::Discard, unit);
    }
    HostInReplay(host).Do(&FakeUnitHost::Reserve, unit, reserved->device, reserved->run);
  } else if (const auto* const staged = std::get_if<TestLog::Staged>(&record)) {
    EMBLA_CHECK(replay.Stage(staged->unit, staged->chunk).ok());
    HostInReplay(host).Do(&FakeUnitHost::Stage, staged->unit, staged->chunk.chunk,
                          SharedBuffer(BufferOf(staged->rows)), ChunkTurn::kNow);
  } else {
    ReplayControl(std::get<TestLog::Control>(record), host, replay);
  }
}

void SimulatedNode::ReplayControl(const TestLog::Control& control, FakeUnitHost& host,
                                  UnitReplay& replay) {
  const absl::Status status = replay.Control(control.unit, control.record);
  EMBLA_CHECK(status.ok());
  HostInReplay tables(host);
  if (std::holds_alternative<OwnRecord>(control.record)) {
    tables.Do(&FakeUnitHost::Install, control.unit, std::shared_ptr<UnitGate>());
  } else if (std::holds_alternative<TrimRecord>(control.record)) {
    tables.Do(&FakeUnitHost::Trim, control.unit);
  } else if (std::holds_alternative<RelocateRecord>(control.record)) {
    tables.Do(&FakeUnitHost::Relocate, control.unit);
  } else if (std::holds_alternative<DiscardRecord>(control.record)) {
    tables.Do(&FakeUnitHost::Discard, control.unit);
  }
}

}  // namespace embla::testing
