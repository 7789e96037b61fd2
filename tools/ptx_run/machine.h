// A GPU as far as translated kernels can tell: blocks of threads that meet in warps, and memory
// that checks every access. Threads are the emulated device's (kernels/cuda/emulated/device.h):
// fibers, which take turns, so that a run is the same each time.
//
// Checked of every access: its alignment; that it lies inside one allocation; and that no other
// thread of the launch has touched the bytes in a way whose order is anybody's guess: of another
// warp at all, of the same warp since the two have met. The first violation ends the process with
// the kernel, the block and the thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace embla::ptx_run {

// A translated kernel, found by the name that it has in PTX.
struct Kernel {
  struct Parameter {
    std::size_t offset;
    std::size_t bytes;
  };
  using Function = void (*)(const unsigned char* parameters);

  Kernel(const char* name, Function run, std::size_t parameter_bytes,
         std::vector<Parameter> parameters);

  std::string name;
  Function run;
  std::size_t parameter_bytes;
  std::vector<Parameter> parameters;
};
// Null: there is none. What stands for a file in the names of its anonymous namespace does not
// count: it differs from one compilation to the next.
const Kernel* FindKernel(const std::string& name);

struct Launch {
  unsigned blocks_x = 1;
  unsigned blocks_y = 1;
  unsigned threads = 1;
};
// Runs it, or records it (kernels/cuda/emulated/recording.h). `arguments` are copied.
void Queue(const Kernel& kernel, const Launch& launch, void* const* arguments);

// Memory of exactly `bytes`, filled with ones; multiples of 256 only by its address.
void* Allocate(std::size_t bytes);
void Free(void* memory);

// For instructions.h.

std::uint32_t Tid();
std::uint32_t Ntid();
std::uint32_t CtaidX();
std::uint32_t CtaidY();
std::uint32_t NctaidX();
std::uint32_t NctaidY();

enum class Access : std::uint8_t {
  kRead,
  kReadConstant,  // ld.global.nc: the launch does not write there.
  kWrite,
  kAtomic,
};
void CheckAccess(std::uint64_t address, std::size_t bytes, Access access);

// Meets the lanes of `mask`; the value that `lane` brought.
std::uint64_t MeetLanes(std::uint32_t mask, std::uint64_t value, std::uint32_t lane);
std::uint32_t Ballot(bool predicate, std::uint32_t mask);
void SyncWarp(std::uint32_t mask);
[[noreturn]] void Trap();

}  // namespace embla::ptx_run
