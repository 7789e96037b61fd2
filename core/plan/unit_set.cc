#include "core/plan/unit_set.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/check.h"

namespace embla {
namespace {

constexpr int kGranuleBits = 32;

}  // namespace

UnitSet::UnitSet(const Run& run) {
  EMBLA_CHECK(run.begin < run.end);
  const std::uint64_t column = std::uint64_t{run.column_granule} << kGranuleBits;
  spans_.push_back({column | run.begin, column | run.end});
}

// Walks over the ends of both sets' spans; between two of them, membership does not change.
template <typename Keeps>
std::vector<UnitSet::Span> UnitSet::Combined(const UnitSet& a, const UnitSet& b, Keeps keeps) {
  // Ends are numbered from 0: behind an odd number of them lies a span.
  const auto end_of = [](const UnitSet& set, std::size_t number) {
    if (number >= 2 * set.spans_.size()) return UINT64_MAX;
    const Span& span = set.spans_[number / 2];
    return number % 2 == 0 ? span.begin : span.end;
  };
  std::vector<Span> result;
  std::size_t in_a = 0;
  std::size_t in_b = 0;
  bool is_kept = false;
  for (;;) {
    const std::uint64_t at = std::min(end_of(a, in_a), end_of(b, in_b));
    if (at == UINT64_MAX) return result;
    in_a += end_of(a, in_a) == at ? 1 : 0;
    in_b += end_of(b, in_b) == at ? 1 : 0;
    const bool keeps_now = keeps(in_a % 2 == 1, in_b % 2 == 1);
    if (keeps_now == is_kept) continue;
    if (keeps_now) result.push_back({at, at});
    if (!keeps_now) result.back().end = at;
    is_kept = keeps_now;
  }
}

bool UnitSet::Has(std::uint32_t column_granule, std::uint32_t row_granule) const {
  const std::uint64_t unit = std::uint64_t{column_granule} << kGranuleBits | row_granule;
  const auto after =
      std::upper_bound(spans_.begin(), spans_.end(), unit,
                       [](std::uint64_t at, const Span& span) { return at < span.begin; });
  return after != spans_.begin() && unit < std::prev(after)->end;
}

void UnitSet::Include(const UnitSet& other) {
  spans_ = Combined(*this, other, [](bool a, bool b) { return a || b; });
}

UnitSet UnitSet::Minus(const UnitSet& other) const {
  UnitSet left;
  left.spans_ = Combined(*this, other, [](bool a, bool b) { return a && !b; });
  return left;
}

UnitSet UnitSet::And(const UnitSet& other) const {
  UnitSet both;
  both.spans_ = Combined(*this, other, [](bool a, bool b) { return a && b; });
  return both;
}

std::uint64_t UnitSet::size() const {
  std::uint64_t units = 0;
  for (const Span& span : spans_) units += span.end - span.begin;
  return units;
}

std::vector<UnitSet::Run> UnitSet::runs() const {
  std::vector<Run> runs;
  for (const Span& span : spans_) {
    runs.push_back({static_cast<std::uint32_t>(span.begin >> kGranuleBits),
                    static_cast<std::uint32_t>(span.begin), static_cast<std::uint32_t>(span.end)});
  }
  return runs;
}

std::string ToString(const UnitSet& units) {
  return absl::StrJoin(units.runs(), ", ", [](std::string* out, const UnitSet::Run& run) {
    absl::StrAppend(out, run.column_granule, ":", run.begin, "..", run.end - 1);
  });
}

}  // namespace embla
