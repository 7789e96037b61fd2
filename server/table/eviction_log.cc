#include "server/table/eviction_log.h"

#include <algorithm>

#include "core/base/random.h"

namespace embla {

EvictionLog::EvictionLog(std::size_t bytes_max, const TableSeries& series)
    : id_(RandomId64()),
      bytes_max_(bytes_max),
      series_(series),
      unread_(series_.MakeCounter(MetricNamed("embla_zch_evictions_unread_total"))) {}

void EvictionLog::Append(EvictedRows rows) {
  if (rows.evictions.empty()) return;
  {
    MutexLock lock(mu_);
    const std::uint64_t begin = next_;
    next_ += rows.evictions.size();
    if (skips_) return;
    bytes_ += rows.bytes();
    entries_.push_back({begin, std::make_shared<const EvictedRows>(std::move(rows))});
    while (bytes_ > bytes_max_) DropOldest();
  }
  NotifyAll();
}

void EvictionLog::Skip(bool skips) {
  MutexLock lock(mu_);
  skips_ = skips;
  // Entries have no gaps.
  while (skips && !entries_.empty()) DropOldest();
}

void EvictionLog::DropOldest() {
  const Entry& oldest = entries_.front();
  bytes_ -= oldest.rows->bytes();
  if (oldest.end() > read_) {
    unread_.Add(static_cast<double>(oldest.end() - std::max(oldest.begin, read_)));
  }
  entries_.pop_front();
}

void EvictionLog::Close() {
  {
    MutexLock lock(mu_);
    closed_ = true;
    unread_ = {};
    series_ = {};
  }
  NotifyAll();
}

void EvictionLog::NotifyAll() {
  std::vector<std::shared_ptr<Listener>> listeners;
  {
    MutexLock lock(mu_);
    listeners = listeners_;
  }
  for (const std::shared_ptr<Listener>& listener : listeners) listener->Notify();
}

EvictionLog::Piece EvictionLog::Read(std::uint64_t position) {
  MutexLock lock(mu_);
  Piece piece;
  piece.closed = closed_;
  const auto entry =
      std::find_if(entries_.begin(), entries_.end(),
                   [position](const Entry& candidate) { return candidate.end() > position; });
  const std::uint64_t found = entry == entries_.end() ? next_ : entry->begin;
  piece.missed = found - std::min(position, found);
  piece.next = found;
  if (entry == entries_.end()) return piece;
  piece.rows = entry->rows;
  piece.next = entry->end();
  read_ = std::max(read_, piece.next);
  return piece;
}

void EvictionLog::Subscribe(std::shared_ptr<Listener> listener) {
  MutexLock lock(mu_);
  listeners_.push_back(std::move(listener));
}

void EvictionLog::Unsubscribe(const Listener* listener) {
  MutexLock lock(mu_);
  std::erase_if(listeners_, [listener](const auto& other) { return other.get() == listener; });
}

}  // namespace embla
