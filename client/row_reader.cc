#include "client/row_reader.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "client/route/feature.h"
#include "core/base/text.h"
#include "core/rows/row_block.h"
#include "kernels/convert.h"

namespace embla::client {

// A request to one node, and the size of its reply.
struct RowReader::NodeRead {
  NodeId node{};
  NodeChannel::RowsQuery query;
  std::size_t cells_expected = 0;  // Rows x columns.
  std::size_t cells_received = 0;
  // Takes in a block whose rows are inside the table; called by one thread per node, with disjoint
  // rows or columns.
  std::function<absl::Status(const RowBlock&)> take;
};

namespace {

absl::Status CheckShape(const RowBlock& block, const TableSpec& spec) {
  const RowBlockShape& shape = block.shape;
  if (shape.table == spec.id && shape.column_end <= spec.dim && shape.dtype == spec.dtype) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat("a row block of table id ", ToInt(shape.table), ", columns ", shape.column_begin,
                   " to ", shape.column_end, " does not belong to table ", spec.name));
}

absl::Status CheckState(const RowBlock& block, const TableSpec& spec) {
  const StateShape state = StateShapeOf(spec.optimizer);
  const std::uint32_t expected = state.row_floats + state.element_arrays * block.shape.columns();
  if (block.shape.state_floats == expected) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("a row block has ", block.shape.state_floats,
                                          " floats of state per row, not the ", expected,
                                          " that the optimizer has"));
}

// Copies a row of a block's state to the row's place. The scalars are in every block of the row;
// only one of the threads may write them.
void PlaceState(const TableSpec& spec, const RowBlock& block, std::size_t row, float* out) {
  const StateShape state = StateShapeOf(spec.optimizer);
  const RowBlockShape& shape = block.shape;
  const float* from = block.state.data() + row * shape.state_floats;
  if (shape.column_begin == 0) std::copy_n(from, state.row_floats, out);
  out += state.row_floats;
  from += state.row_floats;
  for (std::uint32_t a = 0; a < state.element_arrays; ++a) {
    std::copy_n(from, shape.columns(), out + shape.column_begin);
    from += shape.columns();
    out += spec.dim;
  }
}

}  // namespace

std::size_t StateFloats(const TableSpec& spec) {
  const StateShape state = StateShapeOf(spec.optimizer);
  return state.row_floats + std::size_t{state.element_arrays} * spec.dim;
}

RowReader::NodeRead& RowReader::ReadOf(NodeId node, std::vector<NodeRead>& reads) const {
  for (NodeRead& read : reads) {
    if (read.node == node) return read;
  }
  NodeRead& read = reads.emplace_back();
  read.node = node;
  read.query.table = table_.spec().id;
  read.query.replica_group = group_;
  return read;
}

absl::Status RowReader::ReadNode(NodeRead& read, absl::Time deadline) const {
  const std::shared_ptr<NodeChannel> channel = nodes_.Find(read.node);
  if (channel == nullptr) return absl::UnavailableError("the node is in no plan any more");
  const absl::Status status =
      channel->ReadRows(read.query, deadline, [&](std::span<const std::byte> bytes) {
        absl::StatusOr<RowBlock> block = DecodeRowBlock(bytes);
        if (!block.ok()) return block.status();
        if (absl::Status shape = CheckShape(*block, table_.spec()); !shape.ok()) return shape;
        read.cells_received += block->rows.size() * block->shape.columns();
        return read.take(*block);
      });
  // Ids of a ZCH table may have no row.
  const bool all = table_.spec().zch.has_value() || read.cells_received == read.cells_expected;
  if (!status.ok() || all) return status;
  return absl::UnavailableError(absl::StrCat("the node answered ", read.cells_received,
                                             " weights, plan ", ToInt(routes_.plan().version()),
                                             " says ", read.cells_expected));
}

absl::Status RowReader::ReadNodes(std::span<NodeRead> reads, absl::Time deadline) const {
  std::vector<absl::Status> statuses(reads.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < reads.size(); ++i) {
    threads.emplace_back([&, i] { statuses[i] = ReadNode(reads[i], deadline); });
  }
  if (!reads.empty()) statuses[0] = ReadNode(reads[0], deadline);
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < reads.size(); ++i) {
    if (statuses[i].ok()) continue;
    const NodeSpec* node = routes_.plan().FindNode(reads[i].node);
    const std::string name =
        node == nullptr ? absl::StrCat("id ", ToInt(reads[i].node)) : node->name;
    return Annotate(statuses[i], absl::StrCat("node ", name, ", table ", table_.spec().name));
  }
  return absl::OkStatus();
}

absl::Status RowReader::ReadRange(std::int64_t row_begin, std::int64_t row_end, absl::Time deadline,
                                  std::span<float> weights, std::span<float> state) const {
  const TableSpec& spec = table_.spec();
  const std::size_t state_floats = StateFloats(spec);
  const auto take = [&](const RowBlock& block) -> absl::Status {
    const std::uint32_t columns = block.shape.columns();
    const std::size_t row_bytes = RowBytes(spec.dtype, columns);
    if (!state.empty()) {
      if (absl::Status fits = CheckState(block, spec); !fits.ok()) return fits;
    }
    for (std::size_t i = 0; i < block.rows.size(); ++i) {
      const std::int64_t row = ToInt(block.rows[i]);
      if (row < row_begin || row >= row_end) {
        return absl::DataLossError(absl::StrCat("row ", row, " was not asked for"));
      }
      float* to = weights.data() + (row - row_begin) * spec.dim + block.shape.column_begin;
      kernels::Convert({block.weights.data() + i * row_bytes, row_bytes, ElementOf(spec.dtype)},
                       {to, columns * sizeof(float)}, 1, columns);
      if (!state.empty()) PlaceState(spec, block, i, &state[(row - row_begin) * state_floats]);
    }
    return absl::OkStatus();
  };
  std::vector<NodeRead> reads;
  for (const RouteBlock& block : table_.blocks(replica_)) {
    for (const NodeId node : block.nodes()) {
      const std::int64_t rows = block.RowsOn(node, row_begin, row_end);
      if (rows == 0) continue;
      NodeRead& read = ReadOf(node, reads);
      read.query.row_begin = row_begin;
      read.query.row_end = row_end;
      read.query.with_state = !state.empty();
      read.take = take;
      read.cells_expected +=
          static_cast<std::size_t>(rows) * (block.column_end() - block.column_begin());
    }
  }
  return ReadNodes(reads, deadline);
}

absl::Status RowReader::ReadState(std::span<const std::int64_t> ids, absl::Time deadline,
                                  std::span<float> out) const {
  const TableSpec& spec = table_.spec();
  const std::size_t floats = StateFloats(spec);
  absl::flat_hash_map<std::int64_t, std::vector<std::size_t>> positions;
  // A byte each, written by the thread that has the row's first column.
  std::vector<char> has_row(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!spec.zch.has_value() && (ids[i] < 0 || ids[i] >= spec.rows)) {
      return absl::OutOfRangeError(
          absl::StrCat("table ", spec.name, ": id ", ids[i], " is outside 0 to ", spec.rows - 1));
    }
    positions[ids[i]].push_back(i);
  }
  const auto take = [&](const RowBlock& block) -> absl::Status {
    if (absl::Status fits = CheckState(block, spec); !fits.ok()) return fits;
    for (std::size_t i = 0; i < block.rows.size(); ++i) {
      const auto found = positions.find(ToInt(block.rows[i]));
      if (found == positions.end()) return absl::DataLossError("a row that was not asked for");
      for (const std::size_t p : found->second) {
        PlaceState(spec, block, i, &out[p * floats]);
        if (block.shape.column_begin == 0) has_row[p] = 1;
      }
    }
    return absl::OkStatus();
  };
  std::vector<NodeRead> reads;
  for (const RouteBlock& block : table_.blocks(replica_)) {
    for (const auto& [id, where] : positions) {
      NodeRead& read = ReadOf(block.nodes()[block.OwnerOf(id)], reads);
      read.query.with_state = true;
      read.query.row_ids.push_back(id);
      read.take = take;
      read.cells_expected += block.column_end() - block.column_begin();
    }
  }
  for (NodeRead& read : reads) {
    std::vector<std::int64_t>& row_ids = read.query.row_ids;
    std::sort(row_ids.begin(), row_ids.end());
    row_ids.erase(std::unique(row_ids.begin(), row_ids.end()), row_ids.end());
  }
  if (absl::Status status = ReadNodes(reads, deadline); !status.ok()) return status;
  const auto missing = std::find(has_row.begin(), has_row.end(), 0);
  if (missing == has_row.end()) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("table ", spec.name, " has no row for id ", ids[missing - has_row.begin()]));
}

absl::Status RowReader::ReadResidents(std::int64_t row_begin, std::int64_t row_end, bool with_state,
                                      absl::Time deadline, Residents& residents) const {
  const TableSpec& spec = table_.spec();
  const std::size_t state_floats = with_state ? StateFloats(spec) : 0;
  const RouteBlock& block = table_.primary().front();  // Columns are never cut.
  std::vector<NodeRead> reads;
  for (const NodeId node : block.nodes()) {
    if (block.RowsOn(node, row_begin, row_end) > 0) ReadOf(node, reads);
  }
  // A row's weights, then its state.
  std::vector<std::map<std::int64_t, std::vector<float>>> rows(reads.size());
  for (std::size_t n = 0; n < reads.size(); ++n) {
    reads[n].query.row_begin = row_begin;
    reads[n].query.row_end = row_end;
    reads[n].query.with_state = with_state;
    reads[n].take = [&, &own = rows[n]](const RowBlock& block) -> absl::Status {
      const std::size_t row_bytes = RowBytes(spec.dtype, spec.dim);
      if (block.shape.columns() != spec.dim) {
        return absl::DataLossError(absl::StrCat("a row block of ", block.shape.columns(),
                                                " columns, expected ", spec.dim));
      }
      if (with_state) {
        if (absl::Status fits = CheckState(block, spec); !fits.ok()) return fits;
      }
      for (std::size_t i = 0; i < block.rows.size(); ++i) {
        std::vector<float>& row = own[ToInt(block.rows[i])];
        row.resize(spec.dim + state_floats);
        kernels::Convert({block.weights.data() + i * row_bytes, row_bytes, ElementOf(spec.dtype)},
                         {row.data(), spec.dim * sizeof(float)}, 1, spec.dim);
        if (with_state) PlaceState(spec, block, i, row.data() + spec.dim);
      }
      return absl::OkStatus();
    };
  }
  if (absl::Status status = ReadNodes(reads, deadline); !status.ok()) return status;
  std::map<std::int64_t, std::vector<float>> all;
  for (auto& own : rows) all.merge(own);
  residents = {};
  for (const auto& [id, row] : all) {
    residents.ids.push_back(id);
    residents.weights.insert(residents.weights.end(), row.begin(), row.begin() + spec.dim);
    residents.state.insert(residents.state.end(), row.begin() + spec.dim, row.end());
  }
  return absl::OkStatus();
}

}  // namespace embla::client
