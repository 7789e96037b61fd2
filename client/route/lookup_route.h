// A lookup's way out and back: which node is asked for which rows (Split), the request of each node
// (Build), and the callers' arrays made of the answers (Merge). Pure: no network, no clock.
//
// A feature's ids are its entries. Where that was asked for and many are duplicates, each distinct
// id is one entry; so it is for pooled features, too, if all their bags have one id without weight:
// nodes are asked for rows, and Merge adds each to zero, which is what a node does. A column block
// on one node is asked for as it is. Otherwise every node gets its own entries in arrival order,
// and for pooled features its own non-empty bags, and answers partial sums. Merge then reads all
// answers of a column range as one array of rows: unpooled rows are gathered into the caller's
// order, partial sums are pooled from zeros in ascending node order. Nodes are never asked for
// means: the sums are divided here, so that means are equal for all sharding types.
//
// An answer that is exactly a stretch of the caller's array is received into it. Tests against a
// plain oracle under random plans: route_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/include/embla/client.h"
#include "client/route/distinct_ids.h"
#include "client/route/feature.h"
#include "client/route/node_request.h"
#include "client/route/table_route.h"
#include "core/base/buffer.h"

namespace embla::client {

// One part of a share: one feature, one column range, on one node.
struct LookupItem {
  std::uint32_t feature = 0;
  std::uint32_t column_begin = 0;
  std::uint32_t column_end = 0;
  bool all = false;  // All entries and bags of the feature; the vectors are empty.
  std::vector<std::uint32_t> entries;  // Ascending.
  std::vector<std::uint32_t> bags;     // Pooled: those with entries here, ascending,
  std::vector<std::uint32_t> lengths;  // and how many entries each has here.
  std::size_t reply_offset = 0;        // Bytes before its rows in the share's answer.

  std::uint32_t columns() const { return column_end - column_begin; }
};

// One node's part of a lookup.
struct LookupShare {
  NodeId node{};
  PlanVersion plan_version{};
  std::uint64_t hints = 0;  // Routes::hints() then.
  std::vector<LookupItem> items;
  std::span<std::byte> answer;  // Memory for the rows that the node answers.
  bool direct = false;          // `answer` is in the caller's arrays, already in its place.
};

class LookupRoute {
 public:
  struct Options {
    DType wire_dtype = DType::kFloat32;
    bool combine_duplicates = true;
    SessionId session{};
    SessionProof proof{};
    GroupChoice groups{};
  };

  // Checks the features (CheckFeature). Their arrays and `pool` must outlive this object.
  static absl::StatusOr<LookupRoute> Create(std::span<const FeatureLookup> features,
                                            const Routes& routes, const Options& options,
                                            BufferPool& pool);

  // One share per node that has anything to do, without `avoid` where there is another copy. Call
  // once. Errors: InvalidArgument (the answers are too large to be addressed), NotFound (a table is
  // gone).
  absl::StatusOr<std::vector<LookupShare>> Split(const Routes& routes, NodeId avoid);

  // Divides the work of `share` under newer routes. Errors: see Split.
  absl::StatusOr<std::vector<LookupShare>> Resplit(const LookupShare& share, const Routes& routes,
                                                   NodeId avoid);

  NodeLookup Build(const LookupShare& share) const;

  TableId TableOf(const LookupItem& item) const { return inputs_[item.feature].feature.table; }
  // Whether the rows are on several nodes, so that another one may be asked.
  bool HasCopies(const LookupItem& item, const Routes& routes) const;

  // Fills the callers' arrays. `shares` are the answered ones: together they cover everything.
  void Merge(std::span<const LookupShare* const> shares);

 private:
  struct Input {
    Feature feature;
    DistinctIds distinct;
    float* rows_out = nullptr;  // Not owned.

    std::span<const std::int64_t> entries() const {
      return distinct.has_duplicates ? std::span<const std::int64_t>(distinct.ids) : feature.ids;
    }
    // Whether nodes are asked for sums.
    bool pooled() const { return feature.pooling != Pooling::kNone && !distinct.has_duplicates; }
    // Fills in `distinct`, if each answered row is of one id and many ids are duplicates.
    void FindDuplicates();
  };
  // An item's rows among all answers.
  struct Source {
    const LookupItem* item = nullptr;
    const std::byte* rows = nullptr;
  };

  LookupRoute(const Options& options, BufferPool& pool) : options_(options), pool_(&pool) {}

  std::size_t RowsOf(const LookupItem& item) const;
  std::size_t AnswerBytes(const LookupItem& item) const;
  LookupItem WholeItem(std::uint32_t feature) const;
  absl::Status SplitItem(const LookupItem& item, const Routes& routes, NodeId avoid,
                         std::vector<LookupShare>& shares) const;
  void SplitRows(const LookupItem& item, const RouteBlock& block, const Routes& routes,
                 std::vector<LookupShare>& shares) const;
  void AssignOwners(const LookupItem& item, const RouteBlock& block,
                    std::vector<LookupItem>& items) const;
  bool TryDirect(LookupShare& share) const;
  absl::Status PlaceAnswers(std::vector<LookupShare>& shares);
  void AppendIds(const LookupItem& item, std::span<RowId> ids, float* weights) const;

  // Merge: all scratch answers as one array that starts at base_, in element_.
  void GatherAnswers(std::span<const LookupShare* const> shares);
  void MergeFeature(Input& input, std::span<const Source> sources);
  void MergeColumns(Input& input, std::span<const Source> sources, std::uint32_t column_begin,
                    std::uint32_t column_end);
  void GatherRows(const Input& input, std::span<const Source> sources, const kernels::Rows& rows,
                  const kernels::Output& out, std::uint32_t column) const;
  void PoolPartials(const Input& input, std::span<const Source> sources, const kernels::Rows& rows,
                    const kernels::Output& out, std::uint32_t column) const;
  std::uint32_t SlotOf(const Source& source, std::size_t row, std::uint32_t column) const;

  Options options_;
  BufferPool* pool_;  // Not owned; outlives this object.
  std::vector<Input> inputs_;
  std::vector<Buffer> arenas_;  // Answers that are not direct: one arena per Split and Resplit.
  const std::byte* base_ = nullptr;
  DType element_ = DType::kFloat32;
  std::vector<std::vector<Source>> sources_;  // Per feature, in node order.
};

}  // namespace embla::client
