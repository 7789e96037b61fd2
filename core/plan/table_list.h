// The tables of a plan, by id. Lists share their tables: one that differs from another in a few of
// them costs a pointer for each of the others.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/ids.h"
#include "core/plan/table_plan.h"

namespace embla {

class TableList {
 public:
  class Iterator {
   public:
    using iterator_category = std::bidirectional_iterator_tag;
    using value_type = TablePlan;
    using difference_type = std::ptrdiff_t;
    using pointer = const TablePlan*;
    using reference = const TablePlan&;

    Iterator() = default;
    explicit Iterator(const TablePtr* at) : at_(at) {}
    reference operator*() const { return **at_; }
    pointer operator->() const { return at_->get(); }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    Iterator operator++(int) { return Iterator(at_++); }
    Iterator& operator--() {
      --at_;
      return *this;
    }
    Iterator operator--(int) { return Iterator(at_--); }
    bool operator==(const Iterator&) const = default;

   private:
    const TablePtr* at_ = nullptr;
  };
  using value_type = TablePlan;
  using const_iterator = Iterator;

  TableList() = default;
  // In any order.
  TableList(
      std::vector<TablePlan> tables);  // NOLINT(google-explicit-constructor): the same values.
  TableList(std::initializer_list<TablePlan> tables) : TableList(std::vector<TablePlan>(tables)) {}
  explicit TableList(std::vector<TablePtr> tables);

  // `changed` in place of the tables with their ids, or beside them, without `dropped`.
  TableList With(std::span<const TablePtr> changed, std::span<const TableId> dropped) const;

  std::size_t size() const { return tables_.size(); }
  bool empty() const { return tables_.empty(); }
  Iterator begin() const { return Iterator(tables_.data()); }
  Iterator end() const { return Iterator(tables_.data() + tables_.size()); }
  const TablePlan& operator[](std::size_t index) const { return *tables_[index]; }
  const TablePlan& front() const { return *tables_.front(); }
  const TablePlan& back() const { return *tables_.back(); }
  const std::vector<TablePtr>& pointers() const { return tables_; }

  const TablePlan* Find(TableId id) const;
  std::size_t IndexOf(TableId id) const;                     // size(): there is no such table.
  const TablePlan* FindServed(std::string_view name) const;  // Not one that is kept aside.
  // Whether no two tables have one id, and no two that are served one name.
  bool AreDistinct() const { return are_distinct_; }

  bool operator==(const TableList& other) const;

 private:
  using Names = absl::flat_hash_map<std::string, TableId>;
  void MakeIds();
  void MakeNames();

  std::vector<TablePtr> tables_;
  std::vector<TableId> ids_;            // The tables', to be searched without a look at each.
  std::shared_ptr<const Names> names_;  // Names of the served tables. Null: there are no tables.
  bool are_distinct_ = true;
};

}  // namespace embla
