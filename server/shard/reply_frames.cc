#include "server/shard/reply_frames.h"

#include <utility>

#include "core/base/check.h"

namespace embla {

void ReplyFrames::AddChunk(std::size_t end, std::uint32_t devices, std::size_t ids) {
  MutexLock lock(mu_);
  chunks_.push_back({.end = end, .devices_left = devices, .ids_left = ids});
}

std::size_t ReplyFrames::chunks() const {
  MutexLock lock(mu_);
  return chunks_.size();
}

void ReplyFrames::SetReply(PlanVersion plan_version, SharedBuffer reply) {
  plan_version_ = plan_version;
  reply_ = std::move(reply);
}

void ReplyFrames::Complete(std::size_t chunk, std::size_t found) {
  if (!enabled()) return;
  {
    MutexLock lock(mu_);
    EMBLA_CHECK(chunks_[chunk].devices_left > 0 && found <= chunks_[chunk].ids_left);
    --chunks_[chunk].devices_left;
    chunks_[chunk].ids_left -= found;
    while (next_ + 1 < chunks_.size() && chunks_[next_].complete()) ++next_;
    if (sending_) return;  // The sending thread takes these frames as well.
    sending_ = true;
  }
  while (std::optional<SharedBuffer> rows = TakeReady()) {
    frames_.send(plan_version_, *std::move(rows));
  }
}

std::optional<SharedBuffer> ReplyFrames::TakeReady() {
  MutexLock lock(mu_);
  const std::size_t begin = sent_bytes_;
  const std::size_t end = next_ == 0 ? 0 : chunks_[next_ - 1].end;
  // Small parts wait for each other.
  if (end - begin < sent_bytes_min()) {
    sending_ = false;
    return std::nullopt;
  }
  sent_bytes_ = end;
  return reply_.Part(begin, end);
}

std::size_t ReplyFrames::sent_bytes() const {
  MutexLock lock(mu_);
  return sent_bytes_;
}

}  // namespace embla
