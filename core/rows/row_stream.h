// Rows on their way: whoever reads, sends, stores or installs tables speaks these two.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/base/status_macros.h"

namespace embla {

// Gives encoded row blocks (row_block.h), one after the other.
class RowSource {
 public:
  virtual ~RowSource() = default;
  // The next block; nothing when there are no more.
  virtual absl::StatusOr<std::optional<Buffer>> Next() = 0;
};

// Takes encoded row blocks.
class RowSink {
 public:
  virtual ~RowSink() = default;
  virtual absl::Status Write(Buffer block) = 0;
};

// Moves everything; stops at the first error of either side.
inline absl::Status CopyRows(RowSource& source, RowSink& sink) {
  for (;;) {
    EMBLA_ASSIGN_OR_RETURN(std::optional<Buffer> block, source.Next());
    if (!block.has_value()) return absl::OkStatus();
    EMBLA_RETURN_IF_ERROR(sink.Write(*std::move(block)));
  }
}

}  // namespace embla
