#include "tools/ptx_run/machine.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "kernels/cuda/device.cuh"

namespace embla::ptx_run {
namespace {

namespace device = kernels::cuda;

constexpr std::size_t kAlignment = 256;
constexpr std::uint32_t kWarp = 32;

// A thread at a time: `meetings` with others of its warp lie behind it.
struct Moment {
  std::uint32_t thread = 0;  // In the grid, from 1 on; 0: none.
  std::uint32_t meetings = 0;

  std::uint32_t warp() const { return (thread - 1) / kWarp; }
};

// Whether `now`, a later access, is ordered behind `then`: of the same thread, or of one that has
// been at a meeting since. Lanes that share memory come to the same meetings.
bool IsBehind(const Moment& now, const Moment& then) {
  if (then.thread == 0 || now.thread == then.thread) return true;
  return now.warp() == then.warp() && now.meetings > then.meetings;
}

// A byte's accesses in the launch `launch`.
struct Shadow {
  std::uint32_t launch = 0;
  bool by_atomic = false;      // The writer wrote so.
  bool read_by_lanes = false;  // Several of a warp, the last one at the time of `reader`.
  bool read_by_warps = false;  // Several.
  Moment writer = {};
  Moment reader = {};
};

struct Allocation {
  std::uint64_t begin = 0;
  std::size_t bytes = 0;
  std::unique_ptr<Shadow[]> shadows;

  bool Has(std::uint64_t address, std::size_t size) const {
    return address >= begin && address - begin <= bytes && size <= bytes - (address - begin);
  }
};

struct Machine {
  std::map<std::string, const Kernel*> kernels;
  std::map<std::uint64_t, Allocation> allocations;
  Allocation* last = nullptr;  // The one that was accessed last.
  const Kernel* running = nullptr;
  std::uint32_t launch = 0;
  std::uint32_t block = 0;              // This block of the launch; its
  std::vector<std::uint32_t> meetings;  // threads have been at so many.
  // For the report.
  std::uint64_t threads = 0;
  std::uint64_t accesses = 0;
  std::set<const Kernel*> ran;

  ~Machine() {
    if (launch == 0) return;
    std::fprintf(stderr,
                 "PTX: %u launches of %zu kernels, %llu threads, %llu accesses checked: no race, "
                 "none misaligned or out of bounds, no trap\n",
                 launch, ran.size(), static_cast<unsigned long long>(threads),
                 static_cast<unsigned long long>(accesses));
    if (const char* const path = std::getenv("EMBLA_PTX_KERNELS"); path != nullptr) List(path);
  }

 private:
  // Every kernel of the program, and whether it was launched (launched.py).
  void List(const char* path) const {
    std::ofstream file(path);
    for (const auto& [name, kernel] : kernels) {
      file << (ran.contains(kernel) ? "launched " : "never ") << name << "\n";
    }
  }
};

// Kernels register themselves before main.
Machine& TheMachine() {
  static Machine machine;
  return machine;
}

[[noreturn]] void Fail(const std::string& what) {
  const Machine& machine = TheMachine();
  std::fprintf(stderr, "PTX: %s, block %u.%u thread %u: %s\n",
               machine.running == nullptr ? "no kernel" : machine.running->name.c_str(), CtaidX(),
               CtaidY(), Tid(), what.c_str());
  std::abort();
}

// "41_GLOBAL__N__afaecbd9_9_arrays_cu_61614731" without what tells compilations apart.
std::string WithoutFile(std::string name) {
  constexpr char kMark[] = "_GLOBAL__N__";
  const std::size_t at = name.find(kMark);
  if (at == std::string::npos) return name;
  std::size_t digits = at;
  while (digits > 0 && std::isdigit(static_cast<unsigned char>(name[digits - 1]))) --digits;
  // The mark follows other digits where the name before it ends in some: the length is the longest
  // that fits.
  for (; digits < at; ++digits) {
    const std::size_t length = std::stoul(name.substr(digits, at - digits));
    if (length <= name.size() - at) return name.erase(digits, at - digits + length);
  }
  return name;
}

// Null, or what is wrong with the access beside those of other threads.
const char* Conflict(Shadow& shadow, Access access, const Moment& now) {
  const bool behind_writer = IsBehind(now, shadow.writer);
  switch (access) {
    case Access::kAtomic:
      if (!behind_writer && !shadow.by_atomic) return "an atomic access of what another one wrote";
      shadow.writer = now;
      shadow.by_atomic = true;
      return nullptr;
    case Access::kWrite:
      if (!behind_writer) return "writes what another thread wrote";
      if (shadow.read_by_warps || !IsBehind(now, shadow.reader) ||
          (shadow.read_by_lanes && now.meetings <= shadow.reader.meetings)) {
        return "writes what another thread read";
      }
      shadow.writer = now;
      shadow.by_atomic = false;
      return nullptr;
    case Access::kReadConstant:
      if (shadow.writer.thread != 0) return "reads as constant what this launch wrote";
      break;
    case Access::kRead:
      if (!behind_writer && !shadow.by_atomic) return "reads what another thread wrote";
      break;
  }
  if (shadow.reader.thread != 0 && shadow.reader.thread != now.thread) {
    (shadow.reader.warp() == now.warp() ? shadow.read_by_lanes : shadow.read_by_warps) = true;
  }
  shadow.reader = {now.thread, std::max(now.meetings, shadow.reader.meetings)};
  return nullptr;
}

// The number of meetings that the calling thread has been at.
std::uint32_t& Meetings() {
  Machine& machine = TheMachine();
  const std::uint32_t block = CtaidY() * NctaidX() + CtaidX() + 1;
  if (machine.block != block) {
    machine.block = block;
    machine.meetings.assign(Ntid(), 0);
  }
  return machine.meetings[Tid()];
}

Moment Now() {
  const std::uint32_t block = CtaidY() * NctaidX() + CtaidX();
  return {block * Ntid() + Tid() + 1, Meetings()};
}

const std::uint64_t* Meet(std::uint32_t mask, std::uint64_t value) {
  const std::uint64_t* const values = device::emulated::Exchange(mask, value);
  ++Meetings();
  return values;
}

}  // namespace

Kernel::Kernel(const char* kernel_name, Function function, std::size_t bytes,
               std::vector<Parameter> list)
    : name(WithoutFile(kernel_name)),
      run(function),
      parameter_bytes(bytes),
      parameters(std::move(list)) {
  TheMachine().kernels[name] = this;
}

const Kernel* FindKernel(const std::string& name) {
  const auto it = TheMachine().kernels.find(WithoutFile(name));
  return it == TheMachine().kernels.end() ? nullptr : it->second;
}

void Queue(const Kernel& kernel, const Launch& launch, void* const* arguments) {
  const bool fits = launch.blocks_x > 0 && launch.blocks_y > 0 && launch.blocks_y <= 65535 &&
                    launch.threads > 0 && launch.threads <= 1024 && launch.threads % 32 == 0;
  if (!fits) Fail("a launch that a GPU would refuse");
  // In 16-byte words, so that parameters are as aligned as in a GPU's constant memory.
  std::vector<device::uint4> words(kernel.parameter_bytes / sizeof(device::uint4) + 1);
  auto* const bytes = reinterpret_cast<unsigned char*>(words.data());
  for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
    std::memcpy(bytes + kernel.parameters[i].offset, arguments[i], kernel.parameters[i].bytes);
  }
  device::emulated::Queue(
      [&kernel, launch, words] {
        Machine& machine = TheMachine();
        machine.running = &kernel;
        machine.ran.insert(&kernel);
        ++machine.launch;
        machine.block = 0;
        machine.threads += std::uint64_t{launch.blocks_x} * launch.blocks_y * launch.threads;
        const auto* const parameters = reinterpret_cast<const unsigned char*>(words.data());
        device::emulated::Run({launch.blocks_x, launch.threads, launch.blocks_y},
                              [&] { kernel.run(parameters); });
        machine.running = nullptr;
      },
      1);
}

void* Allocate(std::size_t bytes) {
  void* const memory = std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment);
  if (memory == nullptr) Fail("no memory");
  std::memset(memory, 0xff, bytes);
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  TheMachine().allocations[begin] = {begin, bytes, std::make_unique<Shadow[]>(bytes)};
  return memory;
}

void Free(void* memory) {
  TheMachine().last = nullptr;
  TheMachine().allocations.erase(reinterpret_cast<std::uintptr_t>(memory));
  std::free(memory);
}

std::uint32_t Tid() { return device::threadIdx.x; }
std::uint32_t Ntid() { return device::blockDim.x; }
std::uint32_t CtaidX() { return device::blockIdx.x; }
std::uint32_t CtaidY() { return device::blockIdx.y; }
std::uint32_t NctaidX() { return device::gridDim.x; }
std::uint32_t NctaidY() { return device::gridDim.y; }

void CheckAccess(std::uint64_t address, std::size_t bytes, Access access) {
  Machine& machine = TheMachine();
  ++machine.accesses;
  if (address % bytes != 0) Fail("a misaligned access");
  if (machine.last == nullptr || !machine.last->Has(address, bytes)) {
    auto it = machine.allocations.upper_bound(address);
    if (it == machine.allocations.begin()) Fail("an access outside every allocation");
    machine.last = &(--it)->second;
    if (!machine.last->Has(address, bytes)) Fail("an access out of bounds");
  }
  const Moment now = Now();
  Shadow* const shadows = machine.last->shadows.get() + (address - machine.last->begin);
  for (std::size_t i = 0; i < bytes; ++i) {
    Shadow& shadow = shadows[i];
    if (shadow.launch != machine.launch) shadow = {.launch = machine.launch};
    if (const char* const conflict = Conflict(shadow, access, now); conflict != nullptr) {
      Fail(std::string("a race: ") + conflict);
    }
  }
}

std::uint64_t MeetLanes(std::uint32_t mask, std::uint64_t value, std::uint32_t lane) {
  const std::uint64_t* const values = Meet(mask, value);
  if ((mask >> lane & 1) == 0) Fail("takes the value of a lane that does not come");
  return values[lane];
}

std::uint32_t Ballot(bool predicate, std::uint32_t mask) {
  const std::uint64_t* const values = Meet(mask, predicate ? 1 : 0);
  std::uint32_t ballot = 0;
  for (std::uint32_t lane = 0; lane < kWarp; ++lane) {
    if ((mask >> lane & 1) != 0 && values[lane] != 0) ballot |= 1u << lane;
  }
  return ballot;
}

void SyncWarp(std::uint32_t mask) { Meet(mask, 0); }

void Trap() { Fail("a trap"); }

}  // namespace embla::ptx_run
