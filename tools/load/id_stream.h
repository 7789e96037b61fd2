// Row ids to look up, drawn from a stated distribution.
//
//   uniform      every row alike
//   zipf:S       rank r of R with probability proportional to 1 / r^S; ranks are scattered over the
//                table, as hot rows are. Drawn exactly by rejection-inversion (Hoermann and
//                Derflinger 1996), in constant time and memory
//   reuse:FILE   the reuse histogram of real traces (the JSON of dlrm_datasets' locality
//                statistics): rows fall into classes of equal reuse, a class is drawn by its share
//                of lookups, a row of it uniformly
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace embla::load {

// A distribution over the rows of one table. Thread safety: const methods, any thread.
class IdDistribution {
 public:
  // InvalidArgument: `text` is none of the above; NotFound: no such file. Requires: rows > 0.
  static absl::StatusOr<IdDistribution> Parse(std::string_view text, std::int64_t rows);
  // index_shares[b]: share of lookups that go to rows looked up 1, 2, 3..4, 5..8, ... times.
  static absl::StatusOr<IdDistribution> FromReuse(std::span<const double> index_shares,
                                                  std::int64_t rows);

  // In 0..rows-1.
  std::int64_t Draw(std::mt19937_64& random) const;

 private:
  // Rows [begin, end) in the order before scattering.
  struct Class {
    double share_until = 0.0;  // Share of this class and those before it.
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };

  explicit IdDistribution(std::int64_t rows);
  std::int64_t DrawRank(std::mt19937_64& random) const;  // 1..rows
  double Integral(double x) const;
  double InverseIntegral(double x) const;
  std::int64_t Scatter(std::int64_t rank) const;

  std::int64_t rows_;
  std::int64_t multiplier_;  // Coprime to rows_.
  double exponent_ = 0.0;    // Exponent of zipf; 0: uniform.
  double integral_begin_ = 0.0;
  double integral_end_ = 0.0;
  double shortcut_ = 0.0;
  std::vector<Class> classes_;  // Classes of reuse.
};

}  // namespace embla::load
