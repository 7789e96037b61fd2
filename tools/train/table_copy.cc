#include "tools/train/table_copy.h"

#include <utility>

#include "core/base/status_macros.h"

namespace embla::train {
namespace {

template <typename T>
std::int64_t Append(std::span<const T> from, std::vector<T>& to) {
  to.insert(to.end(), from.begin(), from.end());
  return static_cast<std::int64_t>(from.size_bytes());
}

}  // namespace

absl::StatusOr<bool> TableCopy::Take() {
  std::int64_t bytes = 0;
  bool fits = true;
  std::vector<Table> copies;
  for (const std::string& name : names_) {
    Table& copy = copies.emplace_back();
    copy.name = name;
    const auto take = [&](const client::TableRows& rows) -> absl::Status {
      bytes += Append(rows.ids, copy.ids) + Append(rows.weights, copy.weights) +
               Append(rows.state, copy.state);
      fits = bytes <= bytes_max_;
      return fits ? absl::OkStatus() : absl::CancelledError("the copy is too large");
    };
    const absl::Status scanned = client_.ScanTable(name, /*with_state=*/true, take);
    if (!fits) {
      tables_.clear();
      return false;
    }
    EMBLA_RETURN_IF_ERROR(scanned);
  }
  tables_ = std::move(copies);
  return true;
}

absl::Status TableCopy::Restore() {
  for (const Table& table : tables_) {
    if (table.ids.empty()) continue;
    EMBLA_RETURN_IF_ERROR(client_.WriteRows(table.name, table.ids, table.weights, table.state, {}));
  }
  return absl::OkStatus();
}

}  // namespace embla::train
