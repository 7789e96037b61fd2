#include "tests/fault/training.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/log.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla::fault {
namespace {

using client::CallOptions;
using client::FeatureGradient;
using client::FeatureLookup;

constexpr int kInFlightMax = 4;
constexpr int kStepsPerLookBack = 8;
constexpr int kStepsPerSession = 600;
constexpr int kShortDeadlinePercent = 3;
// Longer than any fault: within it every update gets through.
constexpr absl::Duration kTimeout = absl::Minutes(5);
constexpr absl::Duration kConnectTimeout = absl::Seconds(5);
constexpr absl::Duration kLookupTimeout = absl::Seconds(20);
constexpr absl::Duration kReconnectPause = absl::Milliseconds(50);
constexpr int kRowsPerRead = 4096;

// One update of one or two tables, alive until it is over.
struct Batch {
  struct Part {
    JudgedTable* table;
    Digit digit;
    std::vector<std::int64_t> ids;
    std::vector<float> gradients;
  };
  std::vector<Part> parts;

  std::string Text() const {
    std::string text;
    for (const Part& part : parts) {
      absl::StrAppend(&text, part.table->name, " update ", part.digit.number, " ");
    }
    return text;
  }
};

Batch::Part MakePart(JudgedTable& table, const Digit& digit) {
  const LedgerShape& shape = table.ledger.shape();
  Batch::Part part{&table, digit, {}, {}};
  part.gradients.assign(static_cast<std::size_t>(shape.rows_per_block) * shape.dim(), 0.0f);
  for (int i = 0; i < shape.rows_per_block; ++i) {
    part.ids.push_back(table.IdOf(table.ledger.RowOf(digit.block, i)));
    // Minus a gradient times a learning rate of 1.
    part.gradients[static_cast<std::size_t>(i) * shape.dim() + digit.column] = -digit.value;
  }
  return part;
}

std::string TableJson(const std::string& name, const LedgerShape& shape, bool is_zch) {
  // A ZCH table has room for twice the ids: none is ever evicted.
  const std::string rows =
      is_zch ? absl::StrCat(2 * shape.rows(), R"(, "zch": {"buckets": )", kUnitsPerTable,
                            R"(, "policy": "lru", "unseen": "zero"})")
             : absl::StrCat(shape.rows(), R"(, "row_granules": )", kUnitsPerTable);
  return absl::StrCat(R"({"name": ")", name, R"(", "dim": )", shape.dim(), R"(, "rows": )", rows,
                      R"(, "optimizer": {"kind": "sgd", "learning_rate": 1.0})",
                      R"(, "init": {"kind": "constant", "a": 0.0}})");
}

}  // namespace

std::int64_t JudgedTable::IdOf(int row) const {
  if (!is_zch) return row;
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(row + 1) * 0x9e3779b97f4a7c15u);
}

absl::StatusOr<JudgedTables> CreateTables(client::Admin& admin, const LedgerShape& shape,
                                          int number) {
  JudgedTables tables;
  for (const bool is_zch : {false, true}) {
    const std::string name = absl::StrCat(is_zch ? "zch" : "plain", number);
    EMBLA_RETURN_IF_ERROR(
        admin.CreateTable(TableJson(name, shape, is_zch), R"({"sharding": "row_wise"})").status());
    tables.push_back(std::make_unique<JudgedTable>(name, is_zch, shape));
  }
  return tables;
}

absl::StatusOr<std::vector<float>> ReadTable(client::Client& client, const JudgedTable& table) {
  const LedgerShape& shape = table.ledger.shape();
  std::vector<float> weights(static_cast<std::size_t>(shape.rows()) * shape.dim());
  for (int begin = 0; begin < shape.rows(); begin += kRowsPerRead) {
    std::vector<std::int64_t> ids;
    for (int row = begin; row < std::min(begin + kRowsPerRead, shape.rows()); ++row) {
      ids.push_back(table.IdOf(row));
    }
    const FeatureLookup lookup{
        .table = table.name,
        .ids = ids,
        .rows_out = std::span(weights).subspan(static_cast<std::size_t>(begin) * shape.dim(),
                                               ids.size() * shape.dim())};
    EMBLA_RETURN_IF_ERROR(client.Lookup({&lookup, 1}, {.timeout = absl::Minutes(1)}));
  }
  return weights;
}

Trainer::Trainer(const TrainerOptions& options, OnDamage on_damage)
    : options_(options),
      on_damage_(std::move(on_damage)),
      random_(options.seed + options.index),
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
      if (client_ == nullptr || random_() % kStepsPerSession == 0) Reconnect();
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
  options.timeout = kConnectTimeout;
  options.transport =
      options_.index % 2 == 0 ? client::Transport::kUnary : client::Transport::kStream;
  options.retry_budget_ratio = 1;
  options.retry_budget_per_second = 1000;
  while (client_ == nullptr) {
    absl::StatusOr<std::unique_ptr<client::Client>> connected = client::Client::Connect(options);
    if (connected.ok()) {
      client_ = *std::move(connected);
      ++sessions_;
    } else {
      if (absl::IsDeadlineExceeded(connected.status())) {
        ++connects_timed_out_;
        LogWarning("chaos", "trainer ", options_.index, " connects again after ",
                   Message(connected.status()));
      }
      absl::SleepFor(kReconnectPause);
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
  const std::uint64_t choice = 1 + random_() % 3;  // The first table, the second, or both.
  for (std::size_t t = 0; t < tables.size(); ++t) {
    if ((choice >> t & 1) == 0) continue;
    const std::optional<Digit> digit = tables[t]->ledger.Begin(options_.index);
    if (digit.has_value()) batch->parts.push_back(MakePart(*tables[t], *digit));
  }
  if (batch->parts.empty()) return;
  std::vector<FeatureGradient> features;
  for (const Batch::Part& part : batch->parts) {
    features.push_back({.table = part.table->name, .ids = part.ids, .gradients = part.gradients});
  }
  CallOptions options;
  options.timeout =
      random_() % 100 < kShortDeadlinePercent ? absl::Milliseconds(1 + random_() % 40) : kTimeout;
  const std::uint64_t pending = BeginPending(batch->Text());
  const auto done = [this, batch, pending](const absl::Status& status) {
    for (const Batch::Part& part : batch->parts) {
      if (status.ok()) {
        part.table->ledger.Acknowledge(options_.index, part.digit.number);
      } else {
        part.table->ledger.LeaveOpen(options_.index, part.digit.number);
      }
    }
    if (status.ok()) ++acknowledged_;
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
  const Base4Ledger& ledger = table.ledger;
  const std::uint64_t begun = ledger.begun(options_.index);
  if (begun == 0) return;
  const std::uint64_t number = begun - 1 - random_() % std::min<std::uint64_t>(begun, 100);
  const int block = static_cast<int>(number / kDigits % ledger.shape().blocks);
  const std::vector<std::uint64_t> before = ledger.AcknowledgedIn(options_.index, block);
  std::vector<std::int64_t> ids;
  for (int i = 0; i < ledger.shape().rows_per_block; ++i) {
    ids.push_back(table.IdOf(ledger.RowOf(block, i)));
  }
  std::vector<float> rows(ids.size() * ledger.shape().dim());
  const FeatureLookup lookup{.table = table.name, .ids = ids, .rows_out = rows};
  Say("looks up");
  const absl::Status status = client_->Lookup({&lookup, 1}, {.timeout = kLookupTimeout});
  Say("");
  ++lookups_;
  if (!status.ok()) {
    ++lookups_failed_;
    return;
  }
  for (const Damage& damage : ledger.CheckBlock(options_.index, block, rows, before)) {
    on_damage_(absl::StrCat("table ", table.name, ", seen by a lookup: ", damage.Text()));
  }
}

}  // namespace embla::fault
