#include "core/planner/io/csv.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/names.h"

namespace embla::planner {
namespace {

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// One record after the other; knows the line it began on.
class Records {
 public:
  explicit Records(std::string_view text) : rest_(text) {
    if (rest_.substr(0, 3) == "\xef\xbb\xbf") rest_.remove_prefix(3);  // Byte order mark.
  }

  // The cells of the next record that is not blank; none at the end.
  absl::StatusOr<std::vector<std::string>> Next() {
    std::vector<std::string> cells;
    while (!rest_.empty() && cells.empty()) {
      line_ = next_line_;
      bool more = true;
      while (more) {
        EMBLA_ASSIGN_OR_RETURN(more, TakeCell(&cells));
      }
      if (cells.size() == 1 && cells[0].empty()) cells.clear();
    }
    return cells;
  }
  int line() const { return line_; }

 private:
  // Whether another cell follows in the same record.
  absl::StatusOr<bool> TakeCell(std::vector<std::string>* cells) {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t"), rest_.size()));
    std::string cell;
    if (!rest_.empty() && rest_.front() == '"') {
      EMBLA_RETURN_IF_ERROR(TakeQuoted(&cell));
      rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r"), rest_.size()));
      if (!rest_.empty() && rest_.front() != ',' && rest_.front() != '\n') {
        return Invalid("line ", line_, ": text after a closing quote");
      }
    } else {
      const std::size_t end = std::min(rest_.find_first_of(",\n"), rest_.size());
      cell = std::string(absl::StripAsciiWhitespace(ToAbsl(rest_.substr(0, end))));
      rest_.remove_prefix(end);
    }
    cells->push_back(std::move(cell));
    if (rest_.empty()) return false;
    const bool more = rest_.front() == ',';
    if (!more) ++next_line_;
    rest_.remove_prefix(1);
    return more;
  }

  absl::Status TakeQuoted(std::string* cell) {
    rest_.remove_prefix(1);
    while (!rest_.empty()) {
      const char next = rest_.front();
      rest_.remove_prefix(1);
      if (next == '"') {
        if (rest_.empty() || rest_.front() != '"') return absl::OkStatus();
        rest_.remove_prefix(1);
      }
      if (next == '\n') ++next_line_;
      cell->push_back(next);
    }
    return Invalid("line ", line_, ": a quote is never closed");
  }

  std::string_view rest_;
  int line_ = 0;
  int next_line_ = 1;
};

// Reads one cell into a table; false if the text is no value of the column.
using Setter = bool (*)(const std::string&, Table*);
struct Column {
  const char* name;
  Setter set;
};

constexpr Column kColumns[] = {
    {"name",
     [](const std::string& text, Table* t) {
       t->name = text;
       return !text.empty();
     }},
    {"rows", [](const std::string& text, Table* t) { return absl::SimpleAtoi(text, &t->rows); }},
    {"dim", [](const std::string& text, Table* t) { return absl::SimpleAtoi(text, &t->dim); }},
    {"pooling", [](const std::string& text,
                   Table* t) { return absl::SimpleAtod(text, &t->lookups_per_sample); }},
    {"poolings",
     [](const std::string& text, Table* t) { return absl::SimpleAtod(text, &t->bags_per_sample); }},
    {"element_bytes",
     [](const std::string& text, Table* t) { return absl::SimpleAtoi(text, &t->element_bytes); }},
    {"wire_bytes",
     [](const std::string& text, Table* t) { return absl::SimpleAtoi(text, &t->wire_bytes); }},
    {"optimizer",
     [](const std::string& text, Table* t) {
       const absl::StatusOr<OptimizerKind> kind = FromName<OptimizerKind>(text);
       if (kind.ok()) t->optimizer = *kind;
       return kind.ok();
     }},
    {"weighted",
     [](const std::string& text, Table* t) { return absl::SimpleAtob(text, &t->weighted); }},
    {"pooled",
     [](const std::string& text, Table* t) { return absl::SimpleAtob(text, &t->pooled); }},
    {"measured_factor",
     [](const std::string& text, Table* t) { return absl::SimpleAtod(text, &t->measured_factor); }},
};

absl::StatusOr<std::vector<Column>> ReadHeader(const std::vector<std::string>& cells, int line) {
  std::vector<Column> columns;
  for (const std::string& cell : cells) {
    const auto is_it = [&](const Column& column) { return column.name == cell; };
    const auto* known = std::find_if(std::begin(kColumns), std::end(kColumns), is_it);
    if (known == std::end(kColumns)) {
      std::string names;
      for (const Column& column : kColumns) {
        absl::StrAppend(&names, names.empty() ? "" : ", ", column.name);
      }
      return Invalid("line ", line, ": unknown column '", cell, "': use ", names);
    }
    if (std::any_of(columns.begin(), columns.end(), is_it)) {
      return Invalid("line ", line, ": column ", cell, " stands twice");
    }
    columns.push_back(*known);
  }
  for (const std::string needed : {"name", "rows", "dim"}) {
    if (std::find(cells.begin(), cells.end(), needed) == cells.end()) {
      return Invalid("line ", line, ": column ", needed, " is missing");
    }
  }
  return columns;
}

}  // namespace

absl::StatusOr<std::vector<Table>> TablesFromCsv(std::string_view text) {
  Records records(text);
  EMBLA_ASSIGN_OR_RETURN(std::vector<std::string> cells, records.Next());
  if (cells.empty()) return Invalid("no header line: name,rows,dim,pooling");
  EMBLA_ASSIGN_OR_RETURN(const std::vector<Column> columns, ReadHeader(cells, records.line()));
  std::vector<Table> tables;
  while (true) {
    EMBLA_ASSIGN_OR_RETURN(cells, records.Next());
    if (cells.empty()) return tables;
    if (cells.size() != columns.size()) {
      return Invalid("line ", records.line(), " has ", cells.size(), " cells, the header ",
                     columns.size());
    }
    Table& table = tables.emplace_back();
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (columns[i].set(cells[i], &table)) continue;
      return Invalid("line ", records.line(), ", column ", columns[i].name, ": '",
                     cells[i].substr(0, 64), "' is not a value of it");
    }
    // The file's pooling is ids per bag; the planner counts them per sample.
    table.lookups_per_sample *= table.bags_per_sample;
  }
}

}  // namespace embla::planner
