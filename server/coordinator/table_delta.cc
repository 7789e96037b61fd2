#include "server/coordinator/table_delta.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/plan/plan_json.h"

namespace embla {
namespace {

constexpr std::size_t kNumbers = 6;  // Numbers per slice.

bool Precedes(const Slice& a, const Slice& b) {
  const auto key = [](const Slice& s) {
    return std::tuple(s.column_begin, s.row_begin, s.column_end, s.row_end, s.device);
  };
  return key(a) < key(b);
}

std::vector<Slice> Without(const std::vector<Slice>& from, const std::vector<Slice>& what) {
  std::vector<Slice> left;
  std::set_difference(from.begin(), from.end(), what.begin(), what.end(), std::back_inserter(left),
                      Precedes);
  return left;
}

Json SlicesToJson(const std::vector<Slice>& slices) {
  Json list = Json::array();
  for (const Slice& s : slices) {
    list.push_back({s.row_begin, s.row_end, s.column_begin, s.column_end, ToInt(s.device.node),
                    s.device.index});
  }
  return list;
}

absl::StatusOr<std::vector<Slice>> SlicesFromJson(const Json& json) {
  std::vector<Slice> slices;
  for (const Json& item : json) {
    const bool is_slice = item.is_array() && item.size() == kNumbers &&
                          std::all_of(item.begin(), item.end(), [](const Json& number) {
                            return number.is_number_integer() && number.get<std::int64_t>() >= 0;
                          });
    if (!is_slice) return absl::InvalidArgumentError("a slice is not six numbers");
    Slice& s = slices.emplace_back();
    s.row_begin = item[0].get<std::int64_t>();
    s.row_end = item[1].get<std::int64_t>();
    s.column_begin = item[2].get<std::uint32_t>();
    s.column_end = item[3].get<std::uint32_t>();
    s.device = {NodeId{item[4].get<std::uint32_t>()}, item[5].get<std::uint32_t>()};
  }
  return slices;
}

}  // namespace

std::optional<TableDelta> DeltaOf(const TablePlan& before, const TablePlan& after) {
  if (before.sharding != after.sharding || before.aside != after.aside ||
      before.replicas.size() != after.replicas.size()) {
    return std::nullopt;
  }
  TableDelta delta;
  if (before.spec != after.spec) delta.spec_before = before.spec;
  if (before.steps != after.steps) delta.steps_before = before.steps;
  for (std::size_t i = 0; i < before.replicas.size(); ++i) {
    delta.tilings.push_back({.gone = Without(before.replicas[i], after.replicas[i]),
                             .came = Without(after.replicas[i], before.replicas[i])});
  }
  return delta;
}

absl::StatusOr<TablePlan> Undo(const TableDelta& delta, const TablePlan& after) {
  if (delta.tilings.size() != after.replicas.size()) {
    return absl::InvalidArgumentError(absl::StrCat("a change of ", delta.tilings.size(),
                                                   " tilings, but the table has ",
                                                   after.replicas.size()));
  }
  TablePlan before = after;
  if (delta.spec_before) before.spec = *delta.spec_before;
  if (delta.steps_before) before.steps = *delta.steps_before;
  for (std::size_t i = 0; i < delta.tilings.size(); ++i) {
    const TableDelta::Tiling& tiling = delta.tilings[i];
    std::vector<Slice> slices = Without(after.replicas[i], tiling.came);
    if (slices.size() + tiling.came.size() != after.replicas[i].size()) {
      return absl::InvalidArgumentError("a change of slices that the table does not have");
    }
    slices.insert(slices.end(), tiling.gone.begin(), tiling.gone.end());
    std::sort(slices.begin(), slices.end(), Precedes);
    before.replicas[i] = std::move(slices);
  }
  return before;
}

Json ToJson(const TableDelta& delta) {
  Json json = Json::object();
  if (delta.spec_before) {
    json["spec_before"] = Json::parse(TableSpecToJson(*delta.spec_before));
  }
  if (delta.steps_before) {
    json["steps_before"] = Json::parse(StepPlanToJson(*delta.steps_before));
  }
  json["tilings"] = Json::array();
  for (const TableDelta::Tiling& tiling : delta.tilings) {
    json["tilings"].push_back(
        {{"gone", SlicesToJson(tiling.gone)}, {"came", SlicesToJson(tiling.came)}});
  }
  return json;
}

absl::StatusOr<TableDelta> TableDeltaFromJson(const Json& json) {
  JsonFields fields(json, "change of a table");
  TableDelta delta;
  if (fields.Has("spec_before")) {
    EMBLA_ASSIGN_OR_RETURN(delta.spec_before,
                           TableSpecFromJson(fields.Object("spec_before").dump()));
  }
  if (fields.Has("steps_before")) {
    EMBLA_ASSIGN_OR_RETURN(delta.steps_before,
                           StepPlanFromJson(fields.Object("steps_before").dump()));
  }
  for (const Json& item : fields.Array("tilings")) {
    JsonFields lists(item, "change of a tiling");
    TableDelta::Tiling& tiling = delta.tilings.emplace_back();
    EMBLA_ASSIGN_OR_RETURN(tiling.gone, SlicesFromJson(lists.Array("gone")));
    EMBLA_ASSIGN_OR_RETURN(tiling.came, SlicesFromJson(lists.Array("came")));
    EMBLA_RETURN_IF_ERROR(lists.Finish());
  }
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  return delta;
}

}  // namespace embla
