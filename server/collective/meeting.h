// Meeting of a communicator's ranks on the host: a barrier that can be aborted, and each rank's
// contribution to a verb. All ranks are threads of this process.
//
// A verb is: Publish (the rank's contribution, then a wait), look at everybody's, Finish (a wait:
// nobody needs the contributions any more). A rank that finds an error still comes to Finish.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/base/mutex.h"

namespace embla {

// A rank's contribution to a verb. The pointers are valid until Finish.
struct Contribution {
  enum class Verb : std::uint8_t {
    kBarrier,
    kAllReduceSum,
    kReduceScatter,
    kAllGather,
    kAllToAll,
    kMax
  };

  Verb verb = Verb::kBarrier;
  std::span<const float> in = {};
  std::span<const std::size_t> counts = {};
  std::int32_t value = 0;
  absl::Status status = {};       // Result of the rank's work before the verb.
  const float* shared = nullptr;  // Memory that the others may read.
};

// Thread safety: one thread per rank, and Abort from any.
class Meeting {
 public:
  explicit Meeting(std::uint32_t size) : size_(size), contributions_(size) {}

  std::uint32_t size() const { return size_; }

  // Waits until all ranks have come. Aborted once any rank has left.
  absl::Status Wait();
  void Abort();
  bool aborted() const;

  // Rank's own before Wait, everybody's between the first and the second Wait of a verb.
  Contribution& contribution(std::uint32_t rank) { return contributions_[rank]; }

 private:
  static absl::Status AbortedStatus();

  const std::uint32_t size_;
  std::vector<Contribution> contributions_;  // Ordered by the waits.

  mutable Mutex mu_;
  CondVar all_here_;
  std::uint32_t waiting_ ABSL_GUARDED_BY(mu_) = 0;
  std::uint64_t round_ ABSL_GUARDED_BY(mu_) = 0;
  bool aborted_ ABSL_GUARDED_BY(mu_) = false;
};

// One rank's seat at a meeting, and the checks that all verbs share. Errors are InvalidArgument and
// name the rank.
class Seat {
 public:
  Seat(std::uint32_t rank, std::shared_ptr<Meeting> meeting)
      : rank_(rank), meeting_(std::move(meeting)) {}

  std::uint32_t rank() const { return rank_; }
  std::uint32_t size() const { return meeting_->size(); }
  Meeting& meeting() const { return *meeting_; }

  absl::Status Publish(const Contribution& contribution) const;
  // The contribution of `rank`.
  const Contribution& At(std::uint32_t rank) const { return meeting_->contribution(rank); }
  // `status` is this rank's own; checks are made on the same data by all ranks where that is
  // possible.
  absl::Status Finish(const absl::Status& status) const;

  absl::Status CheckSameVerb() const;
  absl::Status CheckSize(const char* what, std::uint32_t rank, std::size_t got,
                         std::size_t want) const;
  // Checks that all ranks have the same counts, one per rank.
  absl::Status CheckCounts(std::span<const std::size_t> counts) const;
  // Checks that every rank's input has as many floats as `want(rank)`.
  template <typename Want>
  absl::Status CheckInputs(const char* what, const Want& want) const {
    absl::Status status;
    for (std::uint32_t r = 0; status.ok() && r < size(); ++r) {
      status = CheckSize(what, r, At(r).in.size(), want(r));
    }
    return status;
  }
  // Checks that `receive_counts` are the counts that the others send to this rank.
  absl::Status CheckAllToAll(std::size_t out_size,
                             std::span<const std::size_t> receive_counts) const;

 private:
  const std::uint32_t rank_;
  const std::shared_ptr<Meeting> meeting_;
};

// Communicator::AllReduceMax.
absl::Status MaxOfAll(const Seat& seat, std::int32_t in, std::int32_t& out);

inline std::size_t Total(std::span<const std::size_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}
// Sum of the pieces before `rank`'s.
inline std::size_t Before(std::span<const std::size_t> counts, std::uint32_t rank) {
  return Total(counts.first(rank));
}

}  // namespace embla
