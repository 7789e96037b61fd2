#include "bench/gpu/device_updates.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "bench/gpu/options.h"
#include "kernels/cpu/reference.h"
#include "kernels/cuda/arrays.h"
#include "kernels/cuda/combine.h"
#include "kernels/cuda/initialize.h"
#include "kernels/cuda/optimizer_step.h"

namespace embla::bench {
namespace {

using kernels::Element;

constexpr kernels::InitParameters kGradients{kernels::InitRule::kUniform, -1.0f, 1.0f, 11};
constexpr std::uint64_t kStep = 1;
constexpr std::size_t kVerifiedRows = 64;

kernels::MutableRows FloatRows(void* base, std::uint32_t dim) {
  return {base, dim * sizeof(float), dim, Element::kFloat32};
}

}  // namespace

DeviceUpdates::DeviceUpdates(const Workload& workload, OptimizerKind rule)
    : tables_(workload),
      row_state_(nullptr,
                 std::size_t{workload.slots()} * kernels::RowStateFloats(rule) * sizeof(float)),
      element_state_(nullptr, std::size_t{workload.slots()} * kernels::ElementStateArrays(rule) *
                                  workload.dim * sizeof(float)),
      gradients_(nullptr, workload.outputs() * workload.dim * sizeof(float)),
      bag_of_(nullptr, workload.ids() * sizeof(std::uint32_t)),
      partial_bytes_(kernels::cuda::PartialSumsBytes(workload.ids(), workload.dim)),
      partials_(nullptr, partial_bytes_) {
  parameters_.rule = rule;
  CheckVerb(kernels::cuda::GroupBytes(workload.ids(), &grouping_bytes_));
  grouping_ = std::make_unique<OnDevice>(nullptr, grouping_bytes_);
  CheckVerb(kernels::cuda::InitializeAsync(kGradients,
                                           {FloatRows(gradients_.data(), workload.dim), 0, 0}, 0,
                                           workload.outputs(), nullptr));
  for (std::size_t b = 0; b < kBatches; ++b) {
    unique_.push_back(Unique(tables_.slots(b)));
    device_unique_.push_back(std::make_unique<OnDevice>(unique_.back()));
  }
}

kernels::StepRows DeviceUpdates::StepRowsOf(std::uint32_t first_table) const {
  const std::size_t first = std::size_t{first_table} * tables_.workload().rows;
  kernels::StepRows rows;
  rows.weights = tables_.RowsFrom(first_table);
  rows.row_state = row_state_.As<float>() + first * row_state_bytes() / sizeof(float);
  rows.element_state = element_state_.As<float>() + first * element_state_bytes() / sizeof(float);
  rows.first_row = static_cast<std::int64_t>(first);
  rows.dim = tables_.workload().dim;
  return rows;
}

void DeviceUpdates::UpdatePart(const Part& part, StreamHandle stream) const {
  const Workload& workload = tables_.workload();
  const std::size_t ids = part.tables * workload.ids_of_table();
  const std::size_t bags = std::size_t{part.tables} * workload.bags;
  auto* const bag_of = workload.pooled() ? bag_of_.As<std::uint32_t>() : nullptr;
  if (bag_of != nullptr) {
    CheckVerb(
        kernels::cuda::ExpandBagsAsync(tables_.offsets(), bags, ids, bag_of, nullptr, stream));
  }
  kernels::cuda::DeviceGrouping grouping;
  CheckVerb(kernels::cuda::GroupAsync(part.slots, ids, part.tables * workload.rows,
                                      {grouping_->data(), grouping_bytes_}, &grouping, stream));
  const std::size_t row_bytes = workload.dim * sizeof(float);
  const kernels::cuda::DeviceGradients gradients{
      {gradients_.data() + std::size_t{part.first_table} * workload.bags * row_bytes, row_bytes,
       Element::kFloat32},
      workload.dim,
      bag_of};
  CheckVerb(kernels::cuda::UpdateAsync(parameters_, StepRowsOf(part.first_table), grouping,
                                       gradients, kStep, {partials_.data(), partial_bytes_},
                                       stream));
}

void DeviceUpdates::Update(std::size_t batch, StreamHandle stream) const {
  UpdatePart({0, tables_.workload().tables, tables_.DeviceSlots(batch)}, stream);
}

void DeviceUpdates::UpdateByTable(std::size_t batch, StreamHandle stream) const {
  for (std::uint32_t t = 0; t < tables_.workload().tables; ++t) {
    UpdatePart({t, 1, tables_.LocalSlots(batch, t)}, stream);
  }
}

void DeviceUpdates::Initialize() {
  const std::size_t slots = tables_.workload().slots();
  tables_.Initialize();
  for (const auto& [state, bytes] : {std::pair{&row_state_, row_state_bytes()},
                                     std::pair{&element_state_, element_state_bytes()}}) {
    CheckVerb(
        kernels::cuda::FillAsync(state->As<float>(), slots * bytes / sizeof(float), 0.0f, nullptr));
  }
}

// The one with most positions, some more, and one that no position has, if there is one.
std::vector<std::uint32_t> DeviceUpdates::VerifiedSlots() const {
  std::unordered_map<std::uint32_t, std::size_t> counts;
  for (const std::uint32_t slot : tables_.slots(0)) ++counts[slot];
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  std::vector<std::uint32_t> verified = {most->first};
  const std::size_t stride = std::max<std::size_t>(unique_[0].size() / kVerifiedRows, 1);
  for (std::size_t i = 0; i < unique_[0].size(); i += stride) {
    if (unique_[0][i] != most->first) verified.push_back(unique_[0][i]);
  }
  for (std::uint32_t slot = 0; slot < tables_.workload().slots(); ++slot) {
    if (counts.contains(slot)) continue;
    verified.push_back(slot);
    break;
  }
  return verified;
}

std::vector<std::byte> DeviceUpdates::RowOnDevice(std::uint32_t slot) const {
  const std::size_t weights = tables_.workload().row_bytes();
  std::vector<std::byte> row(weights + row_state_bytes() + element_state_bytes());
  std::byte* out = row.data();
  const auto take = [&](const std::byte* array, std::size_t bytes) {
    if (bytes != 0) kernels::cuda::CopyToHost(out, array + slot * bytes, bytes);
    out += bytes;
  };
  take(static_cast<const std::byte*>(tables_.rows().base), weights);
  take(row_state_.data(), row_state_bytes());
  take(element_state_.data(), element_state_bytes());
  return row;
}

DeviceUpdates::RowGradients DeviceUpdates::GradientsOfVerified() const {
  const Workload& workload = tables_.workload();
  std::unordered_map<std::uint32_t, std::uint32_t> row_of;
  for (std::uint32_t i = 0; i < verified_.size(); ++i) row_of[verified_[i]] = i;
  RowGradients gradients;
  for (std::size_t p = 0; p < workload.ids(); ++p) {
    const auto it = row_of.find(tables_.slots(0)[p]);
    if (it == row_of.end()) continue;
    gradients.rows_of.push_back(it->second);
    gradients.values.resize(gradients.values.size() + workload.dim);
    float* const row = &gradients.values[gradients.values.size() - workload.dim];
    const std::size_t bag = workload.pooled() ? p / workload.bag_length : p;
    kernels::Initialize(kGradients,
                        {FloatRows(row, workload.dim), static_cast<std::int64_t>(bag), 0}, 0, 1);
  }
  return gradients;
}

// By an update of a table that has the verified rows alone, verified_[i]'s at i.
std::vector<std::vector<std::byte>> DeviceUpdates::ReferenceRows() const {
  const Workload& workload = tables_.workload();
  const RowGradients gradients = GradientsOfVerified();
  kernels::Grouping grouping;
  kernels::reference::GroupIds(gradients.rows_of, grouping);
  const kernels::Input rows{gradients.values.data(), workload.dim * sizeof(float),
                            Element::kFloat32};
  std::vector<float> sums(grouping.ids.size() * workload.dim);
  kernels::reference::SumSegments(grouping, {rows, workload.dim, nullptr, nullptr, 0.0f}, 0,
                                  grouping.ids.size(), sums, workload.dim);

  const std::size_t count = verified_.size();
  std::vector<std::byte> weights(count * workload.row_bytes());
  for (std::size_t i = 0; i < count; ++i) {
    tables_.InitialRow(verified_[i], weights.data() + i * workload.row_bytes());
  }
  std::vector<float> row_state(count);
  std::vector<float> element_state(count * element_state_bytes() / sizeof(float));
  const std::vector<std::uint32_t> stepped(grouping.ids.begin(), grouping.ids.end());
  kernels::reference::Step(parameters_,
                           {{weights.data(), workload.row_bytes(), workload.dim, workload.element},
                            row_state.data(),
                            element_state.data(),
                            0,
                            0,
                            workload.dim},
                           {stepped, sums.data(), workload.dim, nullptr, kStep});

  std::vector<std::vector<std::byte>> expected(count);
  const auto append = [&](const void* array, std::size_t bytes) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto* const begin = static_cast<const std::byte*>(array) + i * bytes;
      expected[i].insert(expected[i].end(), begin, begin + bytes);
    }
  };
  append(weights.data(), workload.row_bytes());
  append(row_state.data(), row_state_bytes());
  append(element_state.data(), element_state_bytes());
  return expected;
}

void DeviceUpdates::VerifyUpdate(const std::string& what,
                                 const std::function<void(std::size_t)>& update) {
  if (verified_.empty()) {
    verified_ = VerifiedSlots();
    expected_ = ReferenceRows();
  }
  Initialize();
  update(0);
  for (std::size_t i = 0; i < verified_.size(); ++i) {
    if (RowOnDevice(verified_[i]) != expected_[i]) {
      FailVerification(tables_.workload(), what + ", slot " + std::to_string(verified_[i]));
    }
  }
}

GpuContender DeviceUpdates::RandomUpdates() const {
  const double rows = static_cast<double>(unique_[0].size());
  const double bytes =
      2.0 * rows * static_cast<double>(tables_.workload().row_bytes() + element_state_bytes());
  return {"ceiling: random updates",
          [this](std::size_t batch) {
            const auto* const slots = device_unique_[batch]->As<std::uint32_t>();
            const std::size_t count = unique_[batch].size();
            CheckVerb(IncrementRowsAsync(tables_.row_array(), slots, count, nullptr));
            if (element_state_bytes() == 0) return;
            CheckVerb(IncrementRowsAsync({element_state_.data(), element_state_bytes()}, slots,
                                         count, nullptr));
          },
          {bytes, bytes},
          tables_.workload().ids(),
          ""};
}

}  // namespace embla::bench
