#include "tests/model/searcher.h"

#include "absl/strings/str_cat.h"

namespace embla::model {
namespace {

std::uint64_t Mixed(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ x >> 33;
}

}  // namespace

Fingerprint FingerprintOf(const std::string& bytes) {
  std::uint64_t a = bytes.size();
  std::uint64_t b = ~a;
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    std::uint64_t word = 0;
    bytes.copy(reinterpret_cast<char*>(&word), 8, i);
    a = Mixed(a ^ word);
    b = Mixed(b + word * 0x9e3779b97f4a7c15ULL + 1);
  }
  return {a, b};
}

std::string ToString(const SearchResult& result) {
  std::string words = absl::StrCat(result.states, " states, ", result.steps, " steps, depth ",
                                   result.depth, result.is_complete ? ", complete" : "");
  if (!result.counterexample.has_value()) return words;
  absl::StrAppend(&words, "\n  ", result.counterexample->why, " after ",
                  result.counterexample->trace.size(), " steps:");
  int number = 0;
  for (const std::string& step : result.counterexample->trace) {
    absl::StrAppend(&words, "\n  ", ++number, ". ", step);
  }
  return words;
}

}  // namespace embla::model
