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
                           absl::FunctionRef<absl::Status(std::size_t job)> run) {
  JobSizes jobs(sizes.size());
  std::iota(jobs.begin(), jobs.end(), std::size_t{0});
  const std::size_t threads = pool.threads();
  const std::size_t total = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  const bool is_one_threads = threads == 1 || jobs.size() <= 1 || total < 2 * kRowsPerPiece;
  const auto beside = is_one_threads
                          ? jobs.end()
                          : std::stable_partition(jobs.begin(), jobs.end(), [&](std::size_t job) {
                              return sizes[job] * threads > total;
                            });
  std::size_t left = total;
  for (auto job = jobs.begin(); job != beside; ++job) {
    EMBLA_RETURN_IF_ERROR(run(*job));
    left -= sizes[*job];
  }
  const auto count = static_cast<std::size_t>(jobs.end() - beside);
  const std::size_t rows = std::max<std::size_t>(1, left / std::max<std::size_t>(1, count));
  const std::size_t grain = (kRowsPerPiece + rows - 1) / rows;
  Mutex mu;
  std::size_t error_at = count;
  absl::Status error;
  pool.ParallelFor(count, grain, [&](std::size_t begin, std::size_t end) {
    for (std::size_t at = begin; at < end; ++at) {
      absl::Status status = run(beside[static_cast<std::ptrdiff_t>(at)]);
      if (status.ok()) continue;
      MutexLock lock(mu);
      if (at >= error_at) return;
      error_at = at;
      error = std::move(status);
      return;
    }
  });
  return error;
}

}  // namespace embla
