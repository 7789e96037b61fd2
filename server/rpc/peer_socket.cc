#include "server/rpc/peer_socket.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/clock.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/wire/callback_queue.h"
#include "server/rpc/move_codec.h"
#include "server/rpc/replica_codec.h"

namespace embla {
namespace {

// A node answers what it cannot do in time itself.
constexpr absl::Duration kLateMax = absl::Seconds(1);
constexpr std::size_t kAnswerTextBytesMax = std::size_t{64} << 10;

}  // namespace

void PeerSocket::Start(std::unique_ptr<Link> link, const std::string& ticket, Poller& poller,
                       absl::Duration timeout) {
  absl::StatusOr<std::shared_ptr<FrameSocket>> opened = absl::CancelledError("given up");
  {
    MutexLock lock(mu_);
    if (!is_over_) {
      opened = FrameSocket::Open(std::move(link), *this, poller, kAnswerTextBytesMax);
    }
    if (opened.ok()) {
      socket_ = *opened;
      Await(0, {.late = Clock::Real().Now() + timeout, .done = nullptr});
    }
  }
  if (!opened.ok()) return OnClosed(opened.status());
  (*opened)->Send(wire::MakeFrame(ticket));
  (*opened)->Want();
}

bool PeerSocket::Send(std::span<const ReplicaMessage> messages, const wire::PeerProof& proof,
                      absl::Duration timeout, ReplicaDone done) {
  const Place place = NextPlace(timeout, std::move(done));
  if (place.socket == nullptr) return false;
  wire::ReplicateOrder order{.deadline_ms = static_cast<std::uint32_t>(std::clamp<std::int64_t>(
                                 absl::ToInt64Milliseconds(timeout), 1, 0xffffffff))};
  for (const ReplicaMessage& message : messages) {
    order.sequence = &message == &messages.back() ? place.sequence : 0;
    place.socket->Send(EncodeReplicaFrame(message, proof, order));
  }
  return true;
}

bool PeerSocket::Send(PeerMessage&& message, const wire::PeerProof& proof, absl::Duration timeout,
                      MoveTransport::Done done) {
  const Place place = NextPlace(
      timeout,
      [done = std::move(done)](const absl::StatusOr<ReplicaAck>& ack) { done(ack.status()); });
  if (place.socket == nullptr) return false;
  place.socket->Send(EncodeMoveFrame(std::move(message), proof, place.sequence));
  return true;
}

// Frames are sent without the lock that this takes: answers come meanwhile.
PeerSocket::Place PeerSocket::NextPlace(absl::Duration timeout, ReplicaDone done) {
  MutexLock lock(mu_);
  const std::uint64_t sequence = ++last_sequence_;
  const absl::Time late = Clock::Real().Now() + timeout + kLateMax;
  if (!Await(sequence, {.late = late, .done = std::move(done)})) return {};
  return {.socket = socket_, .sequence = sequence};
}

bool PeerSocket::Await(std::uint64_t sequence, Pending pending) {
  if (is_over_) return false;
  LookAt(pending.late);
  pending_.emplace(sequence, std::move(pending));
  return true;
}

void PeerSocket::LookAt(absl::Time when) {
  if (when >= looks_at_) return;
  looks_at_ = when;
  wire::RunLater(when - Clock::Real().Now(), [self = shared_from_this()] { self->LookIfLate(); });
}

void PeerSocket::LookIfLate() {
  MutexLock lock(mu_);
  looks_at_ = absl::InfiniteFuture();
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [sequence, pending] : pending_) next = std::min(next, pending.late);
  if (next <= Clock::Real().Now()) return socket_->Shutdown();
  LookAt(next);
}

ReplicaDone PeerSocket::TakePending(std::uint64_t sequence) {
  MutexLock lock(mu_);
  const auto found = pending_.find(sequence);
  if (found == pending_.end()) return nullptr;
  ReplicaDone done = std::move(found->second.done);
  pending_.erase(found);
  return done;
}

void PeerSocket::Shutdown() {
  MutexLock lock(mu_);
  is_over_ = true;
  if (socket_ != nullptr) socket_->Shutdown();
}

absl::Status PeerSocket::BeginFrame(std::string_view text, std::span<const wire::FrameArray>,
                                    std::span<std::byte*>) {
  answer_.sequence = 0;
  if (text.empty()) return absl::OkStatus();
  EMBLA_ASSIGN_OR_RETURN(answer_, wire::DecodeReplicateAnswer(text));
  return absl::OkStatus();
}

absl::Status PeerSocket::EndFrame() {
  const ReplicaDone done = TakePending(answer_.sequence);
  if (answer_.sequence == 0 && events_.on_ready != nullptr) {
    std::exchange(events_.on_ready, nullptr)(shared_from_this());
  }
  if (done != nullptr && answer_.ack.ok()) done(FromWire(*answer_.ack));
  if (done != nullptr && !answer_.ack.ok()) done(answer_.ack.status());
  MutexLock lock(mu_);
  socket_->Want();
  return absl::OkStatus();
}

void PeerSocket::OnClosed(const absl::Status& why) {
  std::map<std::uint64_t, Pending> pending;
  {
    MutexLock lock(mu_);
    is_over_ = true;
    pending.swap(pending_);
  }
  if (events_.on_ready != nullptr) std::exchange(events_.on_ready, nullptr)(nullptr);
  // Not within Send, which may be what has found out.
  wire::RunLater(absl::ZeroDuration(), [pending = std::move(pending), why] {
    const absl::Status broken =
        absl::UnavailableError(absl::StrCat("the data socket broke: ", Message(why)));
    for (const auto& [sequence, each] : pending) {
      if (each.done != nullptr) each.done(broken);
    }
  });
  events_.on_over(shared_from_this());
}

}  // namespace embla
