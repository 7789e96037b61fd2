// Data directories of nodes and state directories of coordinators.
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/byte_text.h"
#include "tools/embla/doctor_machine.h"

namespace embla::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kFullBytes = std::uint64_t{128} << 20;
constexpr std::array kInMemory = {"tmpfs", "ramfs"};
constexpr std::array kOnNetwork = {"nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "fuse.sshfs"};

struct Mount {
  std::string point;
  std::string kind;
};

// The mount that `path` lies on, by lines of /proc/mounts: "tmpfs /dev/shm tmpfs rw 0 0".
Mount MountOf(const std::string& root, const std::string& path) {
  std::ifstream table(root + "/proc/mounts");
  Mount found;
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string device;
    Mount mount;
    words >> device >> mount.point >> mount.kind;
    const std::string inside = mount.point == "/" ? "/" : mount.point + "/";
    const bool holds = path == mount.point || path.starts_with(inside);
    if (holds && mount.point.size() >= found.point.size()) found = mount;
  }
  return found;
}

void CheckMount(const ThisMachine& machine, const std::string& path, Report& report) {
  std::error_code ignored;
  const fs::path real = fs::weakly_canonical(path, ignored);
  const Mount mount = MountOf(machine.root, real.string());
  const auto is_one = [&mount](const auto& kinds) {
    for (const char* const kind : kinds) {
      if (mount.kind == kind) return true;
    }
    return false;
  };
  const std::string what = absl::StrCat(mount.point, " is ", mount.kind);
  if (is_one(kInMemory)) report.Add("directory-in-memory", path, what);
  if (is_one(kOnNetwork)) report.Add("directory-on-network", path, what);
}

void CheckSpace(const ThisMachine& machine, const std::string& path, Report& report) {
  const auto space = machine.disk_space(path);
  if (!space.ok()) return;
  const std::string what =
      absl::StrCat(FormatBytes(static_cast<std::int64_t>(space->free_bytes)), " of ",
                   FormatBytes(static_cast<std::int64_t>(space->bytes)), " are free");
  if (space->free_bytes < kFullBytes) {
    report.Add("disk-full", path, what);
  } else if (space->free_bytes < space->bytes / 10) {
    report.Add("disk-fills", path, what);
  }
}

void CheckFiles(const std::string& path, uid_t owner, Report& report) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path, ignored)) {
    struct stat file = {};
    if (::lstat(entry.path().c_str(), &file) != 0) continue;
    if (file.st_uid != owner) {
      report.Add("directory-owner", path,
                 absl::StrCat("it is of user ", owner, ", and ", entry.path().filename().string(),
                              " is of user ", file.st_uid));
      break;  // One is enough to say it.
    }
  }
  struct stat key = {};
  const std::string key_file = path + "/cluster.key";
  if (::stat(key_file.c_str(), &key) == 0 && (key.st_mode & S_IRWXO) != 0) {
    report.Add("secret-readable", key_file,
               absl::StrFormat("its mode is %04o", key.st_mode & 0777u));
  }
}

}  // namespace

void CheckDirectory(const ThisMachine& machine, const std::string& path, Report& report) {
  struct stat directory = {};
  if (::stat(path.c_str(), &directory) != 0) {
    report.Add(errno == ENOENT ? "directory-missing" : "directory-unusable", path,
               std::strerror(errno));
    return;
  }
  if (!S_ISDIR(directory.st_mode)) {
    report.Add("directory-unusable", path, "it is not a directory");
    return;
  }
  // Other users' rights are not known here.
  const bool is_mine = directory.st_uid == ::geteuid() || ::geteuid() == 0;
  if (is_mine && ::access(path.c_str(), W_OK) != 0) {
    report.Add("directory-unusable", path, std::strerror(errno));
  } else if ((directory.st_mode & S_IWUSR) == 0) {
    report.Add("directory-unusable", path, "its owner may not write to it");
  }
  if ((directory.st_mode & S_IWOTH) != 0) {
    report.Add("directory-open", path, "its mode lets everybody write");
  }
  CheckMount(machine, path, report);
  CheckSpace(machine, path, report);
  CheckFiles(path, directory.st_uid, report);
}

}  // namespace embla::cli
