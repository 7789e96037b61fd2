#include "tools/load/bench_tables.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla::load {
namespace {

constexpr float kVerifyGradient = 1e-3f;

// Relative error of one number on the wire, with room for sums over a bag.
double Tolerance(const Case& load) {
  const double sums = load.bag > 1 ? 4.0 * load.bag : 1.0;
  switch (load.wire) {
    case client::WireFormat::kFp32:
      return load.bag > 1 ? 1e-6 * sums : 0.0;
    case client::WireFormat::kFp16:
      return 1e-3 * sums;
    case client::WireFormat::kBf16:
      return 8e-3 * sums;
    case client::WireFormat::kInt8:
      return 1e-2 * sums;
  }
  return 0.0;
}

double LargestOf(std::span<const float> values) {
  double largest = 0.0;
  for (const float value : values) largest = std::max(largest, std::abs(double{value}));
  return largest;
}

absl::Status Compare(const Case& load, std::string_view table, std::span<const float> got,
                     std::span<const float> expected) {
  // int8 steps are relative to the spread of a row, so all formats are judged by the largest value.
  const double allowed = Tolerance(load) * LargestOf(expected);
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::abs(double{got[i]} - expected[i]) <= allowed) continue;
    return absl::InternalError(absl::StrCat("wrong result in table ", ToAbsl(table),
                                            ": output row ", i / load.dim, " column ", i % load.dim,
                                            " is ", got[i], ", expected ", expected[i]));
  }
  return absl::OkStatus();
}

// Returns the expected result of a lookup of `feature`, from plain reads of the rows.
absl::StatusOr<std::vector<float>> Expected(const Case& load, const client::FeatureLookup& feature,
                                            client::Client& client) {
  std::vector<float> rows(feature.ids.size() * load.dim);
  EMBLA_RETURN_IF_ERROR(client.ReadRows(feature.table, feature.ids, rows));
  if (feature.lengths.empty()) return rows;
  std::vector<float> pooled(feature.lengths.size() * load.dim);
  std::size_t row = 0;
  for (std::size_t bag = 0; bag < feature.lengths.size(); ++bag) {
    for (std::uint32_t i = 0; i < feature.lengths[bag]; ++i, ++row) {
      for (int j = 0; j < load.dim; ++j) pooled[bag * load.dim + j] += rows[row * load.dim + j];
    }
  }
  return pooled;
}

absl::Status VerifyLookup(const Case& load, const RequestSet& requests,
                          const client::CallOptions& options, client::Client& client) {
  std::vector<float> rows(requests.row_floats());
  const auto features = requests.Lookup(0, rows);
  EMBLA_RETURN_IF_ERROR(client.Lookup(features, options));
  for (const client::FeatureLookup& feature : features) {
    EMBLA_ASSIGN_OR_RETURN(const std::vector<float> expected, Expected(load, feature, client));
    EMBLA_RETURN_IF_ERROR(Compare(load, feature.table, feature.rows_out, expected));
  }
  return absl::OkStatus();
}

absl::Status VerifyUpdate(const Case& load, const RequestSet& requests,
                          const client::CallOptions& options, client::Client& client) {
  const std::vector<float> gradients(requests.row_floats(), kVerifyGradient);
  const auto features = requests.Update(0, gradients);
  std::vector<std::vector<float>> before;
  for (const client::FeatureGradient& feature : features) {
    before.emplace_back(feature.ids.size() * load.dim);
    EMBLA_RETURN_IF_ERROR(client.ReadRows(feature.table, feature.ids, before.back()));
  }
  EMBLA_RETURN_IF_ERROR(client.Update(features, options));
  for (std::size_t f = 0; f < features.size(); ++f) {
    std::vector<float> after(before[f].size());
    EMBLA_RETURN_IF_ERROR(client.ReadRows(features[f].table, features[f].ids, after));
    for (std::size_t i = 0; i < after.size(); ++i) {
      if (after[i] < before[f][i]) continue;
      return absl::InternalError(absl::StrCat("wrong update in table ", ToAbsl(features[f].table),
                                              ": row ", features[f].ids[i / load.dim], " column ",
                                              i % load.dim, " was ", before[f][i], " and is ",
                                              after[i], " after a positive gradient"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

BenchTables::~BenchTables() {
  for (const std::string& table : created_) {
    admin_.Call<v1::DropTableReply>(client::DropTableRequest(table)).status().IgnoreError();
  }
}

absl::StatusOr<std::vector<std::string>> BenchTables::Ensure(int count, int dim) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    names.push_back(absl::StrCat(setup_.prefix, "_", dim, "_", i));
    if (std::ranges::find(created_, names.back()) != created_.end()) continue;
    const nlohmann::json table = {{"name", names.back()},
                                  {"rows", setup_.rows},
                                  {"dim", dim},
                                  {"dtype", setup_.dtype},
                                  {"init", {{"kind", "uniform"}, {"a", -0.1}, {"b", 0.1}}},
                                  {"optimizer", {{"kind", setup_.optimizer}}}};
    const nlohmann::json placement = {{"sharding", setup_.sharding}};
    EMBLA_RETURN_IF_ERROR(
        admin_.Call<v1::TableReply>(client::CreateTableRequest(table.dump(), placement.dump()))
            .status());
    created_.push_back(names.back());
  }
  EMBLA_RETURN_IF_ERROR(client_.RefreshPlan());
  return names;
}

absl::Status VerifyCase(const Case& load, const RequestSet& requests, client::Client& client) {
  client::CallOptions options;
  options.wire = load.wire;
  options.combine_duplicates = load.combine_duplicates;
  EMBLA_RETURN_IF_ERROR(VerifyLookup(load, requests, options, client));
  if (load.update_share == 0.0) return absl::OkStatus();
  EMBLA_RETURN_IF_ERROR(VerifyUpdate(load, requests, options, client));
  return VerifyLookup(load, requests, options, client);
}

}  // namespace embla::load
