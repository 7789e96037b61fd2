#include "server/rpc/descriptor_limit.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace embla {

absl::Status RaiseDescriptorLimit(std::size_t at_least) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "cannot raise the limit of open files to ", limit.rlim_max, ": ", std::strerror(errno)));
    }
  }
  const std::size_t now = DescriptorLimit();
  if (now >= at_least) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "this process may have ", now, " open files and sockets, at least ", at_least,
      " are needed: raise the hard limit (ulimit -Hn, systemd's LimitNOFILE, --ulimit nofile of a "
      "container)"));
}

std::size_t DescriptorLimit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

}  // namespace embla
