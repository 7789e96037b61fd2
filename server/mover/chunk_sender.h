// Reads chunks of units and sends them, a few at a time: what a source's devices and network do for
// moves is bounded here, whatever the targets ask for.
//
// - At most `reads_max` chunks are read at once, so that requests wait behind few of them.
// - At most `flying_per_target_max` chunks to one target are read or sent and not taken in yet.
// - Over time no more than the budget's rate, and no faster than lets requests through (MovePace).
//   Chunks of frozen units wait for nothing of this and for no other chunk, beyond as many of their
//   own; what they take is paid back by the others.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/metrics/metrics.h"
#include "server/migration/move_messages.h"
#include "server/migration/unit_host.h"
#include "server/mover/move_pace.h"
#include "server/mover/move_transport.h"
#include "server/mover/task_queue.h"
#include "server/mover/token_bucket.h"

namespace embla {

struct ChunkSenderOptions {
  std::uint32_t reads_max = 2;
  std::uint32_t flying_per_target_max = 8;
  MovePaceOptions pace = {};
};

// A chunk that the other end has received.
struct SentChunk {
  UnitId unit;
  Chunk chunk;
  std::uint64_t bytes = 0;
};

// Thread safety: none; everything, `on_sent` (the other end took a chunk in) and `on_lost` (it did
// not, and why) too, happens in tasks of `queue` and in calls from there.
class ChunkSender {
 public:
  struct Request {
    UnitId unit;
    NodeId from{};  // This node.
    std::string to_address;
    Chunk chunk;
    bool is_urgent = false;  // Writers of the unit wait for it.
  };

  // `host`, `transport` and `clock` are not owned and outlive the sender, and every task of the
  // queue.
  ChunkSender(const ChunkSenderOptions& options, UnitHost& host, MoveTransport& transport,
              const Clock& clock, std::shared_ptr<TaskQueue> queue,
              std::function<void(const SentChunk&)> on_sent,
              std::function<void(const UnitId&, const absl::Status&)> on_lost, Counter yields);

  void SetRate(std::uint64_t bytes_per_second);
  // A chunk that waits already is sent once, at the newer version.
  void Add(Request request);
  // The unit is frozen: what waits of it is urgent now.
  void Urge(const UnitId& unit);
  // Sends what may be sent now. Call again after NextPump(), and now and then at rest.
  void Pump();
  absl::Duration NextPump();  // Infinite: nothing waits for its time.

 private:
  using Waiting = std::list<Request>;
  using Key = std::tuple<UnitId, std::uint32_t>;
  struct Lane {
    Waiting waiting;
    std::uint32_t reads = 0;
    std::map<std::string, std::uint32_t> flying;  // By target's address.
  };

  Lane& LaneOf(const Request& request) { return request.is_urgent ? urgent_ : patient_; }
  Waiting::iterator FindSendable(Lane& lane);
  // Zero: chunks that are not urgent may be sent.
  absl::Duration Wait(absl::Time now);
  void Start(Request request);
  void OnRead(const Request& request, absl::StatusOr<Buffer> rows);
  void OnTaken(const Request& request, std::uint64_t bytes, const absl::Status& status);

  const ChunkSenderOptions options_;
  UnitHost& host_;            // Not owned; outlives this object.
  MoveTransport& transport_;  // Not owned; outlives this object.
  const Clock& clock_;        // Not owned; outlives this object.
  const std::shared_ptr<TaskQueue> queue_;
  const std::function<void(const SentChunk&)> on_sent_;
  const std::function<void(const UnitId&, const absl::Status&)> on_lost_;

  Counter yields_;
  TokenBucket budget_;
  MovePace pace_;
  Lane urgent_;
  Lane patient_;
  std::map<Key, Waiting::iterator> waiting_;
};

}  // namespace embla
