#include "tests/testing/metrics_text.h"

#include <cstdlib>
#include <limits>
#include <sstream>

#include "core/base/testing/http_get.h"

namespace embla::testing {

MetricsText MetricsText::Of(const std::string& address) {
  return MetricsText(HttpGet(address, "/metrics"));
}

double MetricsText::Value(const std::string& series) const {
  const std::string start = "\n" + series + " ";
  const std::size_t found = text_.find(start);
  return found == std::string::npos ? 0
                                    : std::strtod(text_.c_str() + found + start.size(), nullptr);
}

Observations::Observations(const MetricsText& before, const MetricsText& after,
                           const std::string& name)
    : sum_(after.Value(name + "_sum") - before.Value(name + "_sum")) {
  const std::string start = name + "_bucket{le=\"";
  std::istringstream lines(after.text());
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(start)) continue;
    const std::string series = line.substr(0, line.rfind(' '));
    buckets_.emplace_back(std::strtod(series.c_str() + start.size(), nullptr),
                          after.Value(series) - before.Value(series));
  }
}

std::pair<double, double> Observations::Find(double rank) const {
  double lower = 0;
  double below = 0;
  for (const auto& [upper, count] : buckets_) {
    if (count >= rank) return {lower, lower + (upper - lower) * (rank - below) / (count - below)};
    lower = upper;
    below = count;
  }
  constexpr double kNone = std::numeric_limits<double>::infinity();
  return {kNone, kNone};
}

}  // namespace embla::testing
