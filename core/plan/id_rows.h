// Maps an id to the row that stands for it in a table cut by rows: the id itself, or the first row
// of its bucket. Cutting follows buckets, so that is enough to find the id's device.
#pragma once

#include <cstdint>

#include "core/base/ids.h"
#include "core/plan/id_place.h"
#include "core/plan/table_spec.h"

namespace embla {

class IdRows {
 public:
  IdRows() = default;  // Ids are rows.
  explicit IdRows(const TableSpec& spec) {
    if (!spec.zch.has_value()) return;
    buckets_ = spec.zch->buckets;
    rows_per_bucket_ = spec.rows / buckets_;
  }

  std::int64_t RowOf(RowId id) const {
    return buckets_ == 0 ? ToInt(id) : BucketOf(id) * rows_per_bucket_;
  }
  // Whether ids are hashed: then every one belongs to the table.
  bool hashed() const { return buckets_ != 0; }
  // Requires of both: hashed().
  std::int64_t BucketOf(RowId id) const { return zch::BucketOf(id, buckets_); }
  std::int64_t rows_per_bucket() const { return rows_per_bucket_; }

  bool operator==(const IdRows&) const = default;

 private:
  std::uint32_t buckets_ = 0;
  std::int64_t rows_per_bucket_ = 0;
};

}  // namespace embla
