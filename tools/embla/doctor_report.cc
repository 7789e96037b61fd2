#include "tools/embla/doctor_report.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/text.h"
#include "tools/embla/text_table.h"

namespace embla::cli {
namespace {

constexpr const char* kPage = "docs/runbook.md#";

const DoctorCheck* Find(std::span<const DoctorCheck> checks, std::string_view name) {
  const auto found = std::ranges::find(checks, name, &DoctorCheck::name);
  return found == checks.end() ? nullptr : &*found;
}

std::string Counted(std::size_t count, const char* what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

Colour ColourOf(Severity severity) {
  switch (severity) {
    case Severity::kNote:
      return Colour::kBold;
    case Severity::kWarning:
      return Colour::kYellow;
    case Severity::kError:
      return Colour::kRed;
  }
  return Colour::kBold;
}

}  // namespace

std::string_view NameOf(Severity severity) {
  switch (severity) {
    case Severity::kNote:
      return "note";
    case Severity::kWarning:
      return "warning";
    case Severity::kError:
      return "error";
  }
  return "";
}

void Report::Add(std::string_view check, std::string where, std::string what) {
  const DoctorCheck* found = Find(MachineChecks(), check);
  if (found == nullptr) found = Find(ClusterChecks(), check);
  EMBLA_CHECK(found != nullptr);
  findings_.push_back({*found, std::move(where), std::move(what)});
}

std::size_t Report::Count(Severity severity) const {
  return static_cast<std::size_t>(std::ranges::count(
      findings_, severity, [](const Finding& finding) { return finding.check.severity; }));
}

void Report::Show(const Output& output) const {
  std::vector<const Finding*> sorted;
  for (const Finding& finding : findings_) sorted.push_back(&finding);
  std::ranges::stable_sort(sorted, std::greater<>(),
                           [](const Finding* finding) { return finding->check.severity; });
  if (output.json) {
    nlohmann::ordered_json views = nlohmann::ordered_json::array();
    for (const Finding* finding : sorted) {
      views.push_back({{"check", finding->check.name},
                       {"severity", NameOf(finding->check.severity)},
                       {"where", finding->where},
                       {"what", finding->what},
                       {"what_to_do", finding->check.next},
                       {"page", kPage + std::string(finding->check.part)}});
    }
    output.PutJson({{"errors", Count(Severity::kError)},
                    {"warnings", Count(Severity::kWarning)},
                    {"notes", Count(Severity::kNote)},
                    {"findings", views}});
    return;
  }
  for (const Finding* finding : sorted) {
    const DoctorCheck& check = finding->check;
    output.out << Coloured(NameOf(check.severity), ColourOf(check.severity), output.terminal) << " "
               << check.name << ": " << finding->where << "\n"
               << "    " << finding->what << "\n"
               << "    what to do: " << check.next << "\n"
               << "    " << kPage << check.part << "\n";
  }
  output.out << Counted(Count(Severity::kError), "error") << ", "
             << Counted(Count(Severity::kWarning), "warning") << ", "
             << Counted(Count(Severity::kNote), "note") << "\n";
}

void ShowChecks(const Output& output) {
  const std::pair<const char*, std::span<const DoctorCheck>> halves[] = {
      {"machine", MachineChecks()}, {"cluster", ClusterChecks()}};
  nlohmann::ordered_json views = nlohmann::ordered_json::array();
  TextTable table({"check", "how bad", "looks at", "mistake"});
  for (const auto& [half, checks] : halves) {
    for (const DoctorCheck& check : checks) {
      views.push_back({{"check", check.name},
                       {"severity", NameOf(check.severity)},
                       {"looks_at", half},
                       {"mistake", check.mistake},
                       {"what_to_do", check.next},
                       {"page", kPage + std::string(check.part)}});
      table.Add({std::string(check.name), std::string(NameOf(check.severity)), half,
                 std::string(check.mistake)});
    }
  }
  if (output.json) return output.PutJson(views);
  output.out << table.Render();
}

}  // namespace embla::cli
