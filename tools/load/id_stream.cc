#include "tools/load/id_stream.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/text.h"

namespace embla::load {
namespace {

constexpr std::string_view kZipf = "zipf:";
constexpr std::string_view kReuse = "reuse:";
constexpr double kExponentMax = 10.0;

double Uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1.0p-53; }

std::int64_t Below(std::mt19937_64& random, std::int64_t bound) {
  return static_cast<std::int64_t>(
      (static_cast<unsigned __int128>(random()) * static_cast<unsigned __int128>(bound)) >> 64);
}

// log(1 + x) / x and (exp(x) - 1) / x, also near 0.
double LogRatio(double x) { return std::abs(x) > 1e-8 ? std::log1p(x) / x : 1.0 - x / 2.0; }
double ExpRatio(double x) { return std::abs(x) > 1e-8 ? std::expm1(x) / x : 1.0 + x / 2.0; }

// A large step that visits every row once.
std::int64_t MultiplierFor(std::int64_t rows) {
  std::int64_t multiplier = 2654435761 % rows;
  while (std::gcd(multiplier, rows) != 1) ++multiplier;
  return multiplier;
}

absl::StatusOr<std::vector<double>> ReadReuse(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  const nlohmann::json::json_pointer shares("/files/0/index_share_by_reuse");
  if (!json.is_object() || !json.contains(shares) || !json[shares].is_array()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " holds no files[0].index_share_by_reuse"));
  }
  std::vector<double> result;
  for (const auto& share : json[shares]) {
    if (!share.is_number()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": a share is not a number"));
    }
    result.push_back(share.get<double>());
  }
  return result;
}

}  // namespace

IdDistribution::IdDistribution(std::int64_t rows) : rows_(rows), multiplier_(MultiplierFor(rows)) {}

absl::StatusOr<IdDistribution> IdDistribution::Parse(std::string_view text, std::int64_t rows) {
  EMBLA_CHECK(rows > 0);
  IdDistribution distribution(rows);
  if (text == "uniform") return distribution;
  if (text.starts_with(kReuse)) {
    const auto shares = ReadReuse(std::string(text.substr(kReuse.size())));
    if (!shares.ok()) return shares.status();
    return FromReuse(*shares, rows);
  }
  double exponent = 0.0;
  const std::string_view digits = text.substr(std::min(text.size(), kZipf.size()));
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
  if (!text.starts_with(kZipf) || error != std::errc() || end != text.data() + text.size() ||
      !(exponent > 0.0 && exponent <= kExponentMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("distribution '", ToAbsl(text),
                     "' is none of uniform, zipf:S with S in (0, 10], reuse:FILE"));
  }
  distribution.exponent_ = exponent;
  distribution.integral_begin_ = distribution.Integral(1.5) - 1.0;
  distribution.integral_end_ = distribution.Integral(static_cast<double>(rows) + 0.5);
  distribution.shortcut_ =
      2.0 - distribution.InverseIntegral(distribution.Integral(2.5) - std::pow(2.0, -exponent));
  return distribution;
}

absl::StatusOr<IdDistribution> IdDistribution::FromReuse(std::span<const double> index_shares,
                                                         std::int64_t rows) {
  EMBLA_CHECK(rows > 0);
  IdDistribution distribution(rows);
  // A class of mean reuse m with share s of the lookups has a number of rows proportional to s / m.
  std::vector<double> weights;
  double share_sum = 0.0;
  for (std::size_t b = 0; b < index_shares.size(); ++b) {
    if (!(index_shares[b] >= 0.0)) return absl::InvalidArgumentError("a share is negative");
    share_sum += index_shares[b];
    weights.push_back(index_shares[b] / (b == 0 ? 1.0 : std::max(2.0, 0.75 * std::exp2(b))));
  }
  const double weight_sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (!(weight_sum > 0.0)) return absl::InvalidArgumentError("all shares are zero");
  double weight = 0.0;
  double share = 0.0;
  std::int64_t begin = 0;
  for (std::size_t b = 0; b < weights.size() && begin < rows; ++b) {
    if (weights[b] == 0.0) continue;
    weight += weights[b];
    share += index_shares[b];
    const double until = std::round(static_cast<double>(rows) * weight / weight_sum);
    const auto end = std::clamp<std::int64_t>(static_cast<std::int64_t>(until), begin + 1, rows);
    distribution.classes_.push_back({share / share_sum, begin, end});
    begin = end;
  }
  distribution.classes_.back().share_until = 1.0;
  distribution.classes_.back().end = rows;
  return distribution;
}

std::int64_t IdDistribution::Draw(std::mt19937_64& random) const {
  if (!classes_.empty()) {
    const double u = Uniform(random);
    const auto found = std::ranges::upper_bound(classes_, u, {}, &Class::share_until);
    return Scatter(found->begin + Below(random, found->end - found->begin));
  }
  if (exponent_ == 0.0) return Below(random, rows_);
  return Scatter(DrawRank(random) - 1);
}

std::int64_t IdDistribution::DrawRank(std::mt19937_64& random) const {
  while (true) {
    const double u = integral_end_ + Uniform(random) * (integral_begin_ - integral_end_);
    const double x = InverseIntegral(u);
    const double rank = std::clamp(std::round(x), 1.0, static_cast<double>(rows_));
    if (rank - x <= shortcut_ || u >= Integral(rank + 0.5) - std::pow(rank, -exponent_)) {
      return static_cast<std::int64_t>(rank);
    }
  }
}

// Integral of x^-exponent from 1 to x.
double IdDistribution::Integral(double x) const {
  const double log_x = std::log(x);
  return ExpRatio((1.0 - exponent_) * log_x) * log_x;
}

double IdDistribution::InverseIntegral(double x) const {
  const double t = std::max(-1.0, x * (1.0 - exponent_));
  return std::exp(LogRatio(t) * x);
}

std::int64_t IdDistribution::Scatter(std::int64_t rank) const {
  return static_cast<std::int64_t>(static_cast<unsigned __int128>(rank) *
                                   static_cast<unsigned __int128>(multiplier_) %
                                   static_cast<unsigned __int128>(rows_));
}

}  // namespace embla::load
