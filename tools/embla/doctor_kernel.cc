// Limits, clock and memory of this machine.
#include <netdb.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/byte_text.h"
#include "core/base/status_macros.h"
#include "tools/embla/doctor_machine.h"

namespace embla::cli {
namespace {

constexpr std::uint64_t kDescriptorsMin = 4096;  // The servers' --descriptors-min.
constexpr absl::Duration kEtcdTimeout = absl::Seconds(2);

// No clock is set here: `modes` is 0.
bool IsClockSynchronised() {
  timex state = {};
  const int outcome = ::adjtimex(&state);
  return outcome >= 0 && outcome != TIME_ERROR && (state.status & STA_UNSYNC) == 0;
}

std::uint64_t HardLimit(decltype(RLIMIT_NOFILE) resource) {
  rlimit limit = {};
  return ::getrlimit(resource, &limit) == 0 ? limit.rlim_max : RLIM_INFINITY;
}

bool Resolves(const std::string& host) {
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), nullptr, nullptr, &found);
  if (failed == 0) ::freeaddrinfo(found);
  return failed == 0;
}

absl::StatusOr<DiskSpace> SpaceOfDisk(const std::string& path) {
  struct statvfs disk = {};
  if (::statvfs(path.c_str(), &disk) != 0) {
    return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  return DiskSpace{disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize};
}

absl::StatusOr<std::size_t> CountInEtcd(const EtcdClientOptions& options,
                                        const std::string& prefix) {
  EMBLA_ASSIGN_OR_RETURN(const std::unique_ptr<EtcdKv> etcd, MakeEtcdClient(options));
  EMBLA_ASSIGN_OR_RETURN(const EtcdListing listing, etcd->List(prefix, kEtcdTimeout));
  return listing.entries.size();
}

// Empty: there is no such file.
std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The numbers of /proc/meminfo; "Hugepagesize:  2048 kB" is {"Hugepagesize:", 2048}.
std::map<std::string, std::int64_t> MemoryNumbers(const std::string& root) {
  std::map<std::string, std::int64_t> numbers;
  std::istringstream text(TextOf(root + "/proc/meminfo"));
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string name;
    std::int64_t number = 0;
    if (words >> name >> number) numbers[name] = number;
  }
  return numbers;
}

void CheckMemory(const std::string& root, Report& report) {
  const std::string huge = root + "/sys/kernel/mm/transparent_hugepage/enabled";
  if (TextOf(huge).find("[never]") != std::string::npos) {
    report.Add("huge-pages-never", "this machine", absl::StrCat(huge, " is never"));
  }
  std::map<std::string, std::int64_t> numbers = MemoryNumbers(root);
  const std::int64_t reserved = numbers["HugePages_Free:"] * numbers["Hugepagesize:"];
  if (reserved > numbers["MemTotal:"] / 20) {
    report.Add("huge-pages-reserved", "this machine",
               absl::StrCat(FormatBytes(reserved << 10), " of ",
                            FormatBytes(numbers["MemTotal:"] << 10), " are free huge pages"));
  }
  if (TextOf(root + "/proc/sys/vm/overcommit_memory").starts_with('2')) {
    report.Add("overcommit-strict", "this machine",
               "programs get no more memory than swap and a share of what there is");
  }
}

}  // namespace

ThisMachine ThisMachine::Read() {
  return {.now = absl::Now(),
          .is_clock_synchronised = IsClockSynchronised(),
          .descriptors_max = HardLimit(RLIMIT_NOFILE),
          .file_bytes_max = HardLimit(RLIMIT_FSIZE),
          .resolves = Resolves,
          .disk_space = SpaceOfDisk,
          .count_in_etcd = CountInEtcd};
}

void CheckKernel(const ThisMachine& machine, Report& report) {
  if (!machine.is_clock_synchronised) {
    report.Add("clock-unsynchronised", "this machine", "adjtimex says that it is not synchronised");
  }
  if (machine.descriptors_max < kDescriptorsMin) {
    report.Add("file-limit", "this shell",
               absl::StrCat("at most ", machine.descriptors_max,
                            " files and sockets may be open; servers do not start with fewer than ",
                            kDescriptorsMin));
  }
  if (machine.file_bytes_max != RLIM_INFINITY) {
    report.Add("file-size-limit", "this shell",
               absl::StrCat("files end at ",
                            FormatBytes(static_cast<std::int64_t>(machine.file_bytes_max))));
  }
  CheckMemory(machine.root, report);
}

}  // namespace embla::cli
