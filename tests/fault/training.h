// The load of a chaos run: tables that the base-4 oracle judges, and trainers that update them
// without end, some updates in flight at once, now and then with a deadline that is too short, now
// and then under a new session.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "core/base/mutex.h"
#include "tests/fault/base4_ledger.h"

namespace embla::fault {

// A table and what it must hold.
struct JudgedTable {
  JudgedTable(std::string name, bool zch, const LedgerShape& shape)
      : name(std::move(name)), is_zch(zch), ledger(shape) {}

  // The id that stands for position `row` of the ledger.
  std::int64_t IdOf(int row) const;

  const std::string name;
  const bool is_zch;
  Base4Ledger ledger;
};
using JudgedTables = std::vector<std::unique_ptr<JudgedTable>>;

// Row granules of the plain table, buckets of the ZCH table.
inline constexpr int kUnitsPerTable = 48;

// Creates a plain row_wise table and a ZCH table, whose names end with `number`.
absl::StatusOr<JudgedTables> CreateTables(client::Admin& admin, const LedgerShape& shape,
                                          int number);

// The weights of the whole table by position.
absl::StatusOr<std::vector<float>> ReadTable(client::Client& client, const JudgedTable& table);

struct TrainerOptions {
  int index = 0;
  std::string coordinator;  // host:port
  std::uint64_t seed = 1;
  absl::Duration pace = absl::Milliseconds(3);  // Between two updates.
};

// A damage that a trainer saw in its own rows while it trained.
using OnDamage = std::function<void(const std::string& what)>;

// Thread safety: every method may be called from any thread.
class Trainer {
 public:
  Trainer(const TrainerOptions& options, OnDamage on_damage);
  ~Trainer();

  // Trains `tables` from now on. They are not owned, and outlive this object or the next call of
  // Pause.
  void Train(const JudgedTables* tables);
  // Begins no more updates, and waits until none is in flight.
  void Pause();

  std::uint64_t acknowledged() const { return acknowledged_; }
  // What is in flight, for messages about trainers that hang.
  std::string Pending();
  // Lookups that failed, of so many.
  std::uint64_t lookups() const { return lookups_; }
  std::uint64_t lookups_failed() const { return lookups_failed_; }
  std::uint64_t sessions() const { return sessions_; }
  std::uint64_t connects_timed_out() const { return connects_timed_out_; }

 private:
  void Run();
  void Step(const JudgedTables& tables);
  void Update(const JudgedTables& tables);
  void LookBack(const JudgedTable& table);
  void Reconnect();
  void AwaitInFlight(int most);
  std::uint64_t BeginPending(const std::string& what);
  void EndPending(std::uint64_t number);
  // What the trainer's thread waits for from now on.
  void Say(const char* what);

  const TrainerOptions options_;
  const OnDamage on_damage_;
  std::mt19937_64 random_;
  std::unique_ptr<client::Client> client_;  // Of the trainer's thread.
  std::atomic<std::uint64_t> acknowledged_ = 0;
  std::atomic<std::uint64_t> lookups_ = 0;
  std::atomic<std::uint64_t> lookups_failed_ = 0;
  std::atomic<std::uint64_t> sessions_ = 0;
  std::atomic<std::uint64_t> connects_timed_out_ = 0;

  Mutex mu_;
  CondVar changed_;
  const JudgedTables* tables_ ABSL_GUARDED_BY(mu_) = nullptr;  // Null: pause.
  bool is_idle_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  int in_flight_ ABSL_GUARDED_BY(mu_) = 0;
  // By number of the update: what, and since when.
  std::map<std::uint64_t, std::pair<std::string, absl::Time>> pending_ ABSL_GUARDED_BY(mu_);
  std::uint64_t last_pending_ ABSL_GUARDED_BY(mu_) = 0;
  const char* doing_ ABSL_GUARDED_BY(mu_) = "";
  absl::Time doing_since_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;  // Last: it uses the others.
};

}  // namespace embla::fault
