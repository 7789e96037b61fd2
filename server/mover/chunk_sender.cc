#include "server/mover/chunk_sender.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/log.h"

namespace embla {

ChunkSender::ChunkSender(const ChunkSenderOptions& options, UnitHost& host,
                         MoveTransport& transport, const Clock& clock,
                         std::shared_ptr<TaskQueue> queue,
                         std::function<void(const SentChunk&)> on_sent,
                         std::function<void(const UnitId&, const absl::Status&)> on_lost,
                         Counter yields)
    : options_(options),
      host_(host),
      transport_(transport),
      clock_(clock),
      queue_(std::move(queue)),
      on_sent_(std::move(on_sent)),
      on_lost_(std::move(on_lost)),
      yields_(yields),
      pace_(options.pace) {}

void ChunkSender::SetRate(std::uint64_t bytes_per_second) {
  budget_.SetRate(bytes_per_second, clock_.Now());
}

void ChunkSender::Add(Request request) {
  const Key key(request.unit, request.chunk.chunk);
  if (const auto found = waiting_.find(key); found != waiting_.end()) {
    Request& waiting = *found->second;
    // The rows are read later, so the entry may claim the newer version.
    waiting.chunk = request.chunk;
    waiting.to_address = std::move(request.to_address);
    if (request.is_urgent && !waiting.is_urgent) {
      waiting.is_urgent = true;
      urgent_.waiting.splice(urgent_.waiting.end(), patient_.waiting, found->second);
    }
    return;
  }
  Waiting& list = LaneOf(request).waiting;
  waiting_[key] = list.insert(list.end(), std::move(request));
}

void ChunkSender::Urge(const UnitId& unit) {
  const auto end = waiting_.upper_bound(Key(unit, std::numeric_limits<std::uint32_t>::max()));
  for (auto it = waiting_.lower_bound(Key(unit, 0)); it != end; ++it) {
    if (std::exchange(it->second->is_urgent, true)) continue;
    urgent_.waiting.splice(urgent_.waiting.end(), patient_.waiting, it->second);
  }
}

void ChunkSender::Pump() {
  const absl::Time now = clock_.Now();
  if (pace_.Look(host_.RequestDelay(), now)) yields_.Add();
  for (Lane* const lane : {&urgent_, &patient_}) {
    while (lane->reads < options_.reads_max) {
      if (lane == &patient_ && Wait(now) > absl::ZeroDuration()) return;
      const auto next = FindSendable(*lane);
      if (next == lane->waiting.end()) break;
      Request request = std::move(*next);
      waiting_.erase(Key(request.unit, request.chunk.chunk));
      lane->waiting.erase(next);
      pace_.Take(now);
      Start(std::move(request));
    }
  }
}

absl::Duration ChunkSender::Wait(absl::Time now) {
  return std::max(budget_.Wait(now), pace_.Wait(now));
}

absl::Duration ChunkSender::NextPump() {
  if (patient_.waiting.empty()) return absl::InfiniteDuration();
  const absl::Duration wait = Wait(clock_.Now());
  // Without a wait it is the end of a read or a send that goes on.
  return wait > absl::ZeroDuration() ? wait : absl::InfiniteDuration();
}

ChunkSender::Waiting::iterator ChunkSender::FindSendable(Lane& lane) {
  return std::ranges::find_if(lane.waiting, [&](const Request& request) {
    return lane.flying[request.to_address] < options_.flying_per_target_max;
  });
}

void ChunkSender::Start(Request request) {
  Lane& lane = LaneOf(request);
  ++lane.reads;
  ++lane.flying[request.to_address];
  const UnitId unit = request.unit;
  const std::uint32_t chunk = request.chunk.chunk;
  const ChunkTurn turn = request.is_urgent ? ChunkTurn::kNow : ChunkTurn::kWhenIdle;
  auto on_read = [this, queue = queue_,
                  request = std::move(request)](absl::StatusOr<Buffer> rows) mutable {
    queue->Post([this, request = std::move(request), rows = std::move(rows)]() mutable {
      OnRead(request, std::move(rows));
    });
  };
  host_.ReadChunk(unit, chunk, turn, std::move(on_read));
}

void ChunkSender::OnRead(const Request& request, absl::StatusOr<Buffer> rows) {
  Lane& lane = LaneOf(request);
  --lane.reads;
  if (!rows.ok()) {
    LogWarning("mover", "chunk not read table=", ToInt(request.unit.table),
               " row_granule=", request.unit.row_granule, " chunk=", request.chunk.chunk,
               " reason=", Message(rows.status()));
    --lane.flying[request.to_address];
    on_lost_(request.unit, rows.status());
    return Pump();
  }
  const std::uint64_t bytes = rows->size();
  budget_.Take(bytes);
  PeerMessage message{.unit = request.unit,
                      .from = request.from,
                      .body = request.chunk,
                      .rows = *std::move(rows),
                      .is_urgent = request.is_urgent};
  transport_.Send(
      request.to_address, std::move(message),
      [this, queue = queue_, request, bytes](const absl::Status& status) {
        queue->Post([this, request, bytes, status] { OnTaken(request, bytes, status); });
      });
  Pump();
}

void ChunkSender::OnTaken(const Request& request, std::uint64_t bytes, const absl::Status& status) {
  --LaneOf(request).flying[request.to_address];
  if (status.ok()) {
    on_sent_({.unit = request.unit, .chunk = request.chunk, .bytes = bytes});
  } else {
    on_lost_(request.unit, status);
  }
  Pump();
}

}  // namespace embla
