// The CPU's kernels on every instruction set that this machine has.
#include "kernels/cpu/testing/kernel_set.h"
#include "kernels/targets.h"

namespace embla::kernels {
namespace {

class TargetKernels final : public KernelSet {
 public:
  explicit TargetKernels(const Target& target) : override_(target) {}

  void Gather(const Rows& rows, std::span<const std::uint32_t> slots, const Output& out,
              const PrefetchTuning& tuning) override {
    kernels::Gather(rows, slots, out, tuning);
  }
  void Pool(const Rows& rows, const Bags& bags, const Output& out) override {
    kernels::Pool(rows, bags, out);
  }
  void DivideRows(const MutableRows& rows, std::span<const std::uint32_t> lengths) override {
    kernels::DivideRows(rows, lengths);
  }
  void Convert(const Input& in, const Output& out, std::size_t row_count,
               std::uint32_t columns) override {
    kernels::Convert(in, out, row_count, columns);
  }
  bool HasNonFinite(const Input& in, std::size_t row_count, std::uint32_t columns) override {
    return kernels::HasNonFinite(in, row_count, columns);
  }
  void SumSegments(const Grouping& grouping, const Gradients& gradients, std::size_t first,
                   std::size_t last, std::span<float> sums, std::size_t stride) override {
    kernels::SumSegments(grouping, gradients, first, last, sums, stride);
  }
  void RowSumSquares(const Rows& rows, std::span<float> out) override {
    kernels::RowSumSquares(rows, out);
  }
  void Step(const StepParameters& parameters, const StepRows& rows,
            const StepBatch& batch) override {
    kernels::Step(parameters, rows, batch);
  }
  void Initialize(const InitParameters& parameters, const InitRows& rows, std::size_t first_slot,
                  std::size_t row_count) override {
    kernels::Initialize(parameters, rows, first_slot, row_count);
  }

 private:
  const TargetOverride override_;
};

}  // namespace

std::vector<KernelSetFactory> KernelSets() {
  std::vector<KernelSetFactory> sets;
  for (const Target& target : SupportedTargets()) {
    sets.push_back({target.name, [target] { return std::make_unique<TargetKernels>(target); }, ""});
  }
  return sets;
}

}  // namespace embla::kernels
