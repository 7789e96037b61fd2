// The slices behind pointers, as a range. (Clang 14 cannot compile libstdc++ 12's views.)
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "server/table/own_slice.h"

namespace embla {

class OwnSlices {
 public:
  class Iterator {
   public:
    explicit Iterator(const std::shared_ptr<OwnSlice>* at) : at_(at) {}
    OwnSlice& operator*() const { return **at_; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    bool operator==(const Iterator&) const = default;

   private:
    const std::shared_ptr<OwnSlice>* at_;
  };

  // Borrowed; outlives this object.
  explicit OwnSlices(std::span<const std::shared_ptr<OwnSlice>> slices) : slices_(slices) {}

  Iterator begin() const { return Iterator(slices_.data()); }
  Iterator end() const { return Iterator(slices_.data() + slices_.size()); }
  std::size_t size() const { return slices_.size(); }
  OwnSlice& operator[](std::size_t i) const { return *slices_[i]; }

 private:
  const std::span<const std::shared_ptr<OwnSlice>> slices_;
};

}  // namespace embla
