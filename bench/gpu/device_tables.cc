#include "bench/gpu/device_tables.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "bench/gpu/device_clock.h"
#include "bench/gpu/options.h"
#include "kernels/cpu/reference.h"
#include "kernels/cuda/arrays.h"
#include "kernels/cuda/initialize.h"
#include "kernels/cuda/lookup.h"

namespace embla::bench {
namespace {

constexpr kernels::InitParameters kWeights{kernels::InitRule::kUniform, -1.0f, 1.0f, 7};
constexpr std::size_t kVerifiedOutputs = 500;

std::vector<std::uint32_t> OffsetsOf(const Workload& workload) {
  std::vector<std::uint32_t> offsets(workload.outputs() + 1);
  for (std::size_t b = 0; b < offsets.size(); ++b) {
    offsets[b] = static_cast<std::uint32_t>(b * workload.bag_length);
  }
  return offsets;
}

}  // namespace

void CheckVerb(int error) {
  if (error == 0) return;
  std::fprintf(stderr, "a kernel was not launched: %s\n", kernels::cuda::ErrorText(error));
  std::exit(kWrongResult);
}

DeviceTables::DeviceTables(const Workload& workload)
    : workload_(workload),
      weights_(nullptr, std::size_t{workload.slots()} * workload.row_bytes()),
      outputs_(nullptr, workload.outputs() * workload.dim * sizeof(float)),
      offsets_(OffsetsOf(workload)),
      xor_outputs_(nullptr, kXorOutputs * sizeof(std::uint32_t)) {
  for (std::size_t b = 0; b < kBatches; ++b) {
    slots_.push_back(DrawSlots(workload, b + 1));
    std::vector<std::uint32_t> local = slots_.back();
    for (std::uint32_t& slot : local) slot %= workload.rows;
    device_slots_.push_back(std::make_unique<OnDevice>(slots_.back()));
    local_slots_.push_back(std::make_unique<OnDevice>(local));
  }
  Initialize();
}

void DeviceTables::Initialize() {
  CheckVerb(
      kernels::cuda::InitializeAsync(kWeights, {rows(), 0, 0}, 0, workload_.slots(), nullptr));
}

void DeviceTables::InitialRow(std::uint32_t slot, std::byte* out) const {
  const kernels::MutableRows row{out, workload_.row_bytes(), workload_.dim, workload_.element};
  kernels::reference::Initialize(kWeights, {row, slot, 0}, 0, 1);
}

kernels::MutableRows DeviceTables::RowsFrom(std::uint32_t table) const {
  const std::size_t bytes = workload_.row_bytes();
  return {weights_.data() + std::size_t{table} * workload_.rows * bytes, bytes, workload_.dim,
          workload_.element};
}

void DeviceTables::LookUpRows(const kernels::MutableRows& rows, const std::uint32_t* slots,
                              std::size_t bags, float* out, StreamHandle stream) const {
  const kernels::Rows source{rows.base, rows.stride_bytes, rows.columns, rows.element};
  const kernels::Output target{out, workload_.dim * sizeof(float), kernels::Element::kFloat32};
  CheckVerb(workload_.pooled() ? kernels::cuda::PoolAsync(source, {slots, offsets(), nullptr, bags},
                                                          target, stream)
                               : kernels::cuda::GatherAsync(source, slots, bags, target, stream));
}

void DeviceTables::LookUp(std::size_t batch, StreamHandle stream) const {
  LookUpRows(rows(), DeviceSlots(batch), workload_.outputs(), outputs_.As<float>(), stream);
}

void DeviceTables::LookUpByTable(std::size_t batch, StreamHandle stream) const {
  for (std::uint32_t t = 0; t < workload_.tables; ++t) {
    LookUpRows(RowsFrom(t), LocalSlots(batch, t), workload_.bags,
               outputs_.As<float>() + std::size_t{t} * workload_.bags * workload_.dim, stream);
  }
}

std::vector<std::byte> DeviceTables::ExpectedOutput(std::size_t output) const {
  const std::size_t length = workload_.pooled() ? workload_.bag_length : 1;
  std::vector<std::byte> rows(length * workload_.row_bytes());
  for (std::size_t i = 0; i < length; ++i) {
    InitialRow(slots_[0][output * length + i], rows.data() + i * workload_.row_bytes());
  }
  std::vector<std::uint32_t> slots(length);
  std::iota(slots.begin(), slots.end(), 0u);
  std::vector<std::byte> expected(workload_.dim * sizeof(float));
  const kernels::Rows source{rows.data(), workload_.row_bytes(), workload_.dim, workload_.element};
  const kernels::Output target{expected.data(), expected.size(), kernels::Element::kFloat32};
  if (workload_.pooled()) {
    const std::uint32_t lengths[] = {workload_.bag_length};
    kernels::reference::Pool(source, {slots, lengths, nullptr}, target);
  } else {
    kernels::reference::Gather(source, slots, target);
  }
  return expected;
}

void DeviceTables::VerifyLookup(const std::string& what,
                                const std::function<void(std::size_t)>& look_up) const {
  // Poisoned: what is not written is not right.
  const std::size_t floats = workload_.outputs() * workload_.dim;
  CheckVerb(kernels::cuda::FillAsync(outputs_.As<float>(), floats,
                                     std::numeric_limits<float>::quiet_NaN(), nullptr));
  look_up(0);
  const std::size_t step = std::max<std::size_t>(workload_.outputs() / kVerifiedOutputs, 1);
  std::vector<std::byte> got(workload_.dim * sizeof(float));
  for (std::size_t output = 0; output < workload_.outputs(); output += step) {
    kernels::cuda::CopyToHost(got.data(), outputs_.data() + output * got.size(), got.size());
    if (got != ExpectedOutput(output)) {
      FailVerification(workload_, what + ", output " + std::to_string(output));
    }
  }
}

CopyCeiling::CopyCeiling(std::size_t bytes)
    : bytes_(bytes / 16 * 16), from_(nullptr, bytes), to_(nullptr, bytes) {
  CheckVerb(kernels::cuda::FillAsync(from_.As<float>(), bytes_ / sizeof(float), 1.0f, nullptr));
}

GpuContender CopyCeiling::kernel() const {
  const double moved = 2.0 * static_cast<double>(bytes_);
  return {"ceiling: copy",
          [this](std::size_t) { CheckVerb(CopyAsync(from_.data(), to_.data(), bytes_, nullptr)); },
          {moved, moved},
          0,
          ""};
}

GpuContender CopyCeiling::driver() const {
  GpuContender contender = kernel();
  contender.name = "ceiling: driver's copy";
  contender.queue = [this](std::size_t) { QueueDriversCopy(from_.data(), to_.data(), bytes_); };
  return contender;
}

GpuContender DeviceTables::RandomReads() const {
  MovedBytes read;
  read.nominal = static_cast<double>(workload_.ids() * workload_.row_bytes());
  read.floor = read.nominal;
  return {"ceiling: random rows",
          [this](std::size_t batch) {
            CheckVerb(XorRowsAsync(row_array(), DeviceSlots(batch), workload_.ids(),
                                   xor_outputs_.As<std::uint32_t>(), nullptr));
          },
          read, workload_.ids(), ""};
}

}  // namespace embla::bench
