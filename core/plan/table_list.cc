#include "core/plan/table_list.h"

#include <algorithm>
#include <utility>

#include "core/base/text.h"

namespace embla {
namespace {

TableId IdOf(const TablePtr& table) { return table->spec.id; }

std::vector<TablePtr> Shared(std::vector<TablePlan> tables) {
  std::vector<TablePtr> shared;
  shared.reserve(tables.size());
  for (TablePlan& table : tables) {
    shared.push_back(std::make_shared<const TablePlan>(std::move(table)));
  }
  return shared;
}

}  // namespace

TableList::TableList(std::vector<TablePlan> tables) : TableList(Shared(std::move(tables))) {}

TableList::TableList(std::vector<TablePtr> tables) : tables_(std::move(tables)) {
  std::ranges::stable_sort(tables_, {}, &IdOf);
  MakeIds();
  MakeNames();
}

void TableList::MakeIds() {
  ids_.resize(tables_.size());
  std::ranges::transform(tables_, ids_.begin(), &IdOf);
}

void TableList::MakeNames() {
  auto names = std::make_shared<Names>();
  names->reserve(tables_.size());
  are_distinct_ =
      std::ranges::adjacent_find(tables_, std::ranges::equal_to(), &IdOf) == tables_.end();
  for (const TablePtr& table : tables_) {
    if (table->aside) continue;
    if (!names->emplace(table->spec.name, table->spec.id).second) are_distinct_ = false;
  }
  names_ = std::move(names);
}

TableList TableList::With(std::span<const TablePtr> changed,
                          std::span<const TableId> dropped) const {
  std::vector<TablePtr> wanted(changed.begin(), changed.end());
  std::ranges::stable_sort(wanted, {}, &IdOf);
  std::vector<TableId> unwanted(dropped.begin(), dropped.end());
  std::ranges::sort(unwanted);
  TableList next;
  next.tables_.reserve(tables_.size() + wanted.size());
  bool has_same_names = dropped.empty();
  auto put = wanted.begin();
  const auto put_next = [&] { next.tables_.push_back(*put++); };
  for (const TablePtr& table : tables_) {
    while (put != wanted.end() && IdOf(*put) < IdOf(table)) {
      has_same_names = false;
      put_next();
    }
    if (put != wanted.end() && IdOf(*put) == IdOf(table)) {
      if ((*put)->spec.name != table->spec.name || (*put)->aside != table->aside) {
        has_same_names = false;
      }
      put_next();
    } else if (unwanted.empty() || !std::ranges::binary_search(unwanted, IdOf(table))) {
      next.tables_.push_back(table);
    }
  }
  if (put != wanted.end()) has_same_names = false;
  while (put != wanted.end()) put_next();
  next.MakeIds();
  if (has_same_names) {
    next.names_ = names_;
    next.are_distinct_ = are_distinct_;
  } else {
    next.MakeNames();
  }
  return next;
}

const TablePlan* TableList::Find(TableId id) const {
  const std::size_t index = IndexOf(id);
  return index == size() ? nullptr : tables_[index].get();
}

std::size_t TableList::IndexOf(TableId id) const {
  if (ids_.empty()) return size();
  // Ids are given one after another: the place is this one unless tables before it were dropped.
  const std::size_t likely = std::size_t{ToInt(id)} - ToInt(ids_.front());
  if (likely < size() && ids_[likely] == id) return likely;
  const auto at = std::ranges::lower_bound(ids_, id);
  return at == ids_.end() || *at != id ? size() : static_cast<std::size_t>(at - ids_.begin());
}

const TablePlan* TableList::FindServed(std::string_view name) const {
  if (names_ == nullptr) return nullptr;
  const auto at = names_->find(ToAbsl(name));
  return at == names_->end() ? nullptr : Find(at->second);
}

bool TableList::operator==(const TableList& other) const {
  return std::ranges::equal(tables_, other.tables_, [](const TablePtr& a, const TablePtr& b) {
    return a == b || *a == *b;
  });
}

}  // namespace embla
