#include "tools/train/testing/fake_service.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "tools/train/random.h"

namespace embla::train::testing {
namespace {

constexpr float kEpsilon = 1e-8f;

// One optimizer step of a row.
void Step(FakeService::Table& table, std::int64_t row, std::span<const float> gradient) {
  const std::size_t dim = table.info.dim;
  auto scale = static_cast<float>(table.learning_rate);
  if (table.info.optimizer == "rowwise_adagrad") {
    float squares = 0.0f;
    for (const float g : gradient) squares += g * g;
    table.accumulators[row] += squares / static_cast<float>(dim);
    scale /= std::sqrt(table.accumulators[row]) + kEpsilon;
  }
  for (std::size_t j = 0; j < dim; ++j) table.rows[row * dim + j] -= scale * gradient[j];
}

FakeService::Table MakeTable(const nlohmann::json& spec, const nlohmann::json& placement) {
  FakeService::Table table;
  table.info.name = spec.at("name");
  table.info.rows = spec.at("rows");
  table.info.dim = spec.at("dim");
  table.info.dtype = spec.at("dtype");
  table.info.optimizer = spec.at("optimizer").at("kind");
  table.info.sharding = placement.at("sharding");
  table.info.replica_groups = spec.value("replica_groups", 1u);
  table.info.zch = spec.contains("zch");
  table.learning_rate = spec.at("optimizer").at("learning_rate");
  table.rows.resize(table.info.rows * table.info.dim);
  const nlohmann::json& optimizer = spec.at("optimizer");
  table.accumulators.resize(table.info.rows, optimizer.value("initial_accumulator", 0.0f));
  if (spec.at("init").at("kind") == "normal") {
    Random random(spec.at("seed").get<std::uint64_t>());
    const double deviation = spec.at("init").at("b");
    for (float& value : table.rows) value = static_cast<float>(deviation * random.Normal());
  }
  return table;
}

}  // namespace

std::int64_t FakeService::Table::RowFor(std::int64_t id) {
  if (!info.zch) return id;
  return row_of.try_emplace(id, static_cast<std::int64_t>(row_of.size())).first->second;
}

absl::Status FakeService::Failure::Take() {
  if (count == 0) return absl::OkStatus();
  --count;
  return status;
}

absl::Status FakeService::CreateTable(const std::string& table_json,
                                      const std::string& placement_json) {
  const auto spec = nlohmann::json::parse(table_json);
  const auto placement = nlohmann::json::parse(placement_json);
  MutexLock lock(mu_);
  const std::string name = spec.at("name");
  if (tables_.contains(name)) return absl::AlreadyExistsError(absl::StrCat("table ", name));
  tables_[name] = MakeTable(spec, placement);
  return absl::OkStatus();
}

absl::StatusOr<FakeService::Table*> FakeService::Find(std::string_view name,
                                                      std::span<const std::int64_t> ids) {
  const auto found = tables_.find(std::string(name));
  if (found == tables_.end()) return absl::NotFoundError(absl::StrCat("table ", ToAbsl(name)));
  for (const std::int64_t id : ids) {
    if (found->second.info.zch) break;
    if (id < 0 || id >= found->second.info.rows) {
      return absl::OutOfRangeError(absl::StrCat("id ", id, " in table ", ToAbsl(name)));
    }
  }
  return &found->second;
}

absl::Status FakeService::Lookup(std::span<const client::FeatureLookup> features) {
  MutexLock lock(mu_);
  ++lookups_;
  EMBLA_RETURN_IF_ERROR(lookup_failure_.Take());
  for (const client::FeatureLookup& feature : features) {
    EMBLA_ASSIGN_OR_RETURN(Table* const table, Find(feature.table, feature.ids));
    const std::size_t dim = table->info.dim;
    const std::set<std::int64_t> ids(feature.ids.begin(), feature.ids.end());
    saw_id_twice_ |= ids.size() < feature.ids.size();
    if (feature.rows_out.size() != feature.ids.size() * dim) {
      return absl::InvalidArgumentError("rows_out has the wrong size");
    }
    for (std::size_t i = 0; i < feature.ids.size(); ++i) {
      const std::int64_t row = table->RowFor(feature.ids[i]);
      std::copy_n(table->rows.begin() + row * static_cast<std::int64_t>(dim), dim,
                  feature.rows_out.begin() + static_cast<std::ptrdiff_t>(i * dim));
    }
  }
  return absl::OkStatus();
}

absl::Status FakeService::Update(std::span<const client::FeatureGradient> features) {
  MutexLock lock(mu_);
  ++updates_;
  EMBLA_RETURN_IF_ERROR(update_failure_.Take());
  for (const client::FeatureGradient& feature : features) {
    EMBLA_ASSIGN_OR_RETURN(Table* const table, Find(feature.table, feature.ids));
    const std::size_t dim = table->info.dim;
    std::map<std::int64_t, std::vector<float>> sums;
    for (std::size_t i = 0; i < feature.ids.size(); ++i) {
      std::vector<float>& sum = sums[feature.ids[i]];
      sum.resize(dim);
      for (std::size_t j = 0; j < dim; ++j) sum[j] += feature.gradients[i * dim + j];
    }
    saw_id_twice_ |= sums.size() < feature.ids.size();
    for (const auto& [id, gradient] : sums) Step(*table, table->RowFor(id), gradient);
  }
  return absl::OkStatus();
}

absl::Status FakeService::Scan(std::string_view name, const client::Client::RowSink& sink) {
  std::vector<std::int64_t> ids;
  std::vector<float> weights;
  std::vector<float> state;
  {
    MutexLock lock(mu_);
    EMBLA_RETURN_IF_ERROR(scan_failure_.Take());
    EMBLA_ASSIGN_OR_RETURN(Table* const table, Find(name, {}));
    weights = table->rows;
    state = table->accumulators;
    ids.resize(table->info.rows);
    std::iota(ids.begin(), ids.end(), 0);
    if (table->info.zch) {
      std::ranges::for_each(table->row_of,
                            [&](const auto& entry) { ids[entry.second] = entry.first; });
      ids.resize(table->row_of.size());
      weights.resize(ids.size() * table->info.dim);
      state.resize(ids.size());
    }
  }
  return sink({0, ids, weights, state});
}

absl::Status FakeService::Write(std::string_view name, std::span<const std::int64_t> ids,
                                std::span<const float> weights, std::span<const float> state) {
  MutexLock lock(mu_);
  EMBLA_ASSIGN_OR_RETURN(Table* const table, Find(name, ids));
  const std::size_t dim = table->info.dim;
  if (weights.size() != ids.size() * dim || state.size() != ids.size()) {
    return absl::InvalidArgumentError("weights or state has the wrong size");
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int64_t row = table->RowFor(ids[i]);
    std::copy_n(weights.begin() + static_cast<std::ptrdiff_t>(i * dim), dim,
                table->rows.begin() + row * static_cast<std::int64_t>(dim));
    table->accumulators[row] = state[i];
  }
  return absl::OkStatus();
}

void FakeService::FailScans(int count, absl::Status status) {
  MutexLock lock(mu_);
  scan_failure_ = {count, std::move(status)};
}

std::vector<client::TableInfo> FakeService::Tables() const {
  MutexLock lock(mu_);
  std::vector<client::TableInfo> infos;
  for (const auto& [name, table] : tables_) infos.push_back(table.info);
  return infos;
}

std::vector<float> FakeService::RowsOf(const std::string& table) const {
  MutexLock lock(mu_);
  return tables_.at(table).rows;
}

double FakeService::LearningRateOf(const std::string& table) const {
  MutexLock lock(mu_);
  return tables_.at(table).learning_rate;
}

void FakeService::NoteSync(const std::vector<std::string>& tables) {
  MutexLock lock(mu_);
  synced_.insert(synced_.end(), tables.begin(), tables.end());
}

std::vector<std::string> FakeService::synced() const {
  MutexLock lock(mu_);
  return synced_;
}

void FakeService::FailLookups(int count, absl::Status status) {
  MutexLock lock(mu_);
  lookup_failure_ = {count, std::move(status)};
}

void FakeService::FailUpdates(int count, absl::Status status) {
  MutexLock lock(mu_);
  update_failure_ = {count, std::move(status)};
}

std::int64_t FakeService::lookups() const {
  MutexLock lock(mu_);
  return lookups_;
}

bool FakeService::saw_id_twice() const {
  MutexLock lock(mu_);
  return saw_id_twice_;
}

std::int64_t FakeService::updates() const {
  MutexLock lock(mu_);
  return updates_;
}

absl::Status FakeClient::Lookup(std::span<const client::FeatureLookup> features,
                                const client::CallOptions&) {
  return service_.Lookup(features);
}

void FakeClient::LookupAsync(std::vector<client::FeatureLookup> features,
                             const client::CallOptions&, client::DoneCallback done) {
  done(service_.Lookup(features));
}

absl::Status FakeClient::Update(std::span<const client::FeatureGradient> features,
                                const client::CallOptions&) {
  return service_.Update(features);
}

void FakeClient::UpdateAsync(std::vector<client::FeatureGradient> features,
                             const client::CallOptions&, client::DoneCallback done) {
  done(service_.Update(features));
}

absl::Status FakeClient::ReadRows(std::string_view table, std::span<const std::int64_t> ids,
                                  std::span<float> rows_out) {
  client::FeatureLookup feature;
  feature.table = table;
  feature.ids = ids;
  feature.rows_out = rows_out;
  return service_.Lookup({&feature, 1});
}

}  // namespace embla::train::testing
