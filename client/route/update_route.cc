#include "client/route/update_route.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "client/route/distinct_ids.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla::client {
namespace {

UpdateShare& ShareOf(NodeId node, const Routes& routes, std::vector<UpdateShare>& shares) {
  for (UpdateShare& share : shares) {
    if (share.node == node && !share.claim.has_value()) return share;
  }
  UpdateShare& share = shares.emplace_back();
  share.node = node;
  share.plan_version = routes.plan().version();
  share.hints = routes.hints();
  return share;
}

absl::Status TableIsGone(TableId table, const Routes& routes) {
  return absl::NotFoundError(
      absl::StrCat("table id ", ToInt(table), " is gone in plan ", ToInt(routes.plan().version())));
}

}  // namespace

absl::Status CheckSizes(const TableSpec& spec, const RowWrite& write) {
  const StateShape state = StateShapeOf(spec.optimizer);
  const std::size_t state_floats = state.row_floats + std::size_t{state.element_arrays} * spec.dim;
  const auto check = [&](const char* name, std::span<const float> values,
                         std::size_t per_row) -> absl::Status {
    const std::size_t expected = write.ids.size() * per_row;
    if (values.empty() || values.size() == expected) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("table ", spec.name, ": ", name, " has ",
                                                   values.size(), " floats, but ", write.ids.size(),
                                                   " rows x ", per_row, " are ", expected));
  };
  EMBLA_RETURN_IF_ERROR(check("weights", write.weights, spec.dim));
  EMBLA_RETURN_IF_ERROR(check("state", write.state, state_floats));
  if (!write.weights.empty() || !write.state.empty() || write.ids.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("table ", spec.name, ": neither weights nor state are given"));
}

absl::StatusOr<UpdateRoute> UpdateRoute::Create(std::span<const FeatureGradient> features,
                                                const Routes& routes, const Options& options,
                                                BufferPool& pool) {
  UpdateRoute route(options, pool);
  route.inputs_.reserve(features.size());
  route.tables_.reserve(features.size());
  TablePlaces places;
  for (const FeatureGradient& feature : features) {
    EMBLA_RETURN_IF_ERROR(route.AddFeature(feature, routes, places));
  }
  for (Table& table : route.tables_) {
    table.is_worth_combining = options.combine_duplicates && route.IsWorthCombining(table);
    EMBLA_RETURN_IF_ERROR(route.CombineTable(table, routes));
  }
  return route;
}

absl::Status UpdateRoute::AddFeature(const FeatureGradient& feature, const Routes& routes,
                                     TablePlaces& places) {
  Input& input = inputs_.emplace_back();
  EMBLA_ASSIGN_OR_RETURN(input.feature, CheckFeature(routes, ArgumentsOf(feature),
                                                     inputs_.size() - 1, options_.groups));
  input.gradients = feature.gradients.data();
  input.ttl_steps = feature.ttl_steps;
  const bool is_sync = routes.Find(input.feature.table)->step_units() != nullptr;
  if (input.feature.ids.empty() && !is_sync) return absl::OkStatus();
  const auto [place, is_new] = places.try_emplace(input.feature.table, tables_.size());
  if (is_new) {
    Table& added = tables_.emplace_back();
    added.id = input.feature.table;
    added.dim = input.feature.dim;
    added.replica_group = input.feature.replica_group;
    added.sync = is_sync;
  }
  Table& table = tables_[place->second];
  EMBLA_RETURN_IF_ERROR(SetLearningRate(table, feature));
  table.features.push_back(static_cast<std::uint32_t>(inputs_.size() - 1));
  return absl::OkStatus();
}

absl::Status UpdateRoute::SetLearningRate(Table& table, const FeatureGradient& feature) const {
  const std::optional<float> rate = feature.learning_rate;
  if (rate.has_value() && !(*rate >= 0 && std::isfinite(*rate))) {
    return absl::InvalidArgumentError(absl::StrCat("table ", ToAbsl(feature.table),
                                                   ": learning_rate ", *rate,
                                                   " is not finite and at least 0"));
  }
  if (!table.features.empty() && table.learning_rate != rate) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", ToAbsl(feature.table),
                     ": its features in one update state different learning rates"));
  }
  table.learning_rate = rate;
  return absl::OkStatus();
}

absl::StatusOr<UpdateRoute> UpdateRoute::CreateWrite(const RowWrite& write, const Routes& routes,
                                                     const Options& options, BufferPool& pool) {
  const TableRoute* const table_route = routes.Find(write.table);
  if (table_route == nullptr) return routes.NoSuchTable(write.table);
  const TableSpec& spec = table_route->spec();
  EMBLA_RETURN_IF_ERROR(CheckSizes(spec, write));
  UpdateRoute route(options, pool);
  if (write.ids.empty()) return route;
  Input& input = route.inputs_.emplace_back();
  input.feature.table = spec.id;
  input.feature.dim = spec.dim;
  input.feature.ids = write.ids;
  EMBLA_ASSIGN_OR_RETURN(input.feature.replica_group, options.groups.Of(spec));
  input.gradients = write.weights.empty() ? nullptr : write.weights.data();
  input.state = write.state.empty() ? nullptr : write.state.data();
  Table& table = route.tables_.emplace_back();
  table.id = spec.id;
  table.dim = spec.dim;
  table.replica_group = input.feature.replica_group;
  table.features = {0};
  table.images = StateShapeOf(spec.optimizer);
  return route;
}

// Nodes sum what comes as it was given to the same bits, but for two cases: rows that are rounded
// for the wire are summed before that here, and after it there; and an id has one TTL per part.
bool UpdateRoute::IsWorthCombining(const Table& table) const {
  if (options_.wire_dtype != DType::kFloat32) return true;
  absl::InlinedVector<std::span<const std::int64_t>, 4> ids;
  for (const std::uint32_t f : table.features) {
    if (inputs_[f].ttl_steps != 0) return true;
    ids.push_back(inputs_[f].feature.ids);
  }
  return HasManyDuplicates(ids);
}

absl::Status UpdateRoute::CombineTable(Table& table, const Routes& routes) {
  const TableRoute* route = routes.Find(table.id);
  if (route == nullptr) return TableIsGone(table.id, routes);
  if (table.images.has_value()) return absl::OkStatus();
  if (!table.is_worth_combining && !route->columns_cut() && !table.sync) {
    return absl::OkStatus();
  }
  if (!table.combined.has_value()) {
    if (table.sync) EMBLA_RETURN_IF_ERROR(CheckContribution(table, route->spec()));
    std::vector<CombinedGradients::Source> sources;
    for (const std::uint32_t f : table.features) {
      sources.push_back({&inputs_[f].feature, inputs_[f].gradients});
    }
    EMBLA_ASSIGN_OR_RETURN(table.combined,
                           CombinedGradients::Create(sources, route->spec(), *pool_));
    CombineTtls(table, route->spec());
  }
  const bool needed =
      !table.sync && route->columns_cut() && NeedsRowStatistic(route->spec().optimizer);
  if (needed && table.combined->row_sum_squares().empty()) {
    table.combined->ComputeRowSumSquares(route->primary(), options_.wire_dtype);
  }
  return absl::OkStatus();
}

absl::Status UpdateRoute::CheckContribution(const Table& table, const TableSpec& spec) const {
  if (!options_.rank.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", spec.name,
                     " has synchronous steps, which only ranks contribute to: connect with rank "
                     "and ranks"));
  }
  if (spec.zch.has_value() || spec.bounds != BoundsMode::kError) return absl::OkStatus();
  for (const std::uint32_t f : table.features) {
    for (const std::int64_t id : inputs_[f].feature.ids) {
      if (0 <= id && id < spec.rows) continue;
      return absl::OutOfRangeError(
          absl::StrCat("table ", spec.name, ": id ", id, " is outside its ", spec.rows, " rows"));
    }
  }
  return absl::OkStatus();
}

void UpdateRoute::CombineTtls(Table& table, const TableSpec& spec) const {
  const bool any = std::any_of(table.features.begin(), table.features.end(),
                               [&](std::uint32_t f) { return inputs_[f].ttl_steps != 0; });
  if (!any) return;
  const std::uint32_t usual = spec.zch.has_value() ? spec.zch->ttl_steps : 0;
  const std::span<const std::int64_t> ids = table.combined->ids();
  table.ttls.assign(ids.size(), 0);
  for (const std::uint32_t f : table.features) {
    const std::uint32_t ttl = inputs_[f].ttl_steps == 0 ? usual : inputs_[f].ttl_steps;
    for (const std::int64_t id : inputs_[f].feature.ids) {
      std::uint32_t& longest =
          table.ttls[std::lower_bound(ids.begin(), ids.end(), id) - ids.begin()];
      longest = std::max(longest, ttl);
    }
  }
}

std::vector<UpdateItem> UpdateRoute::CombinedItems(std::uint32_t t) const {
  UpdateItem item;
  item.table = t;
  item.column_end = tables_[t].dim;
  const std::vector<std::uint32_t>& ttls = tables_[t].ttls;
  if (tables_[t].combined->ids().empty()) return {};
  if (ttls.empty()) {
    item.ranges = {{0, static_cast<std::uint32_t>(tables_[t].combined->ids().size())}};
    return {item};
  }
  std::map<std::uint32_t, UpdateItem> by_ttl;
  for (std::uint32_t i = 0; i < ttls.size(); ++i) {
    UpdateItem& part = by_ttl.try_emplace(ttls[i], item).first->second;
    part.ttl_steps = ttls[i];
    if (!part.ranges.empty() && part.ranges.back().second == i) {
      ++part.ranges.back().second;
    } else {
      part.ranges.push_back({i, i + 1});
    }
  }
  std::vector<UpdateItem> items;
  items.reserve(by_ttl.size());
  for (auto& [ttl, part] : by_ttl) items.push_back(std::move(part));
  return items;
}

// The same rows as `item`, combined: every occurrence of an id was on one node.
UpdateItem UpdateRoute::CombinedItem(const UpdateItem& item) const {
  const std::span<const std::int64_t> all = tables_[item.table].combined->ids();
  const std::span<const std::int64_t> ids = inputs_[item.feature].feature.ids;
  std::vector<std::uint32_t> numbers;
  for (std::size_t i = 0; i < IdCount(item); ++i) {
    const std::int64_t id = ids[item.all ? i : item.entries[i]];
    const auto found = std::lower_bound(all.begin(), all.end(), id);
    numbers.push_back(static_cast<std::uint32_t>(found - all.begin()));
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  UpdateItem combined;
  combined.table = item.table;
  combined.column_begin = item.column_begin;
  combined.column_end = item.column_end;
  for (const std::uint32_t number : numbers) combined.ranges.push_back({number, number + 1});
  return combined;
}

absl::StatusOr<std::vector<UpdateShare>> UpdateRoute::Split(const Routes& routes) {
  // The columns may have been cut since Create.
  for (Table& table : tables_) EMBLA_RETURN_IF_ERROR(CombineTable(table, routes));
  std::vector<UpdateShare> shares;
  std::map<TableId, std::uint32_t> sync;
  for (std::uint32_t t = 0; t < tables_.size(); ++t) {
    if (tables_[t].sync) {
      sync.emplace(tables_[t].id, t);
      continue;
    }
    if (tables_[t].combined.has_value()) {
      for (const UpdateItem& item : CombinedItems(t)) {
        EMBLA_RETURN_IF_ERROR(SplitItem(item, routes, shares));
      }
      continue;
    }
    UpdateItem item;
    item.table = t;
    item.column_end = tables_[t].dim;
    item.all = true;
    for (const std::uint32_t f : tables_[t].features) {
      item.feature = f;
      EMBLA_RETURN_IF_ERROR(SplitItem(item, routes, shares));
    }
  }
  for (const auto& [id, t] : sync) {
    EMBLA_RETURN_IF_ERROR(SplitClaim(t, nullptr, CombinedItems(t), routes, shares));
  }
  return shares;
}

absl::Status UpdateRoute::SplitClaim(std::uint32_t t, const UnitSet* units,
                                     std::span<const UpdateItem> items, const Routes& routes,
                                     std::vector<UpdateShare>& shares) const {
  const TableRoute* const table = routes.Find(tables_[t].id);
  if (table == nullptr) return TableIsGone(tables_[t].id, routes);
  std::vector<UpdateShare> rows;
  for (const UpdateItem& item : items) EMBLA_RETURN_IF_ERROR(SplitItem(item, routes, rows));
  for (const auto& [node, all] : table->step_units()->by_node()) {
    UnitSet claimed = units == nullptr ? all : all.And(*units);
    if (claimed.empty()) continue;
    UpdateShare& share = shares.emplace_back(ShareOf(node, routes, rows));
    share.claim = {t, std::move(claimed)};
    KeepLearningRate(*table->step_units(), share);
  }
  return absl::OkStatus();
}

void UpdateRoute::KeepLearningRate(const StepUnits& units, UpdateShare& share) const {
  const std::uint32_t table = share.claim->table;
  if (!share.items.empty() || !tables_[table].learning_rate.has_value()) return;
  const StepUnits::CutRows first = units.RowsOf(share.claim->units).front();
  UpdateItem& item = share.items.emplace_back();
  item.table = table;
  item.column_begin = first.column_begin;
  item.column_end = first.column_end;
  item.ranges = {{0, 0}};
}

absl::StatusOr<std::vector<UpdateShare>> UpdateRoute::Resplit(const UpdateShare& share,
                                                              const Routes& routes) {
  std::vector<UpdateShare> shares;
  if (const std::optional<UpdateClaim>& claim = share.claim; claim.has_value()) {
    EMBLA_RETURN_IF_ERROR(SplitClaim(claim->table, &claim->units, share.items, routes, shares));
    return shares;
  }
  std::vector<bool> done(tables_.size(), false);
  for (const UpdateItem& item : share.items) {
    Table& table = tables_[item.table];
    EMBLA_RETURN_IF_ERROR(CombineTable(table, routes));
    if (item.combined() || !table.combined.has_value()) {
      EMBLA_RETURN_IF_ERROR(SplitItem(item, routes, shares));
      continue;
    }
    // The columns have been cut meanwhile. The features of a table become one item.
    if (done[item.table]) continue;
    done[item.table] = true;
    UpdateItem joined;
    for (const UpdateItem& other : share.items) {
      if (other.table != item.table) continue;
      UpdateItem part = CombinedItem(other);
      part.ranges.insert(part.ranges.end(), joined.ranges.begin(), joined.ranges.end());
      joined = std::move(part);
    }
    std::sort(joined.ranges.begin(), joined.ranges.end());
    joined.ranges.erase(std::unique(joined.ranges.begin(), joined.ranges.end()),
                        joined.ranges.end());
    EMBLA_RETURN_IF_ERROR(SplitItem(joined, routes, shares));
  }
  return shares;
}

absl::Status UpdateRoute::SplitItem(const UpdateItem& item, const Routes& routes,
                                    std::vector<UpdateShare>& shares) const {
  const TableRoute* table = routes.Find(tables_[item.table].id);
  if (table == nullptr) return TableIsGone(tables_[item.table].id, routes);
  for (const RouteBlock& block : table->primary()) {
    UpdateItem cut = item;
    cut.column_begin = std::max(item.column_begin, block.column_begin());
    cut.column_end = std::min(item.column_end, block.column_end());
    if (cut.column_begin >= cut.column_end) continue;
    SplitRows(cut, block, routes, shares);
  }
  return absl::OkStatus();
}

void UpdateRoute::SplitRows(const UpdateItem& item, const RouteBlock& block, const Routes& routes,
                            std::vector<UpdateShare>& shares) const {
  if (block.nodes().size() == 1) {
    ShareOf(block.nodes().front(), routes, shares).items.push_back(item);
    return;
  }
  UpdateItem like = item;
  like.all = false;
  for (auto* list : {&like.entries, &like.bags, &like.lengths}) list->clear();
  like.ranges.clear();
  std::vector<UpdateItem> items(block.nodes().size(), like);
  if (item.combined()) {
    AssignRanges(item, block, items);
  } else {
    AssignEntries(item, block, items);
  }
  for (std::size_t n = 0; n < items.size(); ++n) {
    if (items[n].ranges.empty() && items[n].entries.empty()) continue;
    const bool has_all = items[n].entries.size() == inputs_[item.feature].feature.ids.size();
    if (item.all && has_all) items[n] = item;
    ShareOf(block.nodes()[n], routes, shares).items.push_back(std::move(items[n]));
  }
}

// The ids ascend, so a node's are a few ranges: neighbours with one owner are joined.
void UpdateRoute::AssignRanges(const UpdateItem& item, const RouteBlock& block,
                               std::vector<UpdateItem>& items) const {
  const std::span<const std::int64_t> ids = tables_[item.table].combined->ids();
  for (const IdRange& range : item.ranges) {
    for (std::uint32_t i = range.first; i < range.second; ++i) {
      std::vector<IdRange>& ranges = items[block.OwnerOf(ids[i])].ranges;
      if (!ranges.empty() && ranges.back().second == i) {
        ++ranges.back().second;
      } else {
        ranges.push_back({i, i + 1});
      }
    }
  }
}

void UpdateRoute::VisitEntries(const UpdateItem& item,
                               absl::FunctionRef<void(const Entry& entry)> visit) const {
  const Feature& feature = inputs_[item.feature].feature;
  const std::size_t count = item.all ? feature.ids.size() : item.entries.size();
  const bool pooled = feature.pooling != Pooling::kNone;
  const std::span<const std::uint32_t> lengths =
      item.all ? feature.lengths : std::span<const std::uint32_t>(item.lengths);
  std::size_t bag = 0;      // The bag of the next entry, and
  std::size_t bag_end = 0;  // where the bag ends.
  for (std::size_t i = 0; i < count; ++i) {
    Entry entry;
    entry.position = item.all ? static_cast<std::uint32_t>(i) : item.entries[i];
    if (pooled) {
      while (i >= bag_end) bag_end += lengths[bag++];
      entry.bag = item.all ? static_cast<std::uint32_t>(bag - 1) : item.bags[bag - 1];
    }
    visit(entry);
  }
}

void UpdateRoute::AddEntry(const Entry& entry, UpdateItem& item) {
  item.entries.push_back(entry.position);
  if (!entry.bag.has_value()) return;
  if (item.bags.empty() || item.bags.back() != *entry.bag) {
    item.bags.push_back(*entry.bag);
    item.lengths.push_back(0);
  }
  ++item.lengths.back();
}

void UpdateRoute::AssignEntries(const UpdateItem& item, const RouteBlock& block,
                                std::vector<UpdateItem>& items) const {
  const std::span<const std::int64_t> ids = inputs_[item.feature].feature.ids;
  VisitEntries(item, [&](const Entry& entry) {
    AddEntry(entry, items[block.OwnerOf(ids[entry.position])]);
  });
}

}  // namespace embla::client
