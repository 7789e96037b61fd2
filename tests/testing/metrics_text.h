// Parses a program's /metrics into numbers.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace embla::testing {

// One look at the metrics of a program that serves them at `address`.
class MetricsText {
 public:
  static MetricsText Of(const std::string& address);
  explicit MetricsText(std::string text) : text_(std::move(text)) {}

  // The value of a series, for instance `embla_node_live{node="n0"}`; 0: there is none.
  double Value(const std::string& series) const;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// The observations of a histogram without labels between two looks.
class Observations {
 public:
  Observations(const MetricsText& before, const MetricsText& after, const std::string& name);

  double count() const { return buckets_.empty() ? 0 : buckets_.back().second; }
  double sum() const { return sum_; }
  // The `rank`-th smallest one (from 1), as if those of a bucket lay evenly in it.
  double Smallest(double rank) const { return Find(rank).second; }
  // The rank-th smallest one is at least this much, which is what its bucket tells for sure.
  double SmallestAtLeast(double rank) const { return Find(rank).first; }

 private:
  // The lower bound of its bucket, and its likely place there.
  std::pair<double, double> Find(double rank) const;

  std::vector<std::pair<double, double>> buckets_;  // Upper bound, and how many are not above it.
  double sum_ = 0;
};

}  // namespace embla::testing
