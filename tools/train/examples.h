// Encoded training examples, and where they come from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace embla::train {

// Examples with the same columns. Row numbers count within a column; raw ids (ColumnRule) are any
// numbers.
struct Examples {
  std::size_t columns = 0;
  std::vector<std::int64_t> rows;  // size() x columns.
  std::vector<float> labels;
  std::vector<float> planted_scores;  // The generator's scores, one per example; else empty.

  std::size_t size() const { return labels.size(); }
  std::span<const std::int64_t> RowsOf(std::size_t example) const {
    return {rows.data() + example * columns, columns};
  }
  void Clear() {
    rows.clear();
    labels.clear();
    planted_scores.clear();
  }
};

struct Column {
  std::string name;
  std::uint32_t rows = 0;  // 0: raw ids.
  std::string rule;        // For people: how text became rows.
};

// A sequence of examples that can be read again from its start, the same each time.
// Thread safety: one thread at a time.
class ExampleSource {
 public:
  virtual ~ExampleSource() = default;

  virtual const std::vector<Column>& columns() const = 0;
  virtual absl::Status Restart() = 0;
  // Appends at most `count` examples to `out`; fewer only at the end.
  virtual absl::Status Read(std::size_t count, Examples& out) = 0;
};

}  // namespace embla::train
