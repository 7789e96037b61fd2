// The checks of `embla doctor`, and their findings.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/embla/output.h"

namespace embla::cli {

enum class Severity : std::uint8_t {
  kNote = 1,  // Nothing is wrong, but few mean it so.
  kWarning,   // It works, and will not when something else happens.
  kError,     // Something does not work, or rows are at stake.
};
std::string_view NameOf(Severity severity);

// One kind of mistake. docs/doctor.md has the table; a test compares the two.
struct DoctorCheck {
  std::string_view name;
  Severity severity = Severity::kError;
  std::string_view mistake;
  std::string_view next;  // The remedy.
  std::string_view part;  // Where in docs/runbook.md more is said: the anchor of a heading.
};
std::span<const DoctorCheck> MachineChecks();
std::span<const DoctorCheck> ClusterChecks();

struct Finding {
  const DoctorCheck& check;
  std::string where;  // "node n3", a file, an address.
  std::string what;
};

// Thread safety: none.
class Report {
 public:
  // Requires: there is a check of that name.
  void Add(std::string_view check, std::string where, std::string what);

  const std::vector<Finding>& findings() const { return findings_; }
  std::size_t Count(Severity severity) const;
  // The worst come first.
  void Show(const Output& output) const;

 private:
  std::vector<Finding> findings_;
};

// All checks, as the table of docs/doctor.md.
void ShowChecks(const Output& output);

}  // namespace embla::cli
