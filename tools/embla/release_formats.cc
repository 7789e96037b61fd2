#include "tools/embla/release_formats.h"

#include <array>
#include <cstdio>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/text.h"

namespace embla::cli {
namespace {

// A test compares the last series with docs/compatibility.md and with the golden files.
constexpr std::array kFiles02 = {FileFormat{"journal", 2},   FileFormat{"log", 2},
                                 FileFormat{"snapshots", 2}, FileFormat{"identity", 1},
                                 FileFormat{"state", 1},     FileFormat{"plan", 1}};
constexpr std::array kReleases = {ReleaseFormats{{0, 2, 0}, 2, kFiles02}};

}  // namespace

bool Version::IsOneSeriesWith(const Version& other) const {
  return major == other.major && (major > 0 || minor == other.minor);
}

std::string Version::text() const { return absl::StrCat(major, ".", minor, ".", patch); }

std::optional<Version> ParseVersion(std::string_view text) {
  const std::vector<std::string> words =
      absl::StrSplit(ToAbsl(text.substr(0, text.find('+'))), '.');
  Version version;
  if (words.size() != 3 || !absl::SimpleAtoi(words[0], &version.major) ||
      !absl::SimpleAtoi(words[1], &version.minor) || !absl::SimpleAtoi(words[2], &version.patch)) {
    return std::nullopt;
  }
  return version;
}

std::span<const ReleaseFormats> KnownReleases() { return kReleases; }

const ReleaseFormats* FormatsOf(const Version& version, std::span<const ReleaseFormats> known) {
  for (const ReleaseFormats& release : known) {
    if (release.first.IsOneSeriesWith(version)) return &release;
  }
  return nullptr;
}

}  // namespace embla::cli
