#include "server/storage/side_by_side.h"

#include <algorithm>
#include <numeric>

#include "core/base/mutex.h"
#include "core/base/status_macros.h"

namespace embla {
namespace {

// Rows that pay for handing them to another thread; of less than two such pieces most are done
// before one has woken.
constexpr std::size_t kRowsPerPiece = 256;

}  // namespace

absl::Status RunSideBySide(ThreadPool& pool, const JobSizes& sizes,
                           absl::FunctionRef<absl::Status(Jobs jobs, bool alone)> run) {
  JobSizes jobs(sizes.size());
  std::iota(jobs.begin(), jobs.end(), std::size_t{0});
  const std::size_t threads = pool.threads();
  const std::size_t total = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  if (threads == 1 || jobs.size() <= 1 || total < 2 * kRowsPerPiece) return run(jobs, true);

  const auto small = std::stable_partition(
      jobs.begin(), jobs.end(), [&](std::size_t job) { return sizes[job] * threads > total; });
  std::size_t left = total;
  for (auto job = jobs.begin(); job != small; ++job) {
    EMBLA_RETURN_IF_ERROR(run(Jobs(job, 1), true));
    left -= sizes[*job];
  }
  const Jobs beside(small, jobs.end());
  const std::size_t rows = std::max<std::size_t>(1, left / std::max<std::size_t>(1, beside.size()));
  const std::size_t grain = (kRowsPerPiece + rows - 1) / rows;
  Mutex mu;
  std::size_t error_at = beside.size();
  absl::Status error;
  pool.ParallelFor(beside.size(), grain, [&](std::size_t begin, std::size_t end) {
    absl::Status status = run(beside.subspan(begin, end - begin), false);
    if (status.ok()) return;
    MutexLock lock(mu);
    if (begin >= error_at) return;
    error_at = begin;
    error = std::move(status);
  });
  return error;
}

}  // namespace embla
