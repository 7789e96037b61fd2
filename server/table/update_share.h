// One device's share of an update: all gradients of a batch for the rows of one slice, summed per
// row, and one optimizer step for each of those rows; or the images that replace them.
//
// Prepare changes nothing and finds whatever can be wrong; Apply cannot fail for reasons that a
// request could cause. Between the two, the devices of a node agree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/rows/request.h"
#include "kernels/combine.h"
#include "server/storage/thread_pool.h"
#include "server/table/id_numbering.h"
#include "server/table/table_shard.h"
#include "server/table/zch_ids.h"

namespace embla {

// The parts of one table in an update.
using TableParts = std::span<const UpdatePart* const>;

// Checks the parts of a table against the node's slices, whatever the ids: a slice gets whole rows
// of gradients, the parts of a slice have the same columns, and an optimizer with a row statistic
// gets it. Errors: InvalidArgument, FailedPrecondition.
absl::Status CheckPartsFit(const TableShard& table, const OptimizerSpec& optimizer,
                           TableParts parts);

class UpdateShare {
 public:
  // Collects what `parts` have for `own`, in arrival order. The parts must live until Apply.
  // InvalidArgument: a row occurs twice among images, or where sums of squares came with the
  // gradients.
  //
  // Requires: CheckPartsFit.
  absl::Status Prepare(const TableSpec& spec, const OwnSlice& own, TableParts parts,
                       DType wire_dtype);

  // Ids found times columns of the slice, as Prepare counted.
  std::size_t found() const { return found_; }
  // The device's functions that Apply needs.
  struct Steps {
    std::uint64_t step = 0;  // The training step.
    ThreadPool& pool;
  };
  // One optimizer step, or the image, for every touched row that is not in `skipped`; how many they
  // are. The ids of a ZCH table get their rows here; gradients of those that get none are dropped.
  absl::StatusOr<std::size_t> Apply(OwnSlice& own, const RowIntervals& skipped, const Steps& steps);

 private:
  struct Scratch;  // Memory of a thread, which one update after the other uses.

  void Collect(const OwnSlice& own, TableParts parts);
  template <typename Has>
  void CollectRows(const UpdatePart& part, std::uint32_t first_gradient, const Has& has);
  template <typename Has>
  void CollectBags(const UpdatePart& part, const Has& has);
  // Sets gradient_of_ and factors_ of bags.
  void ExpandBags();
  void JoinGradients(TableParts parts);
  void DescribeGradients(const Slice& slice, const UpdatePart& first, DType wire_dtype);
  absl::Status CheckUnique(const char* what) const;
  // How an update at `step` finds the ids of a ZCH table.
  ZchIds::Touch TouchAt(std::uint64_t step) const {
    return {.step = step, .ttls = ttls_, .admits_all = images_.has_value()};
  }
  absl::StatusOr<std::size_t> UpdateRows(OwnSlice& own, const RowIntervals& skipped,
                                         const Steps& steps) const;
  absl::Status StepRows(OwnSlice& own, std::size_t begin, std::size_t end,
                        const Steps& steps) const;
  // Rows with one gradient are stepped with where it lies, without a sum.
  bool StepsInPlace() const;
  std::size_t CollectInPlace(const OwnSlice& own, std::size_t first, std::size_t end,
                             std::size_t sums_max, Scratch& scratch) const;
  absl::Status StepRowsInPlace(OwnSlice& own, std::size_t begin, std::size_t end,
                               const Steps& steps) const;
  // Rows that are summed before they are stepped: a thread's share stays in its cache.
  std::size_t SumsPerThread(std::size_t rows) const;
  std::size_t SumsAtOnce(const OwnSlice& own, std::size_t rows, const Steps& steps) const;
  absl::Status WriteImages(OwnSlice& own, std::size_t begin, std::size_t end) const;

  // The parts of a slice have this in common when they are images.
  struct Images {
    std::uint32_t columns = 0;
    std::uint32_t state_floats = 0;
    bool state_only = false;
    StateShape state;

    std::size_t floats() const { return (state_only ? 0 : columns) + state_floats; }
  };
  // The columns of `own` of one image, whose first column is first_column_.
  void CutImage(const float* image, const OwnSlice& own, std::byte* weights, float* state) const;

  // One entry per occurrence of a row of the slice, in arrival order.
  std::vector<std::int64_t> ids_;
  std::vector<std::uint32_t> gradient_of_;
  std::vector<float> factors_;  // Empty: all 1.
  // By gradient, if some are of bags: how many occurrences it has, and their factor, beside
  // factors_ and empty if all are 1. gradient_of_ follows from it (ExpandBags).
  std::vector<std::uint32_t> bag_lengths_;
  std::vector<float> bag_factors_;
  std::vector<float> row_sum_squares_;  // Empty: computed, or not needed.
  std::vector<std::uint32_t> ttls_;     // ZCH tables only; empty: the table's TTL.

  kernels::Grouping grouping_;  // Not where the store sums; its ZCH tables need
  IdNumbering id_numbering_;    // these.
  kernels::Gradients gradients_;
  std::size_t gradient_rows_ = 0;
  std::vector<std::byte> joined_;   // The parts' gradients, where they are not adjacent.
  std::uint32_t first_column_ = 0;  // First column of the slice in a summed gradient.
  bool compute_row_sum_squares_ = false;
  bool sums_in_store_ = false;  // Nothing is grouped or sorted here then.
  bool expands_in_store_ = false;
  std::optional<float> learning_rate_;
  std::optional<Images> images_;  // None: gradients.
  std::size_t found_ = 0;
};

}  // namespace embla
