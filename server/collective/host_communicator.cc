#include "server/collective/host_communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/mutex.h"
#include "core/base/status_macros.h"

namespace embla {
namespace {

// What a rank brings to a verb. The pointers are valid until the verb's second wait.
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
};

// Where the ranks meet: a barrier that can be aborted, and one contribution per rank.
class Meeting {
 public:
  explicit Meeting(std::uint32_t size) : size_(size), contributions_(size) {}

  std::uint32_t size() const { return size_; }

  // Waits until all ranks have come. Each rank's own contribution may be written before it.
  absl::Status Wait() {
    MutexLock lock(mu_);
    if (aborted_) return AbortedStatus();
    const std::uint64_t round = round_;
    if (++waiting_ == size_) {
      waiting_ = 0;
      ++round_;
      all_here_.NotifyAll();
      return absl::OkStatus();
    }
    while (round_ == round && !aborted_) all_here_.Wait(mu_);
    return round_ == round ? AbortedStatus() : absl::OkStatus();
  }

  void Abort() {
    MutexLock lock(mu_);
    aborted_ = true;
    all_here_.NotifyAll();
  }

  // Rank's own before Wait, everybody's between the first and the second Wait of a verb.
  Contribution& contribution(std::uint32_t rank) { return contributions_[rank]; }

 private:
  static absl::Status AbortedStatus() {
    return absl::AbortedError("a device of this node has left the collective");
  }

  const std::uint32_t size_;
  std::vector<Contribution> contributions_;  // Ordered by the waits.

  Mutex mu_;
  CondVar all_here_;
  std::uint32_t waiting_ ABSL_GUARDED_BY(mu_) = 0;
  std::uint64_t round_ ABSL_GUARDED_BY(mu_) = 0;
  bool aborted_ ABSL_GUARDED_BY(mu_) = false;
};

std::size_t Total(std::span<const std::size_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

std::size_t Before(std::span<const std::size_t> counts, std::uint32_t rank) {
  return Total(counts.first(rank));
}

class HostCommunicator final : public Communicator {
 public:
  HostCommunicator(std::uint32_t rank, std::shared_ptr<Meeting> meeting)
      : rank_(rank), meeting_(std::move(meeting)) {}

  std::uint32_t rank() const override { return rank_; }
  std::uint32_t size() const override { return meeting_->size(); }

  absl::Status Barrier() override {
    EMBLA_RETURN_IF_ERROR(Publish({.verb = Contribution::Verb::kBarrier}));
    return Finish(CheckSameVerb());
  }

  absl::Status AllReduceSum(std::span<const float> in, std::span<float> out) override {
    EMBLA_RETURN_IF_ERROR(Publish({.verb = Contribution::Verb::kAllReduceSum, .in = in}));
    absl::Status status = CheckSameVerb();
    for (std::uint32_t r = 0; status.ok() && r < size(); ++r) {
      status = CheckSize("AllReduceSum input", r, At(r).in.size(), out.size());
    }
    // `out` may be `in`, which others still read: it is written after they are done.
    std::vector<float> sum;
    if (status.ok()) {
      sum.resize(out.size());
      Sum(0, sum);
    }
    EMBLA_RETURN_IF_ERROR(Finish(status));
    std::copy(sum.begin(), sum.end(), out.begin());
    return absl::OkStatus();
  }

  absl::Status ReduceScatterSum(std::span<const float> in, std::span<const std::size_t> counts,
                                std::span<float> out) override {
    EMBLA_RETURN_IF_ERROR(
        Publish({.verb = Contribution::Verb::kReduceScatter, .in = in, .counts = counts}));
    absl::Status status = CheckCounts(counts);
    for (std::uint32_t r = 0; status.ok() && r < size(); ++r) {
      status = CheckSize("ReduceScatterSum input", r, At(r).in.size(), Total(counts));
    }
    if (status.ok())
      status = CheckSize("ReduceScatterSum output", rank_, out.size(), counts[rank_]);
    if (status.ok()) Sum(Before(counts, rank_), out);
    return Finish(status);
  }

  absl::Status AllGather(std::span<const float> in, std::span<const std::size_t> counts,
                         std::span<float> out) override {
    EMBLA_RETURN_IF_ERROR(
        Publish({.verb = Contribution::Verb::kAllGather, .in = in, .counts = counts}));
    absl::Status status = CheckCounts(counts);
    for (std::uint32_t r = 0; status.ok() && r < size(); ++r) {
      status = CheckSize("AllGather input", r, At(r).in.size(), counts[r]);
    }
    if (status.ok()) status = CheckSize("AllGather output", rank_, out.size(), Total(counts));
    std::size_t at = 0;
    for (std::uint32_t r = 0; status.ok() && r < size(); ++r) {
      std::copy(At(r).in.begin(), At(r).in.end(), out.begin() + at);
      at += At(r).in.size();
    }
    return Finish(status);
  }

  absl::Status AllToAll(std::span<const float> in, std::span<const std::size_t> send_counts,
                        std::span<float> out,
                        std::span<const std::size_t> receive_counts) override {
    EMBLA_RETURN_IF_ERROR(
        Publish({.verb = Contribution::Verb::kAllToAll, .in = in, .counts = send_counts}));
    return Finish(Receive(out, receive_counts));
  }

  absl::Status AllReduceMax(std::int32_t in, std::int32_t& out) override {
    EMBLA_RETURN_IF_ERROR(Publish({.verb = Contribution::Verb::kMax, .value = in}));
    const absl::Status status = CheckSameVerb();
    std::int32_t largest = in;
    for (std::uint32_t r = 0; r < size(); ++r) largest = std::max(largest, At(r).value);
    EMBLA_RETURN_IF_ERROR(Finish(status));
    out = largest;
    return absl::OkStatus();
  }

  void Abort() override { meeting_->Abort(); }

 private:
  const Contribution& At(std::uint32_t rank) const { return meeting_->contribution(rank); }

  absl::Status Publish(const Contribution& contribution) {
    meeting_->contribution(rank_) = contribution;
    return meeting_->Wait();
  }

  // Every rank comes here, with or without an error, so that nobody waits for ever. A rank's error
  // is its own: checks are made on the same data by all ranks where that is possible.
  absl::Status Finish(const absl::Status& status) {
    EMBLA_RETURN_IF_ERROR(meeting_->Wait());
    return status;
  }

  absl::Status CheckSameVerb() const {
    for (std::uint32_t r = 0; r < size(); ++r) {
      if (At(r).verb == At(rank_).verb) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", r, " called another verb than rank ", rank_));
    }
    return absl::OkStatus();
  }

  static absl::Status CheckSize(const char* what, std::uint32_t rank, std::size_t got,
                                std::size_t want) {
    if (got == want) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(what, " of rank ", rank, " has ", got, " floats, expected ", want));
  }

  absl::Status CheckCounts(std::span<const std::size_t> counts) const {
    EMBLA_RETURN_IF_ERROR(CheckSameVerb());
    EMBLA_RETURN_IF_ERROR(CheckSize("counts", rank_, counts.size(), size()));
    for (std::uint32_t r = 0; r < size(); ++r) {
      if (std::equal(counts.begin(), counts.end(), At(r).counts.begin(), At(r).counts.end())) {
        continue;
      }
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", r, " has other counts than rank ", rank_));
    }
    return absl::OkStatus();
  }

  // out[i] = sum over ranks, in rank order, of in[begin + i].
  void Sum(std::size_t begin, std::span<float> out) const {
    const auto first = At(0).in.subspan(begin, out.size());
    std::copy(first.begin(), first.end(), out.begin());
    for (std::uint32_t r = 1; r < size(); ++r) {
      const float* const in = At(r).in.data() + begin;
      for (std::size_t i = 0; i < out.size(); ++i) out[i] += in[i];
    }
  }

  absl::Status Receive(std::span<float> out, std::span<const std::size_t> receive_counts) const {
    EMBLA_RETURN_IF_ERROR(CheckSameVerb());
    EMBLA_RETURN_IF_ERROR(CheckSize("receive_counts", rank_, receive_counts.size(), size()));
    EMBLA_RETURN_IF_ERROR(CheckSize("AllToAll output", rank_, out.size(), Total(receive_counts)));
    for (std::uint32_t r = 0; r < size(); ++r) {
      const Contribution& from = At(r);
      EMBLA_RETURN_IF_ERROR(CheckSize("send_counts", r, from.counts.size(), size()));
      EMBLA_RETURN_IF_ERROR(CheckSize("AllToAll input", r, from.in.size(), Total(from.counts)));
      EMBLA_RETURN_IF_ERROR(CheckSize("AllToAll piece", r, from.counts[rank_], receive_counts[r]));
    }
    std::size_t at = 0;
    for (std::uint32_t r = 0; r < size(); ++r) {
      const auto piece = At(r).in.subspan(Before(At(r).counts, rank_), receive_counts[r]);
      std::copy(piece.begin(), piece.end(), out.begin() + at);
      at += piece.size();
    }
    return absl::OkStatus();
  }

  const std::uint32_t rank_;
  const std::shared_ptr<Meeting> meeting_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeHostCommunicators(std::uint32_t size) {
  EMBLA_CHECK(size >= 1);
  const auto meeting = std::make_shared<Meeting>(size);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (std::uint32_t r = 0; r < size; ++r) {
    ranks.push_back(std::make_unique<HostCommunicator>(r, meeting));
  }
  return ranks;
}

}  // namespace embla
