#include "core/base/build_version.h"

#include <link.h>

#include <filesystem>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/text.h"

namespace embla {
namespace {

// The file of a loaded library, behind its links: libzstd.so.1.5.4 and not libzstd.so.1. Empty for
// what is no library, and for all of Abseil's hundred libraries but one.
std::string LibraryFile(const char* path) {
  if (path == nullptr || *path != '/') return "";
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(path, error);
  const std::string name = error ? "" : file.filename().string();
  if (!absl::StrContains(name, ".so")) return "";
  if (absl::StartsWith(name, "libabsl_") && !absl::StartsWith(name, "libabsl_base.")) return "";
  return name;
}

std::set<std::string> LoadedLibraries() {
  std::set<std::string> files;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* files) {
        static_cast<std::set<std::string>*>(files)->insert(LibraryFile(info->dlpi_name));
        return 0;
      },
      &files);
  files.erase("");
  return files;
}

}  // namespace

std::string_view BuildVersion() { return EMBLA_VERSION "+" EMBLA_COMMIT; }

std::string DescribeBuild(std::string_view program) {
  return absl::StrCat(ToAbsl(program), " ", ToAbsl(BuildVersion()), "\nbuild: " EMBLA_BUILD,
                      ", protocol ", kProtocolVersion,
                      "\nlibraries: ", absl::StrJoin(LoadedLibraries(), " "));
}

}  // namespace embla
