#include "tools/embla/lookup_cmd.h"

#include <algorithm>
#include <charconv>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "tools/embla/plan_view.h"
#include "tools/embla/text_table.h"

namespace embla::cli {
namespace {

absl::StatusOr<client::Pooling> PoolingOf(const std::string& name) {
  if (name == "none") return client::Pooling::kNone;
  if (name == "sum") return client::Pooling::kSum;
  if (name == "mean") return client::Pooling::kMean;
  return absl::InvalidArgumentError(
      absl::StrCat("pooling \"", name, "\"; it is none, sum or mean"));
}

absl::StatusOr<std::uint32_t> DimOf(client::Client& client, const std::string& name) {
  for (const client::TableInfo& table : client.Tables()) {
    if (table.name == name) return table.dim;
  }
  return absl::NotFoundError(absl::StrCat("no table \"", name, "\""));
}

// The shortest decimal number that is this float: 0.1, not 0.10000000149011612.
double Shortest(float value) {
  char digits[32];
  const std::to_chars_result end = std::to_chars(digits, digits + sizeof(digits), value);
  double shortest = 0;
  std::from_chars(digits, end.ptr, shortest);
  return shortest;
}

std::string RowText(std::span<const float> row, std::uint32_t columns_max) {
  const std::size_t shown =
      columns_max == 0 ? row.size() : std::min<std::size_t>(row.size(), columns_max);
  std::string text;
  for (std::size_t c = 0; c < shown; ++c) {
    absl::StrAppend(&text, c == 0 ? "" : " ", absl::StrFormat("% .6g", row[c]));
  }
  if (shown < row.size()) absl::StrAppend(&text, " ... ", row.size() - shown, " more");
  return text;
}

}  // namespace

absl::Status LookupVerb(client::Client& client, const LookupFlags& flags, const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const client::Pooling pooling, PoolingOf(flags.pooling));
  EMBLA_ASSIGN_OR_RETURN(const std::uint32_t dim, DimOf(client, flags.table));
  const bool pooled = pooling != client::Pooling::kNone;
  const auto ids_count = static_cast<std::uint32_t>(flags.ids.size());
  std::vector<float> rows((pooled ? 1 : flags.ids.size()) * dim);
  client::FeatureLookup feature;
  feature.table = flags.table;
  feature.ids = flags.ids;
  if (pooled) feature.lengths = {&ids_count, 1};
  feature.pooling = pooling;
  feature.rows_out = rows;
  EMBLA_RETURN_IF_ERROR(client.Lookup({&feature, 1}, {}));

  Json list = Json::array();
  TextTable text({pooled ? "bag" : ">id", "columns"});
  for (std::size_t r = 0; r * dim < rows.size(); ++r) {
    const std::span<const float> row(rows.data() + r * dim, dim);
    Json columns = Json::array();
    for (const float value : row) columns.push_back(Shortest(value));
    if (pooled) {
      list.push_back({{"ids", flags.ids}, {"pooling", flags.pooling}, {"columns", columns}});
    } else {
      list.push_back({{"id", flags.ids[r]}, {"columns", columns}});
    }
    text.Add(
        {pooled ? flags.pooling : absl::StrCat(flags.ids[r]), RowText(row, flags.columns_max)});
  }
  if (output.json) {
    output.PutJson(list);
  } else {
    output.out << text.Render();
  }
  return absl::OkStatus();
}

}  // namespace embla::cli
