// An update's way out: which node gets which gradients (Split), and the request of each (Build).
// Pure: no network, no clock.
//
// A table's gradients are combined here, one row per distinct id over all features, when the caller
// asks for it and many ids are duplicates (distinct_ids.h), or when the columns of a row are on
// several nodes: then every node is told the sum of squares over the whole row, if the optimizer
// needs it. Otherwise the features travel as they were given, and the nodes combine, in the same
// order with the same result.
//
// Images of rows (CreateWrite) travel as they were given, each node's columns of them.
//
// Gradients of a table with synchronous steps are always combined, and have shares of their own:
// one for every node that has units of the table, with rows or without, which claims these units.
//
// A request is built from the caller's arrays each time it is sent, so nothing is kept for retries.
// Tests: route_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/include/embla/client.h"
#include "client/route/combined_gradients.h"
#include "client/route/feature.h"
#include "client/route/node_request.h"
#include "client/route/table_route.h"
#include "core/base/buffer.h"
#include "core/rows/refused_unit.h"

namespace embla::client {

// One part of a share: one table or feature, one column range, on one node.
struct UpdateItem {
  std::uint32_t table = 0;  // Position of the table in the call, in order of first mention.
  std::uint32_t column_begin = 0;
  std::uint32_t column_end = 0;
  std::vector<IdRange> ranges;  // Combined tables only: which of the distinct ids,
  std::uint32_t ttl_steps = 0;  // and how long they live.
  // Features that travel as given:
  std::uint32_t feature = 0;
  bool all = false;                    // The whole feature; the vectors are empty.
  std::vector<std::uint32_t> entries;  // Positions in the feature's ids, ascending.
  std::vector<std::uint32_t> bags;     // Pooled: those with entries here, ascending,
  std::vector<std::uint32_t> lengths;  // and how many entries each has here.

  std::uint32_t columns() const { return column_end - column_begin; }
  bool combined() const { return !ranges.empty(); }
};

// The units of a table with synchronous steps that a share speaks for.
struct UpdateClaim {
  std::uint32_t table = 0;  // Like UpdateItem::table.
  UnitSet units;
};

// One node's part of an update.
struct UpdateShare {
  NodeId node{};
  PlanVersion plan_version{};
  std::uint64_t hints = 0;  // Routes::hints() then.
  std::vector<UpdateItem> items;
  std::optional<UpdateClaim> claim = {};  // Set: all items are of its table, and there may be none.
};

// The fields of a request beside its parts.
struct UpdateHeader {
  PlanVersion routed_since{};  // The plan of the update's first requests.
  SessionId session{};
  SessionProof proof{};
  UpdateSeq seq{};
  UpdateSeq first_incomplete{};
  std::uint64_t step = 0;
  bool resumes = false;  // True if an earlier request began this contribution.
};

// New values of rows, in place of a step.
struct RowWrite {
  std::string_view table;
  std::span<const std::int64_t> ids;  // Each once.
  std::span<const float> weights;     // ids x dim; empty: they stay.
  std::span<const float> state;       // ids x floats of state per row; empty: it stays.
};
// InvalidArgument names the table, the array and the numbers.
absl::Status CheckSizes(const TableSpec& spec, const RowWrite& write);

class UpdateRoute {
 public:
  struct Options {
    DType wire_dtype = DType::kFloat32;
    bool combine_duplicates = true;
    GroupChoice groups{};
    std::optional<Rank> rank = {};  // None: tables with synchronous steps are refused.
  };

  // Checks the features (CheckFeature) and combines. Their arrays and `pool` must outlive this
  // object.
  static absl::StatusOr<UpdateRoute> Create(std::span<const FeatureGradient> features,
                                            const Routes& routes, const Options& options,
                                            BufferPool& pool);
  // Checks `write`, whose arrays must outlive this object. Requires: options.wire_dtype is fp32.
  static absl::StatusOr<UpdateRoute> CreateWrite(const RowWrite& write, const Routes& routes,
                                                 const Options& options, BufferPool& pool);

  // One share per node that has anything to do, and then the shares with claims: by table id, so
  // that all ranks send them in one order. Errors: NotFound (a table is gone).
  absl::StatusOr<std::vector<UpdateShare>> Split(const Routes& routes);
  // Divides the work of `share` under newer routes. Errors: see Split and Create.
  absl::StatusOr<std::vector<UpdateShare>> Resplit(const UpdateShare& share, const Routes& routes);

  // The rows of `share` that lie in `refused`, units that its node left out; no items: none do.
  UpdateShare Refused(const UpdateShare& share, std::span<const RefusedUnit> refused,
                      const Routes& routes) const;
  // The part of `share`, which has a claim, that is of `units`; no claim: none is.
  UpdateShare Within(const UnitSet& units, const UpdateShare& share, const Routes& routes) const;

  // May borrow gradients of the caller's.
  NodeUpdate Build(const UpdateShare& share, const UpdateHeader& header) const;

  // The first table of the share.
  TableId TableOf(const UpdateShare& share) const {
    return tables_[share.claim ? share.claim->table : share.items.front().table].id;
  }
  TableId TableOf(const UpdateItem& item) const { return tables_[item.table].id; }

 private:
  struct Input {
    Feature feature;
    const float* gradients = nullptr;  // Not owned; of an image, its weights, or null.
    const float* state = nullptr;      // Not owned; of an image, or null.
    std::uint32_t ttl_steps = 0;
  };
  struct Table {
    TableId id{};
    std::uint32_t dim = 0;
    std::uint32_t replica_group = 0;
    bool sync = false;                // With synchronous steps.
    bool is_worth_combining = false;  // Holds for every plan.
    absl::InlinedVector<std::uint32_t, 2> features;
    std::optional<float> learning_rate;
    std::optional<StateShape> images;  // Its optimizer's state; none: gradients.
    std::optional<CombinedGradients> combined;
    std::vector<std::uint32_t> ttls;  // By combined id; empty: all as the table says.
  };
  // Sizes of a request's arrays, then positions in them while they are filled.
  struct Arrays;

  UpdateRoute(const Options& options, BufferPool& pool) : options_(options), pool_(&pool) {}

  using TablePlaces = absl::flat_hash_map<TableId, std::size_t>;  // In tables_.
  absl::Status AddFeature(const FeatureGradient& feature, const Routes& routes,
                          TablePlaces& places);
  // InvalidArgument, OutOfRange: a node would refuse the contribution. Looked at before any is
  // sent: those to other nodes would be counted, or wait.
  absl::Status CheckContribution(const Table& table, const TableSpec& spec) const;
  // InvalidArgument: not one that a step can have, or not that of the table's features before.
  absl::Status SetLearningRate(Table& table, const FeatureGradient& feature) const;
  bool IsWorthCombining(const Table& table) const;
  // Combines, and computes the rows' statistic, where that is needed and not done.
  absl::Status CombineTable(Table& table, const Routes& routes);
  void CombineTtls(Table& table, const TableSpec& spec) const;
  // The whole of a combined table, in parts whose ids live equally long.
  std::vector<UpdateItem> CombinedItems(std::uint32_t table) const;
  UpdateItem CombinedItem(const UpdateItem& item) const;
  absl::Status SplitItem(const UpdateItem& item, const Routes& routes,
                         std::vector<UpdateShare>& shares) const;
  // The whole table's, or that of `units`.
  absl::Status SplitClaim(std::uint32_t table, const UnitSet* units,
                          std::span<const UpdateItem> items, const Routes& routes,
                          std::vector<UpdateShare>& shares) const;
  // A contribution without rows still has to say its learning rate: in a part without ids.
  void KeepLearningRate(const StepUnits& units, UpdateShare& share) const;
  void SplitRows(const UpdateItem& item, const RouteBlock& block, const Routes& routes,
                 std::vector<UpdateShare>& shares) const;
  void AssignRanges(const UpdateItem& item, const RouteBlock& block,
                    std::vector<UpdateItem>& items) const;
  void AssignEntries(const UpdateItem& item, const RouteBlock& block,
                     std::vector<UpdateItem>& items) const;

  // An id of a feature that travels as given, and its bag, if it is pooled.
  struct Entry {
    std::uint32_t position = 0;
    std::optional<std::uint32_t> bag;
  };
  void VisitEntries(const UpdateItem& item,
                    absl::FunctionRef<void(const Entry& entry)> visit) const;
  // Requires: behind those that `item` has.
  static void AddEntry(const Entry& entry, UpdateItem& item);

  // Selects the ids that are kept.
  using KeepId = absl::FunctionRef<bool(std::int64_t id)>;
  std::vector<IdRange> KeepRanges(const UpdateItem& item, KeepId keep) const;
  UpdateItem KeepEntries(const UpdateItem& item, KeepId keep) const;

  UpdatePart PartOf(const UpdateItem& item) const;
  std::size_t IdCount(const UpdateItem& item) const;
  std::size_t BagCount(const UpdateItem& item) const;
  bool HasWeights(const UpdateItem& item) const;
  bool CanBorrow(const UpdateItem& item) const;
  void FillCombined(const UpdateItem& item, Arrays& arrays) const;
  void FillFeature(const UpdateItem& item, Arrays& arrays) const;  // All but the gradients.
  void FillGradients(const UpdateItem& item, Arrays& arrays) const;
  void FillImages(const UpdateItem& item, Arrays& arrays) const;

  Options options_;
  BufferPool* pool_;  // Not owned; outlives this object.
  std::vector<Input> inputs_;
  std::vector<Table> tables_;
};

}  // namespace embla::client
