// A lookup's reply in frames: its first rows are sent as soon as every device has written them, so
// that they travel while the later ones are gathered.
//
// The rows are cut into chunks. Every device says when it has done its share of a chunk, and how
// many ids it has found; whoever completes the first chunk that is not sent hands over everything
// that is complete from there. A chunk with ids that nobody has is never complete: what follows
// waits for the end of the lookup, which looks at such ids. So does the last chunk, always.
//
// Thread safety: Complete may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/mutex.h"
#include "server/shard/shard_node.h"

namespace embla {

class ReplyFrames {
 public:
  explicit ReplyFrames(LookupFrames frames) : frames_(std::move(frames)) {}

  bool enabled() const { return frames_.send != nullptr; }
  std::size_t chunk_bytes() const { return frames_.bytes; }  // About.
  // Less is not sent before the end.
  std::size_t sent_bytes_min() const { return (frames_.bytes + 1) / 2; }

  // --- Before the first Complete.
  // All rows are sent at the end of the lookup; Complete does nothing.
  void Disable() { frames_.send = nullptr; }
  // Chunks follow each other in the reply: this one ends at byte `end` and is complete when
  // `devices` have found `ids` in it (in any unit).
  void AddChunk(std::size_t end, std::uint32_t devices, std::size_t ids);
  std::size_t chunks() const;
  void SetReply(PlanVersion plan_version, SharedBuffer reply);

  // Once per device and chunk; `found` of the chunk's ids. Sends what is complete.
  void Complete(std::size_t chunk, std::size_t found);

  // The bytes that were sent. Requires: no Complete runs any more.
  std::size_t sent_bytes() const;

 private:
  struct Chunk {
    std::size_t end = 0;
    std::uint32_t devices_left = 0;
    std::size_t ids_left = 0;

    bool complete() const { return devices_left == 0 && ids_left == 0; }
  };

  // The rows to send now; nothing: this thread stops sending.
  std::optional<SharedBuffer> TakeReady();

  LookupFrames frames_;
  PlanVersion plan_version_{};
  SharedBuffer reply_;

  mutable Mutex mu_;
  std::vector<Chunk> chunks_ ABSL_GUARDED_BY(mu_);
  std::size_t next_ ABSL_GUARDED_BY(mu_) = 0;  // The first chunk that is not complete.
  std::size_t sent_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool sending_ ABSL_GUARDED_BY(mu_) = false;  // Some thread calls frames_.send.
};

}  // namespace embla
