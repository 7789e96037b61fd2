#include "server/coordinator/number_gap.h"

#include <limits>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla {
namespace {

// The begin and the end of a range of ids.
template <typename Id>
Json RangeToJson(Id begin, Id end) {
  return Json::array({ToInt(begin), ToInt(end)});
}

template <typename Id>
absl::Status ReadRange(JsonFields& fields, std::string_view name, Id* begin, Id* end) {
  const Json& range = fields.Array(name);
  using Number = std::underlying_type_t<Id>;
  if (range.size() == 2 && range[0].is_number_unsigned() && range[1].is_number_unsigned()) {
    const auto low = range[0].get<std::uint64_t>();
    const auto high = range[1].get<std::uint64_t>();
    if (low <= high && high <= std::numeric_limits<Number>::max()) {
      *begin = Id{static_cast<Number>(low)};
      *end = Id{static_cast<Number>(high)};
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("gap: ", ToAbsl(name), " is no range"));
}

}  // namespace

void AddGap(const NumberGap& gap, std::vector<NumberGap>* gaps) {
  gaps->push_back(gap);
  if (gaps->size() <= kGapsMax) return;
  NumberGap& second = (*gaps)[1];
  const NumberGap& first = gaps->front();
  second.version_begin = first.version_begin;
  second.table_begin = first.table_begin;
  second.node_begin = first.node_begin;
  second.merged = {};
  second.is_joined = true;
  gaps->erase(gaps->begin());
}

Json GapsToJson(const std::vector<NumberGap>& gaps) {
  Json json = Json::array();
  for (const NumberGap& gap : gaps) {
    json.push_back({{"versions", RangeToJson(gap.version_begin, gap.version_end)},
                    {"tables", RangeToJson(gap.table_begin, gap.table_end)},
                    {"nodes", RangeToJson(gap.node_begin, gap.node_end)},
                    {"merged", ToInt(gap.merged)}});
    if (gap.is_joined) json.back()["joined"] = true;
  }
  return json;
}

absl::StatusOr<std::vector<NumberGap>> GapsFromJson(const Json& json) {
  std::vector<NumberGap> gaps;
  for (const Json& gap_json : json) {
    JsonFields fields(gap_json, "gap");
    NumberGap& gap = gaps.emplace_back();
    EMBLA_RETURN_IF_ERROR(ReadRange(fields, "versions", &gap.version_begin, &gap.version_end));
    EMBLA_RETURN_IF_ERROR(ReadRange(fields, "tables", &gap.table_begin, &gap.table_end));
    EMBLA_RETURN_IF_ERROR(ReadRange(fields, "nodes", &gap.node_begin, &gap.node_end));
    gap.merged = PlanVersion{fields.Unsigned("merged", 0, UINT64_MAX)};
    fields.MaybeFlag("joined", &gap.is_joined);
    EMBLA_RETURN_IF_ERROR(fields.Finish());
  }
  return gaps;
}

}  // namespace embla
