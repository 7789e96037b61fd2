#include "client/route/table_route.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/route/error_details.h"
#include "core/base/check.h"
#include "core/base/text.h"
#include "core/plan/slice_map.h"

namespace embla::client {
namespace {

// A column block of slices as a column block of nodes: neighbours on one node are one interval.
RouteBlock MergeRows(const SliceMap::ColumnBlock& block, const std::vector<Slice>& slices,
                     const IdRows& id_rows) {
  std::vector<std::int64_t> borders;
  std::vector<NodeId> owners;
  for (std::size_t i = 0; i < block.owners.size(); ++i) {
    EMBLA_CHECK(block.owners[i] != SliceMap::kNotCovered);
    const NodeId owner = slices[block.owners[i]].device.node;
    if (!owners.empty() && owners.back() == owner) continue;
    borders.push_back(block.row_borders[i]);
    owners.push_back(owner);
  }
  borders.push_back(block.row_borders.back());
  return RouteBlock(block.column_begin, block.column_end, std::move(borders), std::move(owners),
                    id_rows);
}

}  // namespace

RouteBlock::RouteBlock(std::uint32_t column_begin, std::uint32_t column_end,
                       std::vector<std::int64_t> row_borders, std::vector<NodeId> owners,
                       const IdRows& id_rows)
    : column_begin_(column_begin),
      column_end_(column_end),
      row_borders_(std::move(row_borders)),
      owners_(std::move(owners)),
      nodes_(owners_),
      id_rows_(id_rows) {
  EMBLA_CHECK(!owners_.empty() && row_borders_.size() == owners_.size() + 1);
  std::sort(nodes_.begin(), nodes_.end());
  nodes_.erase(std::unique(nodes_.begin(), nodes_.end()), nodes_.end());
  for (const NodeId owner : owners_) {
    const auto node = std::lower_bound(nodes_.begin(), nodes_.end(), owner);
    node_of_.push_back(static_cast<std::uint32_t>(node - nodes_.begin()));
  }
}

std::uint32_t RouteBlock::OwnerOf(std::int64_t id) const {
  const std::int64_t row = id_rows_.RowOf(RowId{id});
  if (row < row_borders_.front() || row >= row_borders_.back()) return node_of_.front();
  // The first border is not searched: `row` is past it.
  const auto after = std::upper_bound(row_borders_.begin() + 1, row_borders_.end(), row);
  return node_of_[static_cast<std::size_t>(after - row_borders_.begin()) - 1];
}

std::int64_t RouteBlock::RowsOn(NodeId node, std::int64_t row_begin, std::int64_t row_end) const {
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < owners_.size(); ++i) {
    if (owners_[i] != node) continue;
    const std::int64_t begin = std::max(row_borders_[i], row_begin);
    rows += std::max<std::int64_t>(std::min(row_borders_[i + 1], row_end) - begin, 0);
  }
  return rows;
}

bool RouteBlock::SameRows(const RouteBlock& other) const {
  return row_borders_ == other.row_borders_ && owners_ == other.owners_;
}

TableRoute::TableRoute(TablePtr plan, UnitHints hints)
    : table_(std::move(plan)), hints_(std::move(hints)) {
  const TablePlan& table = *table_;
  // The groups' copies are on the same nodes: requests say which group they mean.
  const std::size_t copies = table.grouped() ? 1 : table.replicas.size();
  for (std::size_t copy = 0; copy < copies; ++copy) {
    const std::vector<Slice> slices =
        hints_.empty() ? table.replicas[copy] : hints_.Applied(table.replicas[copy]);
    if (copy == 0 && table.spec.sync.has_value()) step_units_.emplace(table.spec, slices);
    std::vector<RouteBlock>& blocks = replicas_.emplace_back();
    const SliceMap map = SliceMap::Build(slices);
    for (const SliceMap::ColumnBlock& block : map.blocks()) {
      RouteBlock merged = MergeRows(block, slices, IdRows(table.spec));
      if (!blocks.empty() && blocks.back().SameRows(merged)) {
        blocks.back().ExtendTo(merged.column_end());
      } else {
        blocks.push_back(std::move(merged));
      }
    }
  }
}

bool TableRoute::SendsTo(NodeId node, const UnitHint& hint) const {
  return std::ranges::all_of(primary(), [&](const RouteBlock& block) {
    const bool meets =
        block.column_begin() < hint.column_end && hint.column_begin < block.column_end();
    return !meets ||
           block.RowsOn(node, hint.row_begin, hint.row_end) == hint.row_end - hint.row_begin;
  });
}

std::size_t TableRoute::ReplicaFor(SessionId session, NodeId avoid) const {
  const std::size_t first = ToInt(session) % replicas_.size();
  for (std::size_t i = 0; i <= replicas_.size(); ++i) {
    const std::size_t replica = i == 0 ? first : i - 1;
    const bool avoided =
        std::any_of(replicas_[replica].begin(), replicas_[replica].end(), [&](const auto& block) {
          return std::binary_search(block.nodes().begin(), block.nodes().end(), avoid);
        });
    if (!avoided) return replica;
  }
  return first;
}

Routes::Routes(PlanPtr plan, const Routes* before)
    : plan_(std::move(plan)), routed_since_(plan_->version()) {
  tables_.reserve(plan_->tables().size());
  std::span<const TablePtr> old;  // By id, like the new ones.
  if (before != nullptr) old = before->plan_->tables().pointers();
  std::size_t at = 0;
  for (const TablePtr& table : plan_->tables().pointers()) {
    while (at < old.size() && old[at] != table && old[at]->spec.id < table->spec.id) ++at;
    const bool is_same =
        at < old.size() && old[at] == table && before->tables_[at]->hints().empty();
    tables_.push_back(is_same ? before->tables_[at++] : std::make_shared<const TableRoute>(table));
  }
}

std::shared_ptr<const Routes> Routes::Following(const Routes& before,
                                                std::span<const UnitHint> hints, NodeId node,
                                                PlanVersion its_plan) {
  std::map<std::size_t, std::vector<UnitHint>> by_table;  // By place in tables_.
  for (const UnitHint& hint : hints) {
    const TablePlan* const table = before.plan_->FindTable(hint.table);
    if (table == nullptr || before.plan_->FindNode(hint.owner) == nullptr) continue;
    if (table->replicas.size() > 1 && !table->grouped()) continue;
    const std::size_t place = before.plan_->tables().IndexOf(table->spec.id);
    if (before.tables_[place]->SendsTo(node, hint)) by_table[place].push_back(hint);
  }
  std::shared_ptr<Routes> routes;
  for (const auto& [place, about] : by_table) {
    const TablePtr& table = before.tables_[place]->table();
    UnitHints next = before.tables_[place]->hints();
    if (!next.Include(*table, about)) continue;
    if (routes == nullptr) routes = std::make_shared<Routes>(before);
    routes->tables_[place] = std::make_shared<const TableRoute>(table, std::move(next));
  }
  if (routes == nullptr) return nullptr;
  ++routes->hints_;
  routes->routed_since_ = std::min(routes->routed_since_, its_plan);
  return routes;
}

const TableRoute* Routes::Find(std::string_view table) const {
  const TablePlan* const found = plan_->FindTable(table);
  return found == nullptr ? nullptr : Find(found->spec.id);
}

absl::Status Routes::NoSuchTable(std::string_view table) const {
  const std::string name(table);
  const TablePlan* const aside = plan_->FindAside(table);
  return AboutTable(absl::NotFoundError(absl::StrCat(
                        "no table ", name, " in plan ", ToInt(plan_->version()),
                        aside == nullptr ? ""
                                         : absl::StrCat("; one of id ", ToInt(aside->spec.id),
                                                        " is kept aside: embla table adopt ", name,
                                                        " serves it again"))),
                    name);
}

const TableRoute* Routes::Find(TableId table) const {
  const std::size_t index = plan_->tables().IndexOf(table);
  return index == tables_.size() ? nullptr : tables_[index].get();
}

}  // namespace embla::client
