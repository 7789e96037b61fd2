// Updates of a data_parallel table's copy, between their messages and the queues of its devices.
//
// A primary sends an update before those before it are answered, and messages overtake each other.
// A device can do nothing with an update that comes early, so it waits here until the one before it
// has come. Whether an update is the next one is decided by the device alone (copied_update.h):
// here the numbers of what has been queued are counted from the last probe or snapshot, and a
// primary sends a probe first, and again after whatever went wrong. docs/replication.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "core/base/mutex.h"
#include "server/shard/replica_transport.h"

namespace embla {

// Thread safety: every method may be called from any thread.
class CopyInbox {
 public:
  // How far before its turn an update may come, and the bytes of all that wait.
  static constexpr std::uint64_t kEarlyMax = 64;
  static constexpr std::size_t kEarlyBytesMax = std::size_t{64} << 20;

  struct Update {
    ReplicaMessage message;  // An update.
    absl::Time deadline;
    ReplicaDone done;

    std::size_t bytes() const {
      return std::get<CopiedUpdate>(message.content).batch.memory.size();
    }
  };
  using Queue = std::function<void(Update update)>;

  CopyInbox() = default;
  ~CopyInbox() { Close(); }

  // The copy is at `order` of the primary's `reign`; nullopt: it does not follow that primary. What
  // waits is refused: the primary sends again what the copy lacks.
  void Begin(std::uint64_t reign, std::optional<std::uint64_t> order);
  // Hands `update` to `queue` in its turn, and then those that waited for it: within the call, or
  // within that of another thread. One that is repeated, or of another reign, goes at once.
  // Unavailable: the update is refused, as too much waits, or a repetition has taken its place.
  void Take(Update update, const Queue& queue);
  // The copy has applied update `order`, whoever queued it: the next one may have waited.
  void Reach(std::uint64_t reign, std::uint64_t order, const Queue& queue);
  // Refuses what waits, and whatever would have to wait from now on.
  void Close();

  // This node's journal has all up to `order` of `reign`.
  void NoteWritten(std::uint64_t reign, std::uint64_t order);
  bool IsWritten(std::uint64_t reign, std::uint64_t order) const;

 private:
  using Early = std::map<std::uint64_t, Update>;

  bool MayWait(const Update& update) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds `update`; returns the one whose place it takes.
  std::optional<Update> Keep(Update update) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Hands out what is next, for as long as it is here and no other thread does.
  void HandOut(const Queue& queue);
  std::optional<Update> TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Early TakeUpTo(std::uint64_t order) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void Refuse(const Update& update);

  mutable Mutex mu_;
  std::uint64_t reign_ ABSL_GUARDED_BY(mu_) = 0;
  // The last update of the reign that was queued; nullopt: none is kept.
  std::optional<std::uint64_t> queued_ ABSL_GUARDED_BY(mu_);
  Early early_ ABSL_GUARDED_BY(mu_);  // By order, all above queued_.
  std::size_t early_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool is_handing_out_ ABSL_GUARDED_BY(mu_) = false;
  bool is_closed_ ABSL_GUARDED_BY(mu_) = false;

  std::uint64_t written_reign_ ABSL_GUARDED_BY(mu_) = 0;
  std::uint64_t written_order_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace embla
