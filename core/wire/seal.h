// The end of a frame that shows memory of its sender's to the kernel, from which the peer reads it
// later (core/socket/link.h, "Lend"). A sender that gives up its request, and may change that
// memory from then on, breaks the seal first: whoever finds the seal whole, behind the rest, has
// read all of it as it was sent (docs/data_sockets.md, "Lent memory").
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace embla::wire {

// Thread safety: every method may be called from any thread.
class Seal {
 public:
  static constexpr std::uint64_t kWhole = 0x6c61'6573'616c'626d;
  // Number of the array of a frame that is its seal, the last one; no field has it.
  static constexpr std::uint32_t kArray = 0;

  // A whole one. Null: there is no memory.
  static std::shared_ptr<Seal> Make();
  ~Seal();
  Seal(const Seal&) = delete;
  Seal& operator=(const Seal&) = delete;

  // Comes before all that the caller does to the memory afterwards, for whoever reads it, too.
  void Break();
  bool is_whole() const { return word_->load() == kWhole; }
  std::span<const std::byte> bytes() const;

 private:
  using Word = std::atomic<std::uint64_t>;
  explicit Seal(Word* word) : word_(word) {}

  Word* const word_;
};

}  // namespace embla::wire
