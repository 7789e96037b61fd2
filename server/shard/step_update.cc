#include "server/shard/step_update.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/convert.h"
#include "server/migration/step_session.h"
#include "server/table/element.h"

namespace embla {
namespace {

bool Meet(const UpdatePart& part, ColumnRange cut) {
  return part.column_begin < cut.end && cut.begin < part.column_end;
}

}  // namespace

bool StepUpdates::InTable(RowId id) const {
  return id_rows_.hashed() ||
         static_cast<std::uint64_t>(ToInt(id)) < static_cast<std::uint64_t>(spec_.rows);
}

bool StepUpdates::AreWithin(const UpdatePart& part, const UnitSet& units,
                            std::span<const ColumnRange> cuts) const {
  std::vector<char> has(spec_.row_granules, 0);
  for (const RowId id : part.ids) {
    if (InTable(id)) has[GranuleOf(id)] = 1;
  }
  for (const ColumnRange cut : cuts) {
    if (!Meet(part, cut)) continue;
    for (std::uint32_t granule = 0; granule < spec_.row_granules; ++granule) {
      if (has[granule] == 0) continue;
      if (!units.Has(ColumnGranule(cut), granule)) return false;
    }
  }
  return true;
}

absl::Status StepUpdates::CheckClaimed(const UpdateBatch& batch,
                                       std::span<const ColumnRange> cuts) const {
  const auto error = [this](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("table ", spec_.name, ": ", what...));
  };
  for (const UnitSet::Run& run : batch.claim->units.runs()) {
    if (run.end <= spec_.row_granules) continue;
    return error("a claim of row granules up to ", run.end, ", but it has ", spec_.row_granules);
  }
  std::map<std::uint32_t, std::vector<RowId>> ids;  // By the first column.
  for (const UpdatePart& part : batch.parts) {
    if (part.form != UpdatePart::Form::kRows || !part.clipped || !part.row_sum_squares.empty() ||
        part.table != batch.claim->table) {
      return error(
          "a contribution to a step is of this table alone, of form rows, clipped, and "
          "without row_sum_squares");
    }
    if (!AreWithin(part, batch.claim->units, cuts)) {
      return error("a contribution has rows of units that it does not claim");
    }
    std::vector<RowId>& all = ids[part.column_begin];
    all.insert(all.end(), part.ids.begin(), part.ids.end());
  }
  for (auto& [column, all] : ids) {
    std::sort(all.begin(), all.end());
    const auto twice = std::adjacent_find(all.begin(), all.end());
    if (twice == all.end()) continue;
    return error("id ", ToInt(*twice), " occurs twice in a contribution: sum its gradients first");
  }
  return absl::OkStatus();
}

// Whether they make one update as they are: nothing is to be left out, and the columns of a cut
// come in the same way from all.
bool StepUpdates::FitTogether(std::span<const StepPart> parts,
                              std::span<const ColumnRange> cuts) const {
  std::map<std::uint32_t, ColumnRange> columns_of;  // By the first column of a cut.
  for (const StepPart& step_part : parts) {
    for (const UpdatePart& part : step_part.batch->parts) {
      if (part.ids.empty()) continue;
      if (!AreWithin(part, step_part.units, cuts)) return false;
      for (const ColumnRange cut : cuts) {
        if (!Meet(part, cut)) continue;
        const ColumnRange columns{part.column_begin, part.column_end};
        if (columns_of.try_emplace(cut.begin, columns).first->second != columns) return false;
      }
    }
  }
  return true;
}

// The part's rows of `units` in the columns of `cut`, as fp32.
void StepUpdates::AppendCut(const UpdatePart& part, DType wire_dtype, const UnitSet& units,
                            ColumnRange cut, UpdateBatch& update,
                            std::vector<SharedBuffer>& memory) const {
  std::vector<std::size_t> taken;
  for (std::size_t i = 0; i < part.ids.size(); ++i) {
    const RowId id = part.ids[i];
    if (InTable(id) && units.Has(ColumnGranule(cut), GranuleOf(id))) taken.push_back(i);
  }
  if (taken.empty()) return;
  const std::size_t ids_bytes = taken.size() * sizeof(RowId);
  const std::size_t row_bytes = cut.size() * sizeof(float);
  Buffer copy = Buffer::Allocate(ids_bytes + taken.size() * row_bytes);
  auto* const ids = reinterpret_cast<RowId*>(copy.data());
  std::byte* const rows = copy.data() + ids_bytes;
  std::vector<float> row(part.columns());
  for (std::size_t i = 0; i < taken.size(); ++i) {
    ids[i] = part.ids[taken[i]];
    kernels::Convert(
        {part.gradients.data() + taken[i] * part.row_bytes(wire_dtype), 0, ElementOf(wire_dtype)},
        {row.data(), 0, kernels::Element::kFloat32}, 1, part.columns());
    std::copy_n(row.data() + (cut.begin - part.column_begin), cut.size(),
                reinterpret_cast<float*>(rows + i * row_bytes));
  }
  UpdatePart& out = update.parts.emplace_back(part);
  out.column_begin = cut.begin;
  out.column_end = cut.end;
  out.ids = {ids, taken.size()};
  out.gradients = {rows, taken.size() * row_bytes};
  memory.emplace_back(std::move(copy));
}

UpdateBatch StepUpdates::Join(std::uint64_t step, const UnitSet& units,
                              std::span<const StepPart> parts,
                              std::span<const ColumnRange> cuts) const {
  UpdateBatch batch;
  std::vector<SharedBuffer> memory;
  batch.session = kStepSession;
  batch.seq = batch.first_incomplete = SeqOfStep(step);
  batch.step = step;
  batch.is_step = true;
  batch.claim = StepClaim{.table = spec_.id, .rank = {}, .resumes = false, .units = units};
  const bool as_they_are = FitTogether(parts, cuts);
  for (const StepPart& part : parts) {
    const UpdateBatch& from = *part.batch;
    batch.contributors.push_back({from.session, from.seq, from.first_incomplete});
    batch.wire_dtype = as_they_are ? from.wire_dtype : DType::kFloat32;
    if (as_they_are) {
      batch.parts.insert(batch.parts.end(), from.parts.begin(), from.parts.end());
      memory.push_back(from.memory);
      continue;
    }
    for (const ColumnRange cut : cuts) {
      for (const UpdatePart& rows : from.parts) {
        if (Meet(rows, cut)) AppendCut(rows, from.wire_dtype, part.units, cut, batch, memory);
      }
    }
  }
  batch.memory = SharedBuffer(std::move(memory));
  return batch;
}

}  // namespace embla
