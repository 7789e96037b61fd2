#include "client/route/lookup_route.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace embla::client {
namespace {

// Bytes of all answers in one arena: rows are addressed by 32-bit element numbers.
constexpr std::size_t kArenaBytesMax = std::size_t{8} << 30;

std::size_t Aligned(std::size_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

LookupShare& ShareOf(NodeId node, const Routes& routes, std::vector<LookupShare>& shares) {
  for (LookupShare& share : shares) {
    if (share.node == node) return share;
  }
  LookupShare& share = shares.emplace_back();
  share.node = node;
  share.plan_version = routes.plan().version();
  share.hints = routes.hints();
  return share;
}

}  // namespace

absl::StatusOr<LookupRoute> LookupRoute::Create(std::span<const FeatureLookup> features,
                                                const Routes& routes, const Options& options,
                                                BufferPool& pool) {
  LookupRoute route(options, pool);
  route.inputs_.reserve(features.size());
  for (std::size_t f = 0; f < features.size(); ++f) {
    Input& input = route.inputs_.emplace_back();
    EMBLA_ASSIGN_OR_RETURN(input.feature,
                           CheckFeature(routes, ArgumentsOf(features[f]), f, options.groups));
    input.rows_out = features[f].rows_out.data();
    if (options.combine_duplicates) input.FindDuplicates();
  }
  return route;
}

void LookupRoute::Input::FindDuplicates() {
  const bool has_row_per_id =
      feature.pooling == Pooling::kNone ||
      (feature.weights.empty() &&
       std::ranges::all_of(feature.lengths, [](std::uint32_t length) { return length == 1; }));
  if (!has_row_per_id) return;
  distinct = FindDistinct(feature.ids);
  const std::size_t duplicates = feature.ids.size() - entries().size();
  if (!IsWorthCombining(feature.ids.size(), duplicates)) distinct = {};
}

std::size_t LookupRoute::RowsOf(const LookupItem& item) const {
  const Input& input = inputs_[item.feature];
  if (item.all) return input.pooled() ? input.feature.lengths.size() : input.entries().size();
  return input.pooled() ? item.bags.size() : item.entries.size();
}

std::size_t LookupRoute::AnswerBytes(const LookupItem& item) const {
  return RowsOf(item) * RowBytes(options_.wire_dtype, item.columns());
}

bool LookupRoute::HasCopies(const LookupItem& item, const Routes& routes) const {
  const TableRoute* table = routes.Find(TableOf(item));
  return table != nullptr && table->replica_count() > 1;
}

LookupItem LookupRoute::WholeItem(std::uint32_t feature) const {
  LookupItem item;
  item.feature = feature;
  item.column_end = inputs_[feature].feature.dim;
  item.all = true;
  return item;
}

absl::StatusOr<std::vector<LookupShare>> LookupRoute::Split(const Routes& routes, NodeId avoid) {
  std::vector<LookupShare> shares;
  for (std::uint32_t f = 0; f < inputs_.size(); ++f) {
    if (inputs_[f].feature.ids.empty()) continue;
    EMBLA_RETURN_IF_ERROR(SplitItem(WholeItem(f), routes, avoid, shares));
  }
  EMBLA_RETURN_IF_ERROR(PlaceAnswers(shares));
  return shares;
}

absl::StatusOr<std::vector<LookupShare>> LookupRoute::Resplit(const LookupShare& share,
                                                              const Routes& routes, NodeId avoid) {
  std::vector<LookupShare> shares;
  for (const LookupItem& item : share.items) {
    EMBLA_RETURN_IF_ERROR(SplitItem(item, routes, avoid, shares));
  }
  EMBLA_RETURN_IF_ERROR(PlaceAnswers(shares));
  return shares;
}

absl::Status LookupRoute::SplitItem(const LookupItem& item, const Routes& routes, NodeId avoid,
                                    std::vector<LookupShare>& shares) const {
  const TableId table_id = inputs_[item.feature].feature.table;
  const TableRoute* table = routes.Find(table_id);
  if (table == nullptr) {
    return absl::NotFoundError(absl::StrCat("table id ", ToInt(table_id), " of feature ",
                                            item.feature, " is gone in plan ",
                                            ToInt(routes.plan().version())));
  }
  for (const RouteBlock& block : table->blocks(table->ReplicaFor(options_.session, avoid))) {
    LookupItem cut = item;
    cut.column_begin = std::max(item.column_begin, block.column_begin());
    cut.column_end = std::min(item.column_end, block.column_end());
    if (cut.column_begin >= cut.column_end) continue;
    SplitRows(cut, block, routes, shares);
  }
  return absl::OkStatus();
}

void LookupRoute::SplitRows(const LookupItem& item, const RouteBlock& block, const Routes& routes,
                            std::vector<LookupShare>& shares) const {
  if (block.nodes().size() == 1) {
    ShareOf(block.nodes().front(), routes, shares).items.push_back(item);
    return;
  }
  std::vector<LookupItem> items(block.nodes().size());
  AssignOwners(item, block, items);
  for (std::size_t n = 0; n < items.size(); ++n) {
    if (items[n].entries.empty()) continue;
    const bool has_all = items[n].entries.size() == inputs_[item.feature].entries().size();
    if (item.all && has_all) items[n] = item;
    items[n].feature = item.feature;
    items[n].column_begin = item.column_begin;
    items[n].column_end = item.column_end;
    ShareOf(block.nodes()[n], routes, shares).items.push_back(std::move(items[n]));
  }
}

void LookupRoute::AssignOwners(const LookupItem& item, const RouteBlock& block,
                               std::vector<LookupItem>& items) const {
  const Input& input = inputs_[item.feature];
  const std::span<const std::int64_t> ids = input.entries();
  const std::size_t count = item.all ? ids.size() : item.entries.size();
  const auto entry_at = [&](std::size_t i) {
    return item.all ? static_cast<std::uint32_t>(i) : item.entries[i];
  };
  for (LookupItem& part : items) part.entries.reserve(count / items.size() + count / 8 + 1);
  if (!input.pooled()) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t entry = entry_at(i);
      items[block.OwnerOf(ids[entry])].entries.push_back(entry);
    }
    return;
  }
  const std::span<const std::uint32_t> lengths =
      item.all ? input.feature.lengths : std::span<const std::uint32_t>(item.lengths);
  std::size_t next = 0;
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    const std::uint32_t bag = item.all ? static_cast<std::uint32_t>(b) : item.bags[b];
    for (const std::size_t end = next + lengths[b]; next < end; ++next) {
      const std::uint32_t entry = entry_at(next);
      LookupItem& part = items[block.OwnerOf(ids[entry])];
      if (part.bags.empty() || part.bags.back() != bag) {
        part.bags.push_back(bag);
        part.lengths.push_back(0);
      }
      ++part.lengths.back();
      part.entries.push_back(entry);
    }
  }
}

// The rows of every item are, in order, one stretch of the callers' arrays.
bool LookupRoute::TryDirect(LookupShare& share) const {
  if (options_.wire_dtype != DType::kFloat32) return false;
  const float* next = nullptr;
  std::size_t floats = 0;
  for (const LookupItem& item : share.items) {
    const Input& input = inputs_[item.feature];
    const bool whole = item.all && item.columns() == input.feature.stride;
    if (!whole || input.distinct.has_duplicates) return false;
    if (next != nullptr && next != input.rows_out) return false;
    const std::size_t item_floats = RowsOf(item) * input.feature.dim;
    next = input.rows_out + item_floats;
    floats += item_floats;
  }
  float* first = inputs_[share.items.front().feature].rows_out;
  share.answer = std::as_writable_bytes(std::span<float>(first, floats));
  share.direct = true;
  return true;
}

absl::Status LookupRoute::PlaceAnswers(std::vector<LookupShare>& shares) {
  std::size_t arena_bytes = 0;
  for (LookupShare& share : shares) {
    std::size_t bytes = 0;
    for (LookupItem& item : share.items) {
      item.reply_offset = bytes;
      bytes += AnswerBytes(item);
    }
    if (!TryDirect(share)) arena_bytes += Aligned(bytes);
  }
  if (arena_bytes > kArenaBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("the answer has ", arena_bytes,
                                                   " bytes, at most ", kArenaBytesMax,
                                                   " are allowed: split the batch"));
  }
  if (arena_bytes == 0) return absl::OkStatus();
  Buffer& arena = arenas_.emplace_back(pool_->Take(arena_bytes));
  std::size_t offset = 0;
  for (LookupShare& share : shares) {
    if (share.direct) continue;
    const LookupItem& last = share.items.back();
    const std::size_t bytes = last.reply_offset + AnswerBytes(last);
    share.answer = arena.bytes().subspan(offset, bytes);
    offset += Aligned(bytes);
  }
  return absl::OkStatus();
}

void LookupRoute::AppendIds(const LookupItem& item, std::span<RowId> ids, float* weights) const {
  const Input& input = inputs_[item.feature];
  const std::span<const std::int64_t> entries = input.entries();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::size_t entry = item.all ? i : item.entries[i];
    ids[i] = RowId{entries[entry]};
    if (weights != nullptr) weights[i] = input.feature.weights[entry];
  }
}

NodeLookup LookupRoute::Build(const LookupShare& share) const {
  NodeLookup request;
  request.batch.plan_version = share.plan_version;
  request.batch.session = options_.session;
  request.batch.proof = options_.proof;
  request.batch.wire_dtype = options_.wire_dtype;
  request.batch.takes_refused = true;
  request.reply_rows = share.answer;
  const auto ids_of = [&](const LookupItem& item) {
    return item.all ? inputs_[item.feature].entries().size() : item.entries.size();
  };
  request.batch.parts.reserve(share.items.size());
  std::size_t ids = 0, lengths = 0, weights = 0;
  for (const LookupItem& item : share.items) {
    ids += ids_of(item);
    if (inputs_[item.feature].pooled()) lengths += RowsOf(item);
    if (!inputs_[item.feature].feature.weights.empty()) weights += ids_of(item);
  }
  request.ids = pool_->Take(ids * sizeof(RowId));
  request.lengths = pool_->Take(lengths * sizeof(std::uint32_t));
  request.weights = pool_->Take(weights * sizeof(float));
  RowId* next_id = request.ids.MutableAs<RowId>().data();
  std::uint32_t* next_length = request.lengths.MutableAs<std::uint32_t>().data();
  float* next_weight = request.weights.MutableAs<float>().data();
  for (const LookupItem& item : share.items) {
    const Feature& feature = inputs_[item.feature].feature;
    LookupPart& part = request.batch.parts.emplace_back();
    part.table = feature.table;
    part.replica_group = feature.replica_group;
    const bool pooled = inputs_[item.feature].pooled();
    part.pooling = pooled ? embla::Pooling::kSum : embla::Pooling::kNone;
    part.column_begin = item.column_begin;
    part.column_end = item.column_end;
    const std::size_t count = ids_of(item);
    const bool weighted = !feature.weights.empty();
    part.ids = {next_id, count};
    if (weighted) part.weights = {next_weight, count};
    AppendIds(item, {next_id, count}, weighted ? next_weight : nullptr);
    next_id += count;
    if (weighted) next_weight += count;
    if (!pooled) continue;
    const std::span<const std::uint32_t> bag_lengths =
        item.all ? feature.lengths : std::span<const std::uint32_t>(item.lengths);
    part.lengths = {next_length, bag_lengths.size()};
    next_length = std::copy(bag_lengths.begin(), bag_lengths.end(), next_length);
  }
  return request;
}

}  // namespace embla::client
