#include "server/storage/dirty_rows.h"

#include <algorithm>
#include <bit>

#include "core/base/check.h"
#include "kernels/row_kernels.h"

namespace embla {
namespace {

constexpr std::size_t kWordBits = 64;

// Calls use(word, mask) for each word with slots of [first, first + count), as long as it returns
// true: `mask` has their bits. Returns the first slot behind the last word that was used.
template <typename Use>
std::size_t ForEachWord(std::uint32_t first, std::uint32_t count, const Use& use) {
  constexpr std::uint64_t kOnes = ~std::uint64_t{0};
  const std::size_t end = std::size_t{first} + count;
  std::size_t at = first;
  while (at < end) {
    const std::size_t word = at / kWordBits;
    const std::size_t next = std::min((word + 1) * kWordBits, end);
    const std::uint64_t from_first = kOnes << at % kWordBits;
    const std::uint64_t to_last = kOnes >> (kWordBits - 1 - (next - 1) % kWordBits);
    at = next;
    if (!use(word, from_first & to_last)) break;
  }
  return at;
}

}  // namespace

void DirtyRows::Watch(DirtyReader reader) {
  Reader& of = Of(reader);
  of.words.assign(slots_ / kWordBits + 1, 0);
  ForEachWord(0, slots_, [&](std::size_t word, std::uint64_t mask) {
    of.words[word] = mask;
    return true;
  });
  if (of.watches) return;
  of.watches = true;
  ++watching_;
}

void DirtyRows::Unwatch(DirtyReader reader) {
  Reader& of = Of(reader);
  if (!of.watches) return;
  of = {};
  --watching_;
}

// Where kNoSlot stands in a batch cannot be predicted, so a slot costs no branch: kNoSlot sets the
// bit after the last slot's, which is cleared in the end.
void DirtyRows::MarkSlots(std::span<const std::uint32_t> slots) {
  for (Reader& reader : readers_) {
    if (!reader.watches) continue;
    std::uint64_t* const words = reader.words.data();
    std::uint32_t end = 0;  // One more than the greatest slot; kNoSlot + 1 is 0.
    for (const std::uint32_t slot : slots) {
      const std::uint32_t bit = std::min(slot, slots_);
      words[bit / kWordBits] |= std::uint64_t{1} << bit % kWordBits;
      end = std::max(end, slot + 1);
    }
    words[slots_ / kWordBits] &= ~(std::uint64_t{1} << slots_ % kWordBits);
    EMBLA_CHECK(end <= slots_);
  }
}

void DirtyRows::MarkSlotsOfRun(std::uint32_t first, std::uint32_t count) {
  EMBLA_CHECK(first <= slots_ && count <= slots_ - first);
  for (Reader& reader : readers_) {
    if (!reader.watches) continue;
    ForEachWord(first, count, [&](std::size_t word, std::uint64_t mask) {
      reader.words[word] |= mask;
      return true;
    });
  }
}

std::uint32_t DirtyRows::Take(DirtyReader reader, std::uint32_t first, std::uint32_t count,
                              std::vector<std::uint32_t>& slots, std::size_t most) {
  EMBLA_CHECK(first <= slots_ && count <= slots_ - first && most > 0);
  const std::size_t before = slots.size();
  if (!Of(reader).watches) Watch(reader);
  std::uint64_t* const words = Of(reader).words.data();
  const std::size_t next = ForEachWord(first, count, [&](std::size_t word, std::uint64_t mask) {
    std::uint64_t dirty = words[word] & mask;
    if (dirty == 0) return true;
    words[word] &= ~mask;
    for (; dirty != 0; dirty &= dirty - 1) {
      slots.push_back(static_cast<std::uint32_t>(word * kWordBits) +
                      static_cast<std::uint32_t>(std::countr_zero(dirty)));
    }
    return slots.size() - before < most;
  });
  return static_cast<std::uint32_t>(next);
}

std::uint64_t DirtyRows::CountDirty(DirtyReader reader) const {
  if (!Of(reader).watches) return slots_;
  std::uint64_t dirty = 0;
  for (const std::uint64_t word : Of(reader).words) {
    dirty += static_cast<std::uint64_t>(std::popcount(word));
  }
  return dirty;
}

std::size_t DirtyRows::memory_bytes() const {
  std::size_t bytes = 0;
  for (const Reader& reader : readers_) bytes += reader.words.size() * sizeof(std::uint64_t);
  return bytes;
}

}  // namespace embla
