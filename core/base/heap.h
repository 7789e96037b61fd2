// The settings of malloc that a program with large messages needs.
//
// gRPC allocates the memory that a message is received into and frees it when the message has been
// taken apart. By default malloc gives the end of the heap back to the kernel as soon as it is
// free, and maps large blocks one by one, so every message pays for new pages: a page fault and
// 4 KiB of zeros for each 4 KiB of message. The settings hold for the whole process and its future
// children; call both functions at the start of main, before there are threads.
#pragma once

#include <cstddef>
#include <limits>

#include "absl/status/status.h"

namespace embla {

// Limits the heaps that malloc's threads spread over to one for eight cores, as long as it has only
// one: each keeps what was freed in it, so requests that come by this and that thread would take
// their memory as often. MALLOC_ARENA_MAX, where it is set, counts instead.
void KeepFewArenas();

// malloc takes its settings as int.
inline constexpr std::size_t kKeptHeapBytesMax = std::numeric_limits<int>::max();
// The heap that programs keep unless they are told otherwise.
inline constexpr std::size_t kKeptHeapBytes = std::size_t{512} << 20;

// From now on malloc keeps up to `bytes` of free memory at the end of the heap, and takes blocks of
// up to 32 MiB from it. Zero changes nothing. Memory that is kept can be given back at any time
// (malloc_trim). Errors: InvalidArgument (more than kKeptHeapBytesMax), Unavailable (this process's
// malloc has no such settings).
absl::Status KeepHeap(std::size_t bytes);

// Bytes of the heap that are free, and that the process keeps.
std::size_t FreeHeapBytes();

}  // namespace embla
