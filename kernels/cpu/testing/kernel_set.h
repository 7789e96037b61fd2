// The kernels' verbs as the conformance suites call them: memory of the host in and out, whoever
// does the arithmetic. gather_test.cc, pool_test.cc, convert_test.cc, combine_test.cc,
// optimizer_step_test.cc, rounding_test.cc and initialize_test.cc are written against this, and
// linked once for each family of implementations.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/combine.h"
#include "kernels/convert.h"
#include "kernels/initialize.h"
#include "kernels/lookup.h"
#include "kernels/optimizer_step.h"

namespace embla::kernels {

class KernelSet {
 public:
  virtual ~KernelSet() = default;

  virtual void Gather(const Rows& rows, std::span<const std::uint32_t> slots, const Output& out,
                      const PrefetchTuning& tuning) = 0;
  void Gather(const Rows& rows, std::span<const std::uint32_t> slots, const Output& out) {
    Gather(rows, slots, out, {});
  }
  virtual void Pool(const Rows& rows, const Bags& bags, const Output& out) = 0;
  virtual void DivideRows(const MutableRows& rows, std::span<const std::uint32_t> lengths) = 0;
  virtual void Convert(const Input& in, const Output& out, std::size_t row_count,
                       std::uint32_t columns) = 0;
  // Verbs that the kernels of GPUs do not have: a node looks before the GPU gets what it looks at,
  // and its steps measure rows as they go.
  virtual bool HasNonFinite(const Input&, std::size_t, std::uint32_t) { return Missing(); }
  virtual void RowSumSquares(const Rows&, std::span<float>) { Missing(); }
  virtual bool is_on_host() const { return true; }
  virtual void SumSegments(const Grouping& grouping, const Gradients& gradients, std::size_t first,
                           std::size_t last, std::span<float> sums, std::size_t stride) = 0;
  virtual void Step(const StepParameters& parameters, const StepRows& rows,
                    const StepBatch& batch) = 0;
  virtual void Initialize(const InitParameters& parameters, const InitRows& rows,
                          std::size_t first_slot, std::size_t row_count) = 0;

 private:
  static bool Missing() {
    ADD_FAILURE() << "GPUs have no such kernel";
    return false;
  }
};

struct KernelSetFactory {
  std::string name;  // For instance "AVX2".
  // Null where this machine cannot run it, and then `reason` says why.
  std::function<std::unique_ptr<KernelSet>()> make;
  std::string reason;
};

// Returns the sets of this test program: one of target_sets.cc and
// kernels/cuda/testing/device_sets.cc.
std::vector<KernelSetFactory> KernelSets();

inline std::string KernelSetName(const testing::TestParamInfo<KernelSetFactory>& info) {
  return info.param.name;
}

// A suite that runs on each of them.
class KernelSetTest : public testing::TestWithParam<KernelSetFactory> {
 protected:
  void SetUp() override {
    kernels_ = GetParam().make();
    if (kernels_ == nullptr) GTEST_SKIP() << GetParam().reason;
  }
  KernelSet& kernels() { return *kernels_; }

 private:
  std::unique_ptr<KernelSet> kernels_;
};

}  // namespace embla::kernels
