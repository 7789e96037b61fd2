#include "tests/fault/training.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/log.h"
#include "core/base/text.h"

namespace embla::fault {
namespace {

using client::CallOptions;
using client::FeatureGradient;
using client::FeatureLookup;

constexpr int kInFlightMax = 4;
constexpr std::uint64_t kTablesPerUpdateMax = 3;
constexpr int kStepsPerLookBack = 8;
constexpr int kStepsPerSession = 600;
constexpr int kShortDeadlinePercent = 3;
// Longer than any fault: within it every update gets through.
constexpr absl::Duration kTimeout = absl::Minutes(5);
constexpr absl::Duration kConnectTimeout = absl::Seconds(5);
constexpr absl::Duration kLookupTimeout = absl::Seconds(20);
// A typical pause before a trainer is started again.
constexpr absl::Duration kReconnectPause = absl::Milliseconds(50);

// One update of some tables, alive until it is over.
struct Batch {
  struct Part {
    const JudgedTable* table;
    Digit digit;
    JudgedTable::Update update;
  };
  std::vector<Part> parts;

  std::string Text() const {
    std::string text;
    for (const Part& part : parts) {
      absl::StrAppend(&text, part.table->name(), " update ", part.digit.number, " ");
    }
    return text;
  }
};

}  // namespace

Trainer::Trainer(const TrainerOptions& options, TrainerSlot& slot, OnDamage on_damage)
    : options_(options),
      slot_(slot),
      on_damage_(std::move(on_damage)),
      // A process that comes after one that was killed draws something else.
      random_((options.seed + options.index) * 1'000'003 + slot.sessions.load()),
      thread_([this] { Run(); }) {}

Trainer::~Trainer() {
  {
    const MutexLock lock(mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void Trainer::Train(const JudgedTables* tables) {
  const MutexLock lock(mu_);
  tables_ = tables;
  is_idle_ = false;
  changed_.NotifyAll();
}

void Trainer::Pause() {
  const MutexLock lock(mu_);
  tables_ = nullptr;
  changed_.NotifyAll();
  while (!is_idle_) changed_.Wait(mu_);
}

void Trainer::AwaitInFlight(int most) {
  const MutexLock lock(mu_);
  while (in_flight_ > most) changed_.Wait(mu_);
}

void Trainer::Run() {
  while (true) {
    const JudgedTables* tables = nullptr;
    {
      const MutexLock lock(mu_);
      if (stopping_) break;
      tables = tables_;
    }
    if (tables != nullptr) {
      const bool is_lost = lost_session_.exchange(false);
      if (client_ == nullptr || is_lost || random_() % kStepsPerSession == 0) {
        Reconnect();
        SettleOpen(*tables);
      }
      Step(*tables);
      continue;
    }
    AwaitInFlight(0);
    const MutexLock lock(mu_);
    if (tables_ != nullptr) continue;
    is_idle_ = true;
    changed_.NotifyAll();
    while (tables_ == nullptr && !stopping_) changed_.Wait(mu_);
  }
  AwaitInFlight(0);
}

// A trainer that died and is back: under a new session, its updates in flight over.
void Trainer::Reconnect() {
  Say("leaves its session");
  client_.reset();
  Say("connects");
  client::ConnectOptions options;
  options.coordinator = options_.coordinator;
  options.trainer = absl::StrCat("trainer", options_.index);
  options.timeout = kConnectTimeout;
  options.replica_group = GroupOf(options_.index);
  constexpr client::Transport kTransports[] = {client::Transport::kUnary, client::Transport::kAuto,
                                               client::Transport::kStream, client::Transport::kTcp};
  options.transport = kTransports[options_.index % std::size(kTransports)];
  options.retry_budget_ratio = 1;
  options.retry_budget_per_second = 1000;
  while (client_ == nullptr) {
    absl::StatusOr<std::unique_ptr<client::Client>> connected = client::Client::Connect(options);
    if (connected.ok()) {
      client_ = *std::move(connected);
      ++slot_.sessions;
    } else {
      NoteClosedSession(connected.status());
      if (absl::IsDeadlineExceeded(connected.status())) {
        ++slot_.connects_timed_out;
        LogWarning("chaos", "trainer ", options_.index, " connects again after ",
                   Message(connected.status()));
      }
      absl::SleepFor(kReconnectPause);
    }
  }
  Say("");
}

void Trainer::NoteClosedSession(const absl::Status& status) {
  if (!absl::IsPermissionDenied(status) || lost_session_.exchange(true)) return;
  on_damage_(absl::StrCat("trainer ", options_.index, " was not replaced, but: ", Message(status)));
}

// Updates that cannot be read now are looked at under the next session.
void Trainer::SettleOpen(const JudgedTables& tables) {
  Say("looks at what is open");
  for (const auto& table : tables) {
    if (!table->settles()) continue;
    for (const Digit& digit : table->ledger().Open(options_.index)) {
      const auto cells = table->ReadBlock(*client_, digit.block);
      if (!cells.ok()) break;
      table->ledger().Settle(options_.index, digit, *cells);
      ++slot_.settled;
    }
  }
  Say("");
}

void Trainer::Say(const char* what) {
  const MutexLock lock(mu_);
  doing_ = what;
  doing_since_ = absl::Now();
}

void Trainer::Step(const JudgedTables& tables) {
  AwaitInFlight(kInFlightMax - 1);
  Update(tables);
  if (random_() % kStepsPerLookBack == 0) LookBack(*tables[random_() % tables.size()]);
  absl::SleepFor(options_.pace);
}

void Trainer::Update(const JudgedTables& tables) {
  auto batch = std::make_shared<Batch>();
  std::vector<const JudgedTable*> chosen;
  for (const auto& table : tables) chosen.push_back(table.get());
  std::shuffle(chosen.begin(), chosen.end(), random_);
  chosen.resize(1 + random_() % kTablesPerUpdateMax);
  for (const JudgedTable* const table : chosen) {
    const std::optional<Digit> digit = table->ledger().Begin(options_.index);
    if (digit.has_value()) batch->parts.push_back({table, *digit, table->UpdateOf(*digit)});
  }
  if (batch->parts.empty()) return;
  std::vector<FeatureGradient> features;
  for (const Batch::Part& part : batch->parts) {
    features.push_back(
        {.table = part.table->name(), .ids = part.update.ids, .gradients = part.update.gradients});
  }
  CallOptions options;
  options.timeout =
      random_() % 100 < kShortDeadlinePercent ? absl::Milliseconds(1 + random_() % 40) : kTimeout;
  const std::uint64_t pending = BeginPending(batch->Text());
  const auto done = [this, batch, pending](const absl::Status& status) {
    for (const Batch::Part& part : batch->parts) {
      if (status.ok()) {
        part.table->ledger().Acknowledge(options_.index, part.digit.number);
      } else {
        part.table->ledger().LeaveOpen(options_.index, part.digit.number);
      }
    }
    if (status.ok()) {
      ++slot_.acknowledged;
      StoreAndWake(slot_.progress, slot_.progress + 1);
    }
    NoteClosedSession(status);
    EndPending(pending);
  };
  client_->UpdateAsync(std::move(features), options, done);
}

std::uint64_t Trainer::BeginPending(const std::string& what) {
  const MutexLock lock(mu_);
  ++in_flight_;
  pending_[++last_pending_] = {what, absl::Now()};
  return last_pending_;
}

void Trainer::EndPending(std::uint64_t number) {
  const MutexLock lock(mu_);
  --in_flight_;
  pending_.erase(number);
  changed_.NotifyAll();
}

std::string Trainer::Pending() {
  const MutexLock lock(mu_);
  std::string text =
      absl::StrCat("trainer ", options_.index, " ", doing_, " for ",
                   absl::FormatDuration(absl::Now() - doing_since_), ", updates in flight:");
  for (const auto& [number, pending] : pending_) {
    absl::StrAppend(&text, " ", pending.first, " for ",
                    absl::FormatDuration(absl::Now() - pending.second), ";");
  }
  return text;
}

// Reads one of its latest blocks: what is acknowledged is there, once.
void Trainer::LookBack(const JudgedTable& table) {
  const Base4Ledger& ledger = table.ledger();
  const std::uint64_t begun = ledger.begun(options_.index);
  if (begun == 0 || !table.shows_cells()) return;
  const std::uint64_t number = begun - 1 - random_() % std::min<std::uint64_t>(begun, 100);
  const int block = ledger.BlockOf(number);
  const std::vector<std::uint64_t> before = ledger.AcknowledgedIn(options_.index, block);
  const std::vector<std::int64_t> ids = table.IdsOf(block);
  std::vector<float> rows(ids.size() * ledger.shape().cells());
  const FeatureLookup lookup{.table = table.name(), .ids = ids, .rows_out = rows};
  Say("looks up");
  const absl::Status status = client_->Lookup({&lookup, 1}, {.timeout = kLookupTimeout});
  Say("");
  ++slot_.lookups;
  if (!status.ok()) {
    ++slot_.lookups_failed;
    return;
  }
  for (const Damage& damage : ledger.CheckBlock(options_.index, block, rows, before)) {
    on_damage_(absl::StrCat("table ", table.name(), ", seen by a lookup: ", damage.Text()));
  }
}

}  // namespace embla::fault
