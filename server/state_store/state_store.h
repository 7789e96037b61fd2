// The facts of a cluster, in one compare-and-put store. Safety rests on Commit alone: a watch is a
// hint, and whoever acts on what it read compares the revision it read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace embla {

// The store's counter, +1 at each commit. An entry carries the revision that last wrote it.
enum class Revision : std::uint64_t {};
inline constexpr Revision kAbsent{0};  // Revision of a key that does not exist.

inline constexpr std::size_t kStateKeyBytesMax = 512;
// A commit makes as many tables as are created at once: 100,000 of them, each a record of 1 KB.
inline constexpr std::size_t kStateCommitBytesMax = std::size_t{128} << 20;  // Keys and values.
inline constexpr std::size_t kStateCommitOpsMax = std::size_t{128} << 10;    // Compares; writes.

struct StateEntry {
  std::string key;
  std::string value;
  Revision revision{};
  bool operator==(const StateEntry&) const = default;
};

// Holds when `key` was last written at `revision`; kAbsent: when there is no such key.
struct StateCompare {
  std::string key;
  Revision revision{};
};

// Puts `value`, or deletes the key when there is none. Deleting an absent key is no error.
struct StateWrite {
  std::string key;
  std::optional<std::string> value;
};

struct StateEvent {
  std::string key;
  std::optional<std::string> value;  // None: deleted.
  Revision revision{};
  bool operator==(const StateEvent&) const = default;
};

// A queue of changes under one prefix, oldest first. A reader that falls more than the queue's
// limit behind loses events: Batch::lost is then true once, and the reader lists the prefix again.
//
// Thread safety: every method may be called from any thread.
class StateWatch {
 public:
  virtual ~StateWatch() = default;  // Unsubscribes; may outlive the store.

  struct Batch {
    std::vector<StateEvent> events;
    bool lost = false;  // Events before these are missing: list the prefix again.
  };
  // Waits up to `timeout` for the first event. Empty and not lost: none came.
  virtual Batch Take(absl::Duration timeout) = 0;
};

// Thread safety: every method may be called from any thread.
class StateStore {
 public:
  virtual ~StateStore() = default;

  // NotFound when there is no such key.
  virtual absl::StatusOr<StateEntry> Get(std::string_view key) const = 0;

  // Every entry whose key starts with `prefix`, by key.
  virtual absl::StatusOr<std::vector<StateEntry>> List(std::string_view prefix) const = 0;

  // Applies all `writes` if all `compares` hold, else nothing; durable when it returns. The
  // revision is that of every key written. Errors:
  //   Aborted          a compare does not hold: names the key, its revision and the one expected
  //   InvalidArgument  an empty or too long key, a key written twice, too many operations or bytes
  //   ResourceExhausted  the disk is full; nothing has changed, try again later
  //   Unavailable      the store cannot write any more; whether this commit lasts is unknown until
  //                    the store is opened again
  virtual absl::StatusOr<Revision> Commit(std::span<const StateCompare> compares,
                                          std::span<const StateWrite> writes) = 0;

  // Many commits for the price of one sync: between these two Commit returns before its writes are
  // durable, and EndBatch makes all of them so. Until then they must not be told to others. One
  // thread commits meanwhile. An error of EndBatch is Unavailable, as of Commit. A store that is
  // durable at once has nothing to do.
  virtual void BeginBatch() {}
  virtual absl::Status EndBatch() { return absl::OkStatus(); }

  // Changes under `prefix` from now on.
  virtual std::unique_ptr<StateWatch> Watch(std::string_view prefix) = 0;

  // Revision of the newest commit; 0 in an empty store.
  virtual Revision revision() const = 0;
};

// Checks that every implementation makes before a commit.
absl::Status ValidateCommit(std::span<const StateCompare> compares,
                            std::span<const StateWrite> writes);

}  // namespace embla
