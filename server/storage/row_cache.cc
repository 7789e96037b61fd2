#include "server/storage/row_cache.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/base/check.h"
#include "kernels/row_kernels.h"

namespace embla {

using kernels::kNoSlot;

void RowCache::Pairs::Clear() {
  slots.clear();
  lines.clear();
}

void RowCache::Pairs::Add(std::uint32_t slot, std::uint32_t line) {
  slots.push_back(slot);
  lines.push_back(line);
}

RowCache::RowCache(std::uint32_t lines, Policy policy)
    : policy_(policy), lines_(lines), free_(lines) {
  EMBLA_CHECK(lines >= 1);
  std::iota(free_.begin(), free_.end(), 0u);
}

RowCache::Order::value_type RowCache::KeyOf(std::uint32_t line) const {
  const Line& entry = lines_[line];
  return {policy_ == Policy::kLfu ? entry.uses : 0, entry.tick, line};
}

// Once per batch.
void RowCache::Touch(std::uint32_t line, bool changes) {
  Line& entry = lines_[line];
  order_.erase(KeyOf(line));
  entry.tick = tick_;
  ++entry.uses;
  entry.changed = entry.changed || changes;
  order_.insert(KeyOf(line));
}

std::uint32_t RowCache::MakeRoom(Placement& placement) {
  if (!free_.empty()) {
    std::pop_heap(free_.begin(), free_.end(), std::greater<>());
    const std::uint32_t line = free_.back();
    free_.pop_back();
    return line;
  }
  const auto victim = std::find_if(order_.begin(), order_.end(), [&](const auto& key) {
    return lines_[std::get<2>(key)].tick != tick_;
  });
  EMBLA_CHECK(victim != order_.end());  // The batch has more rows than there are lines.
  const std::uint32_t line = std::get<2>(*victim);
  order_.erase(victim);
  Line& entry = lines_[line];
  line_of_.erase(entry.slot);
  ++statistics_.evictions;
  if (entry.changed) {
    ++statistics_.write_backs;
    placement.write_backs.Add(entry.slot, line);
  }
  entry = {};
  return line;
}

void RowCache::Place(std::span<const std::uint32_t> slots, bool changes, Placement& placement) {
  ++tick_;
  placement.write_backs.Clear();
  placement.fills.Clear();
  placement.lines.assign(slots.size(), kNoSlot);
  // Rows that are there first: none of them must go for the others.
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const auto found = line_of_.find(slots[i]);
    if (found == line_of_.end()) continue;
    placement.lines[i] = found->second;
    if (lines_[found->second].tick == tick_) continue;
    ++statistics_.hits;
    Touch(found->second, changes);
  }
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] == kNoSlot || placement.lines[i] != kNoSlot) continue;
    const auto [entry, is_new] = line_of_.try_emplace(slots[i], 0);
    if (is_new) {
      ++statistics_.misses;
      const std::uint32_t line = MakeRoom(placement);
      line_of_[slots[i]] = line;
      lines_[line].slot = slots[i];
      Touch(line, changes);
      placement.fills.Add(slots[i], line);
    }
    placement.lines[i] = line_of_[slots[i]];
  }
}

void RowCache::TakeChanged(std::span<const std::uint32_t> slots, Pairs& changed) {
  changed.Clear();
  for (const std::uint32_t slot : slots) {
    const auto found = line_of_.find(slot);
    if (found == line_of_.end() || !lines_[found->second].changed) continue;
    lines_[found->second].changed = false;
    changed.Add(slot, found->second);
  }
}

void RowCache::Drop(std::span<const std::uint32_t> slots) {
  for (const std::uint32_t slot : slots) {
    const auto found = line_of_.find(slot);
    if (found == line_of_.end()) continue;
    const std::uint32_t line = found->second;
    order_.erase(KeyOf(line));
    lines_[line] = {};
    line_of_.erase(found);
    free_.push_back(line);
    std::push_heap(free_.begin(), free_.end(), std::greater<>());
  }
}

}  // namespace embla
