#include "core/planner/io/csv.h"

#include <functional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/text.h"
#include "core/plan/names.h"

namespace embla::planner {
namespace {

bool SetBool(absl::string_view text, bool* value) { return absl::SimpleAtob(text, value); }

bool SetOptimizer(absl::string_view text, OptimizerKind* value) {
  const absl::StatusOr<OptimizerKind> kind = FromName<OptimizerKind>(ToStd(text));
  if (kind.ok()) *value = *kind;
  return kind.ok();
}

// Fills one column's value of a row; false if the text is not one.
using Setter = std::function<bool(absl::string_view, Table*)>;

Setter SetterOf(absl::string_view column) {
  if (column == "name") {
    return [](absl::string_view text, Table* t) {
      t->name = std::string(text);
      return !text.empty();
    };
  }
  if (column == "rows") {
    return [](absl::string_view text, Table* t) { return absl::SimpleAtoi(text, &t->rows); };
  }
  if (column == "dim") {
    return [](absl::string_view text, Table* t) { return absl::SimpleAtoi(text, &t->dim); };
  }
  if (column == "pooling") {
    return [](absl::string_view text, Table* t) {
      return absl::SimpleAtod(text, &t->lookups_per_sample);
    };
  }
  if (column == "poolings") {
    return [](absl::string_view text, Table* t) {
      return absl::SimpleAtod(text, &t->bags_per_sample);
    };
  }
  if (column == "element_bytes") {
    return
        [](absl::string_view text, Table* t) { return absl::SimpleAtoi(text, &t->element_bytes); };
  }
  if (column == "optimizer") {
    return [](absl::string_view text, Table* t) { return SetOptimizer(text, &t->optimizer); };
  }
  if (column == "weighted") {
    return [](absl::string_view text, Table* t) { return SetBool(text, &t->weighted); };
  }
  if (column == "pooled") {
    return [](absl::string_view text, Table* t) { return SetBool(text, &t->pooled); };
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<std::vector<Table>> TablesFromCsv(std::string_view text) {
  std::vector<std::pair<absl::string_view, Setter>> columns;
  std::vector<Table> tables;
  int number = 0;
  for (const absl::string_view raw : absl::StrSplit(ToAbsl(text), '\n')) {
    ++number;
    const absl::string_view line = absl::StripAsciiWhitespace(raw);
    if (line.empty()) continue;
    const std::vector<absl::string_view> cells = absl::StrSplit(line, ',');
    if (columns.empty()) {
      for (const absl::string_view cell : cells) {
        const absl::string_view name = absl::StripAsciiWhitespace(cell);
        columns.emplace_back(name, SetterOf(name));
        if (columns.back().second == nullptr) {
          return absl::InvalidArgumentError(absl::StrCat(
              "line ", number, ": unknown column '", name, "': use name, rows, dim, pooling, ",
              "poolings, element_bytes, optimizer, weighted, pooled"));
        }
      }
      continue;
    }
    if (cells.size() != columns.size()) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, " has ", cells.size(),
                                                     " cells, the header ", columns.size()));
    }
    Table& table = tables.emplace_back();
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const absl::string_view cell = absl::StripAsciiWhitespace(cells[i]);
      if (!columns[i].second(cell, &table)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "line ", number, ", column ", columns[i].first, ": '", cell, "' is not a value of it"));
      }
    }
    // The file's pooling is ids per bag; the planner counts them per sample.
    table.lookups_per_sample *= table.bags_per_sample;
  }
  if (columns.empty()) {
    return absl::InvalidArgumentError("no header line: name,rows,dim,pooling");
  }
  return tables;
}

}  // namespace embla::planner
