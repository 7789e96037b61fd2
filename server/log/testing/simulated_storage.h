// A disk in memory that forgets like a real one: for tests of the log over crashes.
//
// A disk whose unsynced writes may be lost at a crash: each 512-byte sector of a file keeps the
// result of some prefix of the writes to it, independently of the others; the file's size is
// anything between the synced and the newest; each name in the directory points where it pointed at
// some time since the last sync of the directory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/base/mutex.h"
#include "server/log/log_storage.h"

namespace embla {

enum class DiskFault : std::uint8_t {
  kError,  // This operation fails; half of a write is done.
  kFull,   // Like kError, with ResourceExhausted.
  kDeath,  // Like kError, and so is everything after it: the process is dead.
};

// Thread safety: every method may be called from any thread.
class SimulatedStorage final : public LogStorage {
 public:
  const std::string& path() const override { return path_; }
  absl::StatusOr<std::vector<std::string>> List() const override;
  absl::Status ReadInto(const std::string& name, std::string& content) const override;
  absl::StatusOr<std::string> ReadBegin(const std::string& name, std::size_t bytes) const override;
  absl::StatusOr<std::unique_ptr<LogFile>> Open(const std::string& name,
                                                std::uint64_t reserved_bytes) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& name) override;
  absl::Status SyncDirectory() override;

  // The `operation`-th change from now (1: the next) fails.
  void FailAt(std::uint64_t operation, DiskFault fault);
  // The `read`-th read of a file from now (1: the next) fails, as on a bad sector. 0: none does.
  void FailReadAt(std::uint64_t read);
  // Reads since FailReadAt.
  std::uint64_t reads() const;
  // Changes since FailAt.
  std::uint64_t operations() const;
  // Room for all files; without `reserves`, Open promises nothing.
  void SetCapacity(std::uint64_t bytes, bool reserves = true);

  // The content of all files.
  std::uint64_t bytes() const;

  // Until released, writes or syncs of files wait: the test decides what happens meanwhile.
  enum class Gate : std::uint8_t { kWrite, kSync };
  void Hold(Gate gate);
  void Release(Gate gate);
  // Syncs of files that succeeded.
  std::uint64_t syncs() const;
  void WaitForSyncs(std::uint64_t count) const;

  // A new process after the old one died: no faults, no limit, everything written is there.
  void Restart();
  // Like Restart, after a loss of power.
  void LosePower(std::mt19937_64& random);
  // Replaces a file, synced: damage.
  void Overwrite(const std::string& name, const std::string& content);

 private:
  class File;
  struct Inode {
    std::string content;
    std::size_t durable_bytes = 0;
    std::vector<std::size_t> write_ends;  // Ends of the writes since the last sync.
    std::uint64_t reserved = 0;
    // Before a cut that is not synced.
    std::optional<std::string> uncut;
    std::vector<std::size_t> uncut_ends;
  };
  using Name = std::shared_ptr<Inode>;  // Null: no such file.

  void WaitAt(Gate gate) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Change(std::string_view verb) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetName(const std::string& name, Name inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::uint64_t UsedBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void Forget(Inode& inode, std::mt19937_64& random);

  const std::string path_ = "disk";
  mutable Mutex mu_;
  mutable CondVar changed_;  // A gate, or syncs_.
  bool held_[2] ABSL_GUARDED_BY(mu_) = {};
  std::uint64_t syncs_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, Name> names_ ABSL_GUARDED_BY(mu_);
  // Targets of each name at the last sync and since; names that did not change are missing.
  std::map<std::string, std::vector<Name>> history_ ABSL_GUARDED_BY(mu_);
  std::uint64_t operations_ ABSL_GUARDED_BY(mu_) = 0;
  std::uint64_t fail_at_ ABSL_GUARDED_BY(mu_) = 0;
  DiskFault fault_ ABSL_GUARDED_BY(mu_) = DiskFault::kError;
  mutable std::uint64_t reads_ ABSL_GUARDED_BY(mu_) = 0;
  std::uint64_t fail_read_at_ ABSL_GUARDED_BY(mu_) = 0;
  std::uint64_t capacity_ ABSL_GUARDED_BY(mu_) = ~std::uint64_t{0};
  bool reserves_ ABSL_GUARDED_BY(mu_) = true;
};

}  // namespace embla
