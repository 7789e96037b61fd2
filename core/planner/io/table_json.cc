#include "core/planner/io/table_json.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/plan/names.h"
#include "core/planner/problem/names.h"

namespace embla::planner {
namespace {

void ReadRules(Fields& fields, TableRules* rules) {
  fields.Words("types", &FromName<ShardingType>, &rules->types);
  fields.Words("kernels", &KernelFromName, &rules->kernels);
  fields.Texts("hosts", &rules->hosts);
  fields.Texts("devices", &rules->devices);
  fields.Texts("groups", &rules->groups);
  fields.Text("pin", &rules->pin);
  fields.Integer("min_partition", 0, kDimMax, &rules->min_partition);
  fields.Word("spread", &SpreadFromName, &rules->spread);
}

void ReadFrequency(Fields& fields, Table* table) {
  for (const Document& point : fields.Array("frequency")) {
    if (!point.is_array() || point.size() != 2 || !point[0].is_number() || !point[1].is_number()) {
      return fields.Fail("frequency", "is not a list of [fraction of rows, fraction of lookups]");
    }
    table->frequency.emplace_back(point[0].get<double>(), point[1].get<double>());
  }
}

absl::Status ReadTable(const Document& json, Table* table) {
  Fields fields(json, "table");
  for (const std::string_view needed : {"name", "rows", "dim"}) fields.Need(needed);
  fields.Text("name", &table->name);
  fields.Integer("rows", 1, kRowsMax, &table->rows);
  fields.Integer("dim", 1, kDimMax, &table->dim);
  fields.Integer("element_bytes", 1, 8, &table->element_bytes);
  fields.Integer("wire_bytes", 0, 8, &table->wire_bytes);
  fields.Integer("slot_bytes", 0, 64, &table->slot_bytes);
  fields.Word("optimizer", &FromName<OptimizerKind>, &table->optimizer);
  double pooling = 1;
  fields.Number("pooling", &pooling);
  double lookups = -1;
  fields.Number("lookups", &lookups);
  if (fields.Has("lookups") && fields.Has("pooling")) {
    fields.Fail("lookups", "excludes pooling: it is pooling x poolings");
  }
  fields.Number("poolings", &table->bags_per_sample);
  fields.Bool("weighted", &table->weighted);
  fields.Bool("pooled", &table->pooled);
  fields.Number("measured_factor", &table->measured_factor);
  ReadFrequency(fields, table);
  const Document& rules = fields.Object("rules");
  EMBLA_RETURN_IF_ERROR(fields.Finish());
  table->lookups_per_sample = fields.Has("lookups") ? lookups : pooling * table->bags_per_sample;
  Fields rule_fields(rules, "rules");
  ReadRules(rule_fields, &table->rules);
  return rule_fields.Finish();
}

}  // namespace

absl::StatusOr<std::vector<Table>> TablesFromJson(const Document& json) {
  if (!json.is_array()) return absl::InvalidArgumentError("tables is not a list");
  std::vector<Table> tables;
  tables.reserve(json.size());
  for (const Document& item : json) {
    Table& table = tables.emplace_back();
    const absl::Status status = ReadTable(item, &table);
    if (!status.ok()) {
      return Annotate(status, absl::StrCat("tables[", tables.size() - 1, "]",
                                           table.name.empty() ? "" : " ", table.name));
    }
  }
  return tables;
}

bool MatchesPattern(std::string_view pattern, std::string_view name) {
  std::size_t p = 0, n = 0;
  std::size_t star = std::string_view::npos, retry = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      retry = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++retry;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

absl::Status ApplyConstraints(const Document& json, std::vector<Table>* tables) {
  if (!json.is_object()) return absl::InvalidArgumentError("constraints is not an object");
  absl::flat_hash_map<std::string, Table*> by_name;
  for (Table& table : *tables) by_name[table.name] = &table;
  // Sorted by precedence: patterns by the number of their letters, then names.
  std::map<std::pair<std::size_t, std::string>, const Document*> ordered;
  for (const auto& item : json.items()) {
    const std::string& pattern = item.key();
    const auto stars = static_cast<std::size_t>(std::count(pattern.begin(), pattern.end(), '*'));
    ordered[{stars == 0 ? SIZE_MAX : pattern.size() - stars, pattern}] = &item.value();
  }
  for (const auto& entry : ordered) {
    const std::string& pattern = entry.first.second;
    std::vector<Table*> found;
    if (entry.first.first != SIZE_MAX) {
      for (Table& table : *tables) {
        if (MatchesPattern(pattern, table.name)) found.push_back(&table);
      }
    } else if (const auto it = by_name.find(pattern); it != by_name.end()) {
      found.push_back(it->second);
    }
    if (found.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("constraints: there is no table \"", pattern, "\""));
    }
    const std::string what = absl::StrCat("constraints of \"", pattern, "\"");
    for (Table* const table : found) {
      Fields fields(*entry.second, what);
      ReadRules(fields, &table->rules);
      EMBLA_RETURN_IF_ERROR(fields.Finish());
    }
  }
  return absl::OkStatus();
}

}  // namespace embla::planner
