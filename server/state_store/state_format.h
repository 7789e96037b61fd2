// The bytes of the embedded state store's two files; page: docs/state_store_format.md.
//
// A log is a file header, then one frame per commit. A commit is acknowledged after its frame is
// synced, and the next frame is written only after that. So a bad frame is the torn end of a crash
// only if nothing was written behind it and it is cut short or has a sector that never reached
// the disk (all zero); everything else is corruption. Every frame begins and ends with a non-zero
// byte, so that no healthy frame has an all-zero piece of a sector at its ends.
// Covered by state_format_test.cc: a cut at every byte, a flip of every bit, zeroed sectors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/state_store/state_store.h"

namespace embla {

// One commit as the log keeps it.
struct StateFrame {
  Revision revision{};
  std::vector<StateWrite> writes;
};

struct StateLogContent {
  std::vector<StateFrame> frames;
  std::uint64_t valid_bytes = 0;  // After them the file has a torn frame, or ends.
};

struct StateSnapshot {
  Revision revision{};
  std::vector<StateEntry> entries;
};

std::string EncodeStateLogHeader();
std::string EncodeStateFrame(Revision revision, std::span<const StateWrite> writes);
// `file` names the file in errors. DataLoss tells the offset and what is wrong there.
absl::StatusOr<StateLogContent> DecodeStateLog(std::string_view content, std::string_view file);

std::string EncodeStateSnapshot(const StateSnapshot& snapshot);
absl::StatusOr<StateSnapshot> DecodeStateSnapshot(std::string_view content, std::string_view file);

}  // namespace embla
