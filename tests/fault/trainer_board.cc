#include "tests/fault/trainer_board.h"

#include <utility>

#include "absl/time/clock.h"
#include "core/base/status_macros.h"

namespace embla::fault {
namespace {

constexpr std::size_t kWordsPerSlot = sizeof(TrainerSlot) / sizeof(SharedMemory::Word);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace

absl::StatusOr<TrainerBoard> TrainerBoard::Open(const std::string& path, int trainers) {
  EMBLA_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Open(path, trainers * kWordsPerSlot));
  return TrainerBoard(std::move(memory));
}

// Lock-free atomics that are 0 are bytes that are 0, wherever they came from.
std::span<TrainerSlot> TrainerBoard::slots() const {
  const std::span<SharedMemory::Word> words = memory_.words();
  return {reinterpret_cast<TrainerSlot*>(words.data()), words.size() / kWordsPerSlot};
}

void TrainerBoard::Tell(const TrainerCommand& command) const {
  for (TrainerSlot& slot : slots()) StoreAndWake(slot.wanted, command.Word());
}

bool TrainerBoard::AwaitReached(absl::Duration timeout) const {
  const absl::Time until = absl::Now() + timeout;
  for (TrainerSlot& slot : slots()) {
    std::uint32_t reached = slot.reached.load();
    while (reached != slot.wanted.load()) {
      if (absl::Now() >= until) return false;
      reached = AwaitChange(slot.reached, reached, until - absl::Now());
    }
  }
  return true;
}

}  // namespace embla::fault
