#include "server/app/device_list.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <map>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/host_memory.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "server/gpu/gpus.h"
#include "server/table/device_executor.h"

namespace embla {
namespace {

// Bandwidth of a PCIe link of 16 lanes (generation 4), which rows that are not on the GPU have to
// cross.
constexpr std::int64_t kLinkBytesPerSecond = std::int64_t{32} << 30;

// The whole of `text`; no sign.
bool ParseNumber(std::string_view text, std::uint32_t& number) {
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  return !text.empty() && parsed.ec == std::errc() && parsed.ptr == end;
}

bool ParseGpus(std::string_view text, DeviceItem& item) {
  item.kind = DeviceKind::kGpu;
  item.all = text == "all";
  if (item.all) return true;
  const std::size_t dash = text.find('-');
  if (!ParseNumber(text.substr(0, dash), item.first)) return false;
  item.last = item.first;
  return dash == std::string_view::npos ||
         (ParseNumber(text.substr(dash + 1), item.last) && item.first <= item.last &&
          item.last - item.first < kDevicesPerNodeMax);
}

bool ParseItem(std::string_view text, DeviceItem& item) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return false;
  const std::string_view kind = text.substr(0, colon), which = text.substr(colon + 1);
  if (kind == "gpu") return ParseGpus(which, item);
  return kind == "cpu" && ParseNumber(which, item.count) && item.count >= 1 &&
         item.count <= kDevicesPerNodeMax;
}

absl::Status NoSuchGpu(std::uint32_t ordinal, std::size_t count) {
  return absl::FailedPreconditionError(
      absl::StrCat("--devices gpu:", ordinal, ": this machine has ", count,
                   count == 1 ? " GPU, gpu:0" : absl::StrCat(" GPUs, gpu:0-", count - 1)));
}

// The ordinal of each device; -1: a CPU device.
absl::StatusOr<std::vector<int>> Ordinals(const std::vector<DeviceItem>& items,
                                          const GpuSource& gpus) {
  std::size_t gpu_count = 0;
  if (std::any_of(items.begin(), items.end(),
                  [](const DeviceItem& item) { return item.kind == DeviceKind::kGpu; })) {
    const auto found = gpus.list();
    if (!found.ok()) {
      return absl::FailedPreconditionError(absl::StrCat("--devices gpu: ", Message(found.status()),
                                                        "; or use CPU devices, --devices cpu:N"));
    }
    gpu_count = found->size();
  }
  std::vector<int> ordinals;
  for (const DeviceItem& item : items) {
    if (item.kind == DeviceKind::kCpu) {
      ordinals.insert(ordinals.end(), item.count, -1);
      continue;
    }
    const std::size_t first = item.all ? 0 : item.first;
    const std::size_t end = item.all ? gpu_count : std::size_t{item.last} + 1;
    if (end > gpu_count) return NoSuchGpu(item.last, gpu_count);
    for (std::size_t i = first; i < end; ++i) ordinals.push_back(static_cast<int>(i));
  }
  if (ordinals.size() <= kDevicesPerNodeMax) return ordinals;
  return absl::InvalidArgumentError(absl::StrCat(
      "--devices: ", ordinals.size(), " devices; a node has at most ", kDevicesPerNodeMax));
}

absl::Status CheckFree(const gpu::Device& device, std::string_view flag, std::int64_t wanted,
                       std::int64_t shares) {
  const gpu::DeviceProperties& properties = device.properties();
  if (wanted <= properties.free_bytes / shares) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      ToAbsl(flag), " ", wanted, ": GPU ", properties.ordinal, " (", properties.name, ") has ",
      properties.free_bytes, " of ", properties.memory_bytes, " bytes free, for ", shares,
      shares == 1 ? " device" : " devices", "; state fewer, or end what else uses the GPU"));
}

// `devices` have their rows in host memory.
absl::Status CheckHost(std::int64_t wanted, std::int64_t host_bytes, std::int64_t devices) {
  if (devices == 0 || wanted <= host_bytes / devices) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "--memory-per-device ", wanted, ": this machine (or its container) has ", host_bytes,
      " bytes in all, for ", devices, devices == 1 ? " device" : " devices",
      "; state fewer, and leave some for all that is not rows"));
}

// By default the same at every start: a node that has tables must come back with the memory that
// they were planned for, whoever else uses the GPU.
absl::StatusOr<DeviceSpec> GpuSpec(const gpu::Device& device, const DeviceListOptions& options,
                                   std::int64_t shares) {
  const gpu::DeviceProperties& properties = device.properties();
  DeviceSpec spec{.kind = DeviceKind::kGpu, .memory_bytes = options.memory_per_device};
  if (options.gpu_cache_bytes > 0) {
    if (spec.memory_bytes == 0) {
      return absl::InvalidArgumentError(
          "--gpu-cache: state --memory-per-device, too: it is host memory then, and all devices of "
          "this node share it");
    }
    spec.memory_bytes_per_second = kLinkBytesPerSecond;
    EMBLA_RETURN_IF_ERROR(CheckFree(device, "--gpu-cache", options.gpu_cache_bytes, shares));
    return spec;
  }
  if (spec.memory_bytes == 0) spec.memory_bytes = properties.memory_bytes / 10 * 9 / shares;
  spec.memory_bytes_per_second = properties.memory_bytes_per_second;
  EMBLA_RETURN_IF_ERROR(CheckFree(device, "--memory-per-device", spec.memory_bytes, shares));
  return spec;
}

// Whether every GPU reads the memory of every other.
bool HaveAccess(const std::vector<std::unique_ptr<gpu::Device>>& gpus) {
  return std::ranges::all_of(gpus, [&](const auto& reader) {
    return std::ranges::all_of(
        gpus, [&](const auto& other) { return reader->EnableAccessTo(*other).ok(); });
  });
}

}  // namespace

absl::StatusOr<std::vector<DeviceItem>> ParseDevices(const std::string& text) {
  std::vector<DeviceItem> items;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    if (ParseItem(ToStd(absl::StripAsciiWhitespace(part)), items.emplace_back())) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--devices ", text, ": `", part,
                     "` is none of cpu:N, gpu:I, gpu:I-J and gpu:all (N from 1 to ",
                     kDevicesPerNodeMax, ", I from 0), which commas join"));
  }
  return items;
}

GpuSource MachineGpus() { return {&gpu::ListGpus, &gpu::OpenGpu}; }

absl::StatusOr<DeviceList> OpenDevices(const std::vector<DeviceItem>& items,
                                       const DeviceListOptions& options, const GpuSource& gpus) {
  EMBLA_ASSIGN_OR_RETURN(const std::vector<int> ordinals, Ordinals(items, gpus));
  const auto shares_of = [&](int ordinal) {
    return static_cast<std::int64_t>(std::count(ordinals.begin(), ordinals.end(), ordinal));
  };
  const std::int64_t host_bytes = FindHostMemory().bytes;
  DeviceList devices;
  std::map<int, gpu::Device*> opened;
  for (const int ordinal : ordinals) {
    DeviceSpec& spec = devices.specs.emplace_back();
    gpu::Device*& gpu = devices.gpus.emplace_back(nullptr);
    if (ordinal < 0) {
      spec.memory_bytes = options.memory_per_device > 0 ? options.memory_per_device
                                                        : host_bytes / 10 * 8 / shares_of(-1);
      continue;
    }
    if (opened[ordinal] == nullptr) {
      EMBLA_ASSIGN_OR_RETURN(devices.owned.emplace_back(),
                             gpus.open(static_cast<std::uint32_t>(ordinal)));
      opened[ordinal] = devices.owned.back().get();
    }
    gpu = opened[ordinal];
    EMBLA_ASSIGN_OR_RETURN(spec, GpuSpec(*gpu, options, shares_of(ordinal)));
  }
  const std::int64_t in_host = options.gpu_cache_bytes > 0 ? std::ssize(ordinals) : shares_of(-1);
  EMBLA_RETURN_IF_ERROR(CheckHost(options.memory_per_device, host_bytes, in_host));
  devices.choice = options.collectives == Collectives::kAuto
                       ? ChooseCollectives(devices.gpus)
                       : CollectivesChoice{options.collectives, "as the flag says"};
  const bool have_access =
      devices.choice.collectives != Collectives::kHost && HaveAccess(devices.owned);
  for (DeviceSpec& spec : devices.specs) {
    spec.peer_access = have_access && spec.kind == DeviceKind::kGpu;
  }
  return devices;
}

absl::StatusOr<std::int64_t> ParseBytes(const std::string& text) {
  const absl::Status error = absl::InvalidArgumentError(
      absl::StrCat("`", text, "` is not a number of bytes such as 1073741824, 512MiB or 64G"));
  std::int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || value < 0) return error;
  std::string unit(absl::StripAsciiWhitespace(absl::string_view(
      parsed.ptr, static_cast<std::size_t>(text.data() + text.size() - parsed.ptr))));
  absl::AsciiStrToUpper(&unit);
  if (absl::EndsWith(unit, "B")) unit.pop_back();
  if (absl::EndsWith(unit, "I")) unit.pop_back();
  constexpr std::string_view kUnits = "KMGT";
  if (unit.empty()) return value;
  const std::size_t power = unit.size() == 1 ? kUnits.find(unit[0]) : std::string_view::npos;
  if (power == std::string_view::npos) return error;
  const int shift = 10 * (static_cast<int>(power) + 1);
  if (value > (std::numeric_limits<std::int64_t>::max() >> shift)) return error;
  return value << shift;
}

}  // namespace embla
