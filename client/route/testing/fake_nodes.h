// Shard servers in plain loops: they hold fp32 tables, check that they were asked only for what the
// plan gives them, and follow the numerics contract (kernels/row_kernels.h) literally.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "client/route/node_request.h"
#include "client/route/table_route.h"
#include "core/plan/plan.h"
#include "core/rows/refused_unit.h"

namespace embla::client {

// The canonical fp32 sum of duplicates.
class CanonicalSum {
 public:
  void Add(float value);
  float Total() const;

 private:
  float total_ = 0.0f;
  float piece_ = 0.0f;
  std::size_t in_piece_ = 0;
};

// One table as one process would hold it.
class PlainTable {
 public:
  explicit PlainTable(const TableSpec& spec);

  const TableSpec& spec() const { return spec_; }
  float weight(std::int64_t row, std::uint32_t column) const {
    return weights_[row * spec_.dim + column];
  }
  // One step of SGD or row-wise Adagrad on one element; sum_squares is over the whole row.
  void Step(std::int64_t row, std::uint32_t column, float gradient, float sum_squares);

  // A value that is none stays.
  void Write(std::int64_t row, std::uint32_t column, std::optional<float> weight,
             std::optional<float> statistic);

  float statistic(std::int64_t row, std::uint32_t column) const {
    return statistic_[row * spec_.dim + column];
  }
  const std::vector<float>& weights() const { return weights_; }

 private:
  TableSpec spec_;
  std::vector<float> weights_;
  std::vector<float> statistic_;  // One per element, so that every column owner has its own.
};

class FakeNodes {
 public:
  explicit FakeNodes(PlanPtr plan);

  // Replaces the plan, and with it the owners; the rows stay.
  void SetPlan(PlanPtr plan) { routes_ = std::make_shared<Routes>(std::move(plan)); }

  absl::Status Lookup(NodeId node, const NodeLookup& request);
  // Rows in `refused` are left out.
  absl::Status Update(NodeId node, const NodeUpdate& request,
                      std::span<const RefusedUnit> refused = {});
  // A contribution to a synchronous step that no other rank contributes to: `units` of its claim
  // make the step, by SGD. InvalidArgument: rows outside the claim, an id twice, or another form.
  // FailedPrecondition: the step is not the next one of a unit.
  absl::Status MakeStep(const NodeUpdate& request, const UnitSet& units);
  // The units that the plan gives `node`, and all of the table.
  UnitSet UnitsOn(NodeId node, TableId table) const;
  UnitSet AllUnits(TableId table) const;
  // The step that the unit makes next.
  std::uint64_t NextStep(TableId table, const UnitSet::Run& unit) const;

  // The result that Update would have, for all rows; changes nothing.
  absl::Status CheckUpdate(NodeId node, const NodeUpdate& request) const;

  const RoutesPtr& routes() const { return routes_; }
  const PlainTable& table(TableId id) const { return tables_.at(id); }

 private:
  struct RowGradient;
  using Unit = std::pair<std::uint32_t, std::uint32_t>;  // Column granule, row granule.

  absl::Status CheckOwned(NodeId node, const TableRoute& table, std::int64_t id,
                          std::uint32_t column_begin, std::uint32_t column_end, bool update) const;
  absl::Status LookupRows(NodeId node, const LookupPart& part, std::vector<float>& rows) const;
  using Rows = std::map<std::int64_t, RowGradient>;
  // Part `number` of the request, without its rows in `refused`; writes it, if it is images.
  absl::Status WriteImages(NodeId node, const NodeUpdate& request, std::uint32_t number,
                           std::span<const RefusedUnit> refused);
  absl::Status AddPart(NodeId node, const NodeUpdate& request, std::uint32_t number,
                       std::span<const RefusedUnit> refused, Rows& rows) const;
  // The unit of an element, by the definition.
  Unit UnitOf(TableId table, std::int64_t row, std::uint32_t column) const;

  RoutesPtr routes_;
  std::map<TableId, PlainTable> tables_;
  std::map<TableId, std::map<Unit, std::uint64_t>> next_steps_;  // 0 where there is none.
};

}  // namespace embla::client
