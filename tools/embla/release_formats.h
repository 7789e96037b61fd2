// The protocol and the file formats of releases (docs/compatibility.md). Within a MINOR they stay.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace embla::cli {

// "0.2.1+4fdbd01" is {0, 2, 1}.
struct Version {
  int major = 0;
  int minor = 0;
  int patch = 0;

  auto operator<=>(const Version&) const = default;
  // While MAJOR is 0, MINOR takes its place.
  bool IsOneSeriesWith(const Version& other) const;
  std::string text() const;
};
// Nothing: not MAJOR.MINOR.PATCH.
std::optional<Version> ParseVersion(std::string_view text);

struct FileFormat {
  std::string_view file;
  std::uint32_t format = 0;
  auto operator<=>(const FileFormat&) const = default;
};

struct ReleaseFormats {
  Version first;  // The first release of its series.
  std::uint32_t protocol = 0;
  std::span<const FileFormat> files;  // The files of a coordinator and of nodes.
};

// Every series that this program knows, the oldest first.
std::span<const ReleaseFormats> KnownReleases();
// The one that `version` is of; null: not known.
const ReleaseFormats* FormatsOf(const Version& version, std::span<const ReleaseFormats> known);

}  // namespace embla::cli
