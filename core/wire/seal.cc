#include "core/wire/seal.h"

#include <sys/mman.h>

#include <new>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "core/base/mutex.h"

namespace embla::wire {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kLineBytes = 64;

using Word = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == sizeof(std::uint64_t));

// Memory of seals. It is shared with children of the process: of private memory the kernel would go
// on to show what it was before a fork, however this process changes it. Kept for ever.
struct Words {
  Mutex mu;
  std::vector<Word*> free ABSL_GUARDED_BY(mu);

  static Words& Get() {
    static Words& words = *new Words;
    return words;
  }
  Word* Take() {
    MutexLock lock(mu);
    if (free.empty()) {
      void* const page =
          ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
      if (page == MAP_FAILED) return nullptr;
      for (std::size_t at = 0; at < kPageBytes; at += kLineBytes) {
        free.push_back(new (static_cast<std::byte*>(page) + at) Word(0));
      }
    }
    Word* const word = free.back();
    free.pop_back();
    return word;
  }
  void Give(Word* word) {
    MutexLock lock(mu);
    free.push_back(word);
  }
};

}  // namespace

std::shared_ptr<Seal> Seal::Make() {
  Word* const word = Words::Get().Take();
  if (word == nullptr) return nullptr;
  word->store(kWhole);
  return std::shared_ptr<Seal>(new Seal(word));
}

Seal::~Seal() { Words::Get().Give(word_); }

void Seal::Break() {
  word_->store(0);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

std::span<const std::byte> Seal::bytes() const {
  return {reinterpret_cast<const std::byte*>(word_), sizeof(Word)};
}

}  // namespace embla::wire
