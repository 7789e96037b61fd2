#include "server/shard/copy_inbox.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace embla {
namespace {

constexpr std::uint64_t kLast = ~std::uint64_t{0};

}  // namespace

void CopyInbox::Begin(std::uint64_t reign, std::optional<std::uint64_t> order) {
  Early refused;
  {
    const MutexLock lock(mu_);
    reign_ = reign;
    queued_ = order;
    refused = TakeUpTo(kLast);
  }
  for (const auto& [number, update] : refused) Refuse(update);
}

void CopyInbox::Take(Update update, const Queue& queue) {
  std::optional<Update> refused;
  bool waits = false;
  {
    const MutexLock lock(mu_);
    const ReplicaMessage& message = update.message;
    waits = message.reign() == reign_ && queued_.has_value() && message.order() > *queued_;
    if (waits) refused = MayWait(update) ? Keep(std::move(update)) : std::move(update);
  }
  if (!waits) return queue(std::move(update));
  if (refused.has_value()) Refuse(*refused);
  HandOut(queue);
}

void CopyInbox::Reach(std::uint64_t reign, std::uint64_t order, const Queue& queue) {
  Early refused;
  {
    const MutexLock lock(mu_);
    if (reign != reign_ || !queued_.has_value() || order <= *queued_) return;
    queued_ = order;
    refused = TakeUpTo(order);
  }
  for (const auto& [number, update] : refused) Refuse(update);
  HandOut(queue);
}

void CopyInbox::HandOut(const Queue& queue) {
  for (;;) {
    std::optional<Update> next;
    {
      const MutexLock lock(mu_);
      next = TakeNext();
    }
    if (!next.has_value()) return;
    queue(*std::move(next));
    const MutexLock lock(mu_);
    is_handing_out_ = false;
  }
}

void CopyInbox::Close() {
  Early refused;
  {
    const MutexLock lock(mu_);
    is_closed_ = true;
    refused = TakeUpTo(kLast);
  }
  for (const auto& [number, update] : refused) Refuse(update);
}

void CopyInbox::NoteWritten(std::uint64_t reign, std::uint64_t order) {
  const MutexLock lock(mu_);
  written_order_ = reign == written_reign_ ? std::max(written_order_, order) : order;
  written_reign_ = reign;
}

bool CopyInbox::IsWritten(std::uint64_t reign, std::uint64_t order) const {
  const MutexLock lock(mu_);
  return order == 0 || (reign == written_reign_ && order <= written_order_);
}

bool CopyInbox::MayWait(const Update& update) const {
  const std::uint64_t order = update.message.order();
  if (order == *queued_ + 1) return true;  // For no time, unless another thread hands out.
  return !is_closed_ && order <= *queued_ + 1 + kEarlyMax &&
         early_bytes_ + update.bytes() <= kEarlyBytesMax;
}

std::optional<CopyInbox::Update> CopyInbox::Keep(Update update) {
  std::optional<Update> before;
  const std::uint64_t order = update.message.order();
  if (const auto it = early_.find(order); it != early_.end()) {
    early_bytes_ -= it->second.bytes();
    before = std::move(it->second);
    early_.erase(it);
  }
  early_bytes_ += update.bytes();
  early_.emplace(order, std::move(update));
  return before;
}

std::optional<CopyInbox::Update> CopyInbox::TakeNext() {
  if (is_handing_out_ || !queued_.has_value() || early_.empty()) return std::nullopt;
  const auto first = early_.begin();
  if (first->first != *queued_ + 1) return std::nullopt;
  std::optional<Update> next = std::move(first->second);
  early_.erase(first);
  early_bytes_ -= next->bytes();
  ++*queued_;
  is_handing_out_ = true;
  return next;
}

CopyInbox::Early CopyInbox::TakeUpTo(std::uint64_t order) {
  Early taken;
  while (!early_.empty() && early_.begin()->first <= order) {
    early_bytes_ -= early_.begin()->second.bytes();
    taken.insert(early_.extract(early_.begin()));
  }
  return taken;
}

void CopyInbox::Refuse(const Update& update) {
  update.done(absl::UnavailableError(
      absl::StrCat("update ", update.message.order(),
                   " of the table came before the one before it; send that one again")));
}

}  // namespace embla
