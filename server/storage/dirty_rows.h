// The slots of a RowStore whose rows have changed since a reader last took them.
//
// Readers are named and independent: a change is dirty for each that watches, and clean for one
// when that one has taken it. A reader has one bit per slot while it watches, and none otherwise.
//
// Thread safety: none, as for the store.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace embla {

// Also indexes arrays, so numbers have no gaps.
enum class DirtyReader : std::uint8_t {
  kSnapshots = 0,  // Saves the rows that have changed since the last snapshot.
};
inline constexpr std::size_t kDirtyReaders = 1;

class DirtyRows {
 public:
  // Slots 0 to slots - 1, and no reader.
  explicit DirtyRows(std::uint32_t slots) : slots_(slots) {}

  // All slots are dirty for `reader`, and changes from now on are kept for it, until Unwatch. The
  // same when it watches already.
  void Watch(DirtyReader reader);
  // Frees the bits of `reader`. Does nothing when it does not watch.
  void Unwatch(DirtyReader reader);
  // Whether any reader watches.
  bool is_watched() const { return watching_ != 0; }

  // Make slots dirty for all readers; without a reader each is one branch. Slots may come in any
  // order and more than once; kernels::kNoSlot is ignored.
  void Mark(std::span<const std::uint32_t> slots) {
    if (is_watched()) MarkSlots(slots);
  }
  // The slots [first, first + count).
  void MarkRun(std::uint32_t first, std::uint32_t count) {
    if (is_watched()) MarkSlotsOfRun(first, count);
  }
  void MarkAll() { MarkRun(0, slots_); }

  // Appends to `slots` those of [first, first + count) that are dirty for `reader`, in ascending
  // order; they are clean for it then. A reader that does not watch does from now on, and so gets
  // all of the range. Stops after about `most` slots, at 64 more at most, and returns the slot to
  // go on at, first + count if there is none. Requires: most > 0.
  std::uint32_t Take(DirtyReader reader, std::uint32_t first, std::uint32_t count,
                     std::vector<std::uint32_t>& slots,
                     std::size_t most = std::numeric_limits<std::size_t>::max());

  // How many slots are dirty for `reader`: all, when it does not watch. Reads every word.
  std::uint64_t CountDirty(DirtyReader reader) const;

  std::uint32_t slots() const { return slots_; }
  std::size_t memory_bytes() const;

 private:
  struct Reader {
    bool watches = false;
    // Slot s is bit s % 64 of words[s / 64]. Bits from slots_ on are 0; there is one at least.
    std::vector<std::uint64_t> words;
  };

  Reader& Of(DirtyReader reader) { return readers_[static_cast<std::size_t>(reader)]; }
  const Reader& Of(DirtyReader reader) const { return readers_[static_cast<std::size_t>(reader)]; }
  void MarkSlots(std::span<const std::uint32_t> slots);
  void MarkSlotsOfRun(std::uint32_t first, std::uint32_t count);

  const std::uint32_t slots_;
  std::size_t watching_ = 0;  // How many readers watch.
  std::array<Reader, kDirtyReaders> readers_;
};

}  // namespace embla
