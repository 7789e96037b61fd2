// The load of a chaos run: a trainer updates tables that the base-4 oracle judges, without end,
// some updates in flight at once, now and then with a deadline that is too short, now and then
// under a new session.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/include/embla/client.h"
#include "core/base/mutex.h"
#include "tests/fault/judged_table.h"
#include "tests/fault/trainer_board.h"

namespace embla::fault {

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
  // Counts in `slot`, which is not owned and outlives this object.
  Trainer(const TrainerOptions& options, TrainerSlot& slot, OnDamage on_damage);
  ~Trainer();

  // Trains `tables` from now on. They are not owned, and outlive this object or the next call of
  // Pause.
  void Train(const JudgedTables* tables);
  // Begins no more updates, and waits until none is in flight.
  void Pause();

  // Describes the calls in flight, for messages about trainers that hang.
  std::string Pending();

 private:
  void Run();
  void Step(const JudgedTables& tables);
  void Update(const JudgedTables& tables);
  void LookBack(const JudgedTable& table);
  void Reconnect();
  // A status that names a closed session is damage: nobody but this process connects as the trainer
  // while it lives.
  void NoteClosedSession(const absl::Status& status);
  // Looks at what became of updates of sessions that are closed now.
  void SettleOpen(const JudgedTables& tables);
  void AwaitInFlight(int most);
  std::uint64_t BeginPending(const std::string& what);
  void EndPending(std::uint64_t number);
  // Sets what the trainer's thread waits for from now on.
  void Say(const char* what);

  const TrainerOptions options_;
  TrainerSlot& slot_;  // Not owned; outlives this object.
  const OnDamage on_damage_;
  std::mt19937_64 random_;
  std::unique_ptr<client::Client> client_;  // Used by the trainer's thread only.

  std::atomic<bool> lost_session_ = false;  // True: another process closed it.

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
