#include "tests/fault/coverage.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace embla::fault {
namespace {

constexpr const char* kStates[] = {"idle", "copy", "handed_over", "paused", "cancel"};

}  // namespace

void Coverage::Add(const std::string& fault, const std::string& state, const std::string& victim) {
  const MutexLock lock(mu_);
  ++faults_;
  ++hits_[{fault, victim}][state];
}

void Coverage::AddFailpoint(const std::string& name) {
  const MutexLock lock(mu_);
  ++failpoints_[name];
}

int Coverage::faults() const {
  const MutexLock lock(mu_);
  return faults_;
}

std::string Coverage::Table() const {
  const MutexLock lock(mu_);
  std::string text = absl::StrFormat("%-13s %-12s", "fault", "victim");
  for (const char* const state : kStates) absl::StrAppendFormat(&text, " %7s", state);
  for (const auto& [what, states] : hits_) {
    absl::StrAppendFormat(&text, "\n%-13s %-12s", std::get<0>(what), std::get<1>(what));
    for (const char* const state : kStates) {
      const auto it = states.find(state);
      absl::StrAppendFormat(&text, " %7d", it == states.end() ? 0 : it->second);
    }
  }
  absl::StrAppend(&text, "\nfailpoints reached:");
  for (const auto& [name, times] : failpoints_) absl::StrAppend(&text, " ", name, " ", times);
  return text;
}

}  // namespace embla::fault
