// Shared memory of a chaos run and its trainers, which are processes: what each trainer is told to
// do, and what it has done. In shared memory, so that nothing is lost with a trainer that is
// killed.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/fault/shared_memory.h"

namespace embla::fault {

// The command for a trainer. Tables have numbers from 1.
struct TrainerCommand {
  std::uint32_t tables = 0;  // 0: none yet.
  bool trains = false;       // False: it pauses, and nothing is in flight.

  std::uint32_t Word() const { return tables << 1 | (trains ? 1 : 0); }
  static TrainerCommand Of(std::uint32_t word) { return {word >> 1, (word & 1) != 0}; }
  bool operator==(const TrainerCommand&) const = default;
};

// One trainer's. Counters begin anew with the run, not with the process.
struct alignas(128) TrainerSlot {
  std::atomic<std::uint32_t> wanted;  // TrainerCommand::Word
  std::atomic<std::uint32_t> reached;
  std::atomic<std::uint32_t> progress;      // Changes with `acknowledged`; wakes who waits.
  std::atomic<std::uint64_t> acknowledged;  // Updates.
  std::atomic<std::uint64_t> lookups;
  std::atomic<std::uint64_t> lookups_failed;
  std::atomic<std::uint64_t> sessions;
  // Updates without an answer that were looked at when their session was closed.
  std::atomic<std::uint64_t> settled;
  std::atomic<std::uint64_t> connects_timed_out;
};

// Path of the board of the run that writes to `directory`.
inline std::string BoardPath(const std::string& directory) { return directory + "/trainers.board"; }

// Thread safety: every method may be called from any thread, and in every process.
class TrainerBoard {
 public:
  // In the file `path` that all processes of the run map.
  static absl::StatusOr<TrainerBoard> Open(const std::string& path, int trainers);

  int trainers() const { return static_cast<int>(slots().size()); }
  std::span<TrainerSlot> slots() const;

  // Tells all trainers; does not wait.
  void Tell(const TrainerCommand& command) const;
  // Waits until all trainers do what they were told last; false: `timeout` is over.
  bool AwaitReached(absl::Duration timeout) const;

 private:
  explicit TrainerBoard(SharedMemory memory) : memory_(std::move(memory)) {}

  SharedMemory memory_;
};

}  // namespace embla::fault
