// A part of something bounded, given back when this is destroyed.
#pragma once

#include <functional>
#include <utility>

namespace embla {

class Hold {
 public:
  Hold() = default;  // Gives nothing back.
  // `give_back` may run on any thread.
  explicit Hold(std::function<void()> give_back) : give_back_(std::move(give_back)) {}
  Hold(Hold&& other) noexcept : give_back_(std::exchange(other.give_back_, nullptr)) {}
  Hold& operator=(Hold&& other) noexcept {
    std::swap(give_back_, other.give_back_);
    return *this;
  }
  ~Hold() {
    if (give_back_) give_back_();
  }

 private:
  std::function<void()> give_back_;
};

}  // namespace embla
