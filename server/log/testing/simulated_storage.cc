#include "server/log/testing/simulated_storage.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla {
namespace {

constexpr std::size_t kSectorBytes = 512;

std::size_t Below(std::mt19937_64& random, std::size_t end) { return random() % end; }

// Returns a file's content after a crash: `content` was written, of which the first `durable` bytes
// are synced.
std::string Survivor(const std::string& content, std::size_t durable,
                     const std::vector<std::size_t>& write_ends, std::mt19937_64& random) {
  std::size_t size = content.size();
  switch (Below(random, 3)) {
    case 0:
      size = durable;
      break;
    case 1:
      size = durable + Below(random, size - durable + 1);
      break;
    default:
      break;
  }
  std::string survivor = content.substr(0, size);
  for (std::size_t begin = durable; begin < size;) {
    const std::size_t end = std::min(size, (begin / kSectorBytes + 1) * kSectorBytes);
    std::vector<std::size_t> stops = {begin};  // How far each state of this sector is written.
    for (const std::size_t write_end : write_ends) {
      if (write_end > stops.back()) stops.push_back(std::min(end, write_end));
    }
    // All and nothing more often than in between.
    const std::size_t stop =
        Below(random, 2) == 0 ? stops.back() : stops[Below(random, stops.size())];
    std::fill(survivor.begin() + static_cast<std::ptrdiff_t>(stop),
              survivor.begin() + static_cast<std::ptrdiff_t>(end), '\0');
    begin = end;
  }
  return survivor;
}

}  // namespace

class SimulatedStorage::File final : public LogFile {
 public:
  File(SimulatedStorage& disk, Name inode) : disk_(disk), inode_(std::move(inode)) {}

  absl::Status Append(std::size_t bytes, Source next) override {
    std::string data;
    for (auto pieces = next(); !pieces.empty(); pieces = next()) {
      for (const std::string_view piece : pieces) data += piece;
    }
    EMBLA_CHECK(data.size() == bytes);
    const MutexLock lock(disk_.mu_);
    disk_.WaitAt(Gate::kWrite);
    // Such a file would mix old and new bytes in one sector after a crash.
    EMBLA_CHECK(!inode_->uncut);
    absl::Status status = disk_.Change("write");
    const std::uint64_t end = inode_->content.size() + data.size();
    if (status.ok() && end > inode_->reserved) {
      const std::uint64_t more =
          end - std::max<std::uint64_t>(inode_->reserved, inode_->content.size());
      if (disk_.UsedBytes() + more > disk_.capacity_) {
        status = absl::ResourceExhaustedError("the simulated disk is full");
      }
    }
    if (!status.ok()) data.resize(data.size() / 2);
    inode_->content += data;
    inode_->write_ends.push_back(inode_->content.size());
    return status;
  }
  absl::Status Sync() override {
    const MutexLock lock(disk_.mu_);
    // Size at the call: later writes may be lost.
    const std::size_t bytes = inode_->content.size();
    disk_.WaitAt(Gate::kSync);
    EMBLA_RETURN_IF_ERROR(disk_.Change("sync"));
    inode_->durable_bytes = std::min(bytes, inode_->content.size());
    std::erase_if(inode_->write_ends, [&](std::size_t end) { return end <= bytes; });
    inode_->uncut.reset();
    ++disk_.syncs_;
    disk_.changed_.NotifyAll();
    return absl::OkStatus();
  }
  absl::Status Truncate(std::uint64_t size) override {
    const MutexLock lock(disk_.mu_);
    EMBLA_RETURN_IF_ERROR(disk_.Change("truncate"));
    inode_->uncut = inode_->content;
    inode_->uncut_ends = inode_->write_ends;
    inode_->content.resize(size);
    return absl::OkStatus();
  }
  std::uint64_t size() const override {
    const MutexLock lock(disk_.mu_);
    return inode_->content.size();
  }

 private:
  SimulatedStorage& disk_;  // Not owned; outlives this object.
  const Name inode_;
};

void SimulatedStorage::WaitAt(Gate gate) {
  while (held_[static_cast<std::size_t>(gate)]) changed_.Wait(mu_);
}

absl::Status SimulatedStorage::Change(std::string_view verb) {
  ++operations_;
  const bool dead = fault_ == DiskFault::kDeath && operations_ > fail_at_;
  if (fail_at_ == 0 || (operations_ != fail_at_ && !dead)) return absl::OkStatus();
  const std::string message = absl::StrCat("simulated failure of a ", ToAbsl(verb));
  if (fault_ == DiskFault::kFull) return absl::ResourceExhaustedError(message);
  return absl::UnavailableError(message);
}

void SimulatedStorage::SetName(const std::string& name, Name inode) {
  std::vector<Name>& history = history_[name];
  if (history.empty()) history.push_back(names_[name]);
  history.push_back(inode);
  names_[name] = std::move(inode);
}

std::uint64_t SimulatedStorage::bytes() const {
  const MutexLock lock(mu_);
  std::uint64_t bytes = 0;
  for (const auto& [name, inode] : names_) bytes += inode == nullptr ? 0 : inode->content.size();
  return bytes;
}

std::uint64_t SimulatedStorage::UsedBytes() const {
  std::uint64_t used = 0;
  for (const auto& [name, inode] : names_) {
    if (inode) used += std::max<std::uint64_t>(inode->reserved, inode->content.size());
  }
  return used;
}

absl::StatusOr<std::vector<std::string>> SimulatedStorage::List() const {
  const MutexLock lock(mu_);
  std::vector<std::string> names;
  for (const auto& [name, inode] : names_) {
    if (inode) names.push_back(name);
  }
  return names;
}

absl::Status SimulatedStorage::ReadInto(const std::string& name, std::string& content) const {
  const MutexLock lock(mu_);
  const auto it = names_.find(name);
  if (it == names_.end() || !it->second) {
    return absl::NotFoundError(absl::StrCat("no simulated file ", name));
  }
  if (++reads_ == fail_read_at_) {
    return absl::UnavailableError(absl::StrCat("cannot read simulated file ", name));
  }
  content = it->second->content;
  return absl::OkStatus();
}

absl::StatusOr<std::string> SimulatedStorage::ReadBegin(const std::string& name,
                                                        std::size_t bytes) const {
  std::string content;
  EMBLA_RETURN_IF_ERROR(ReadInto(name, content));
  return content.substr(0, bytes);
}

absl::StatusOr<std::unique_ptr<LogFile>> SimulatedStorage::Open(const std::string& name,
                                                                std::uint64_t reserved_bytes) {
  const MutexLock lock(mu_);
  EMBLA_RETURN_IF_ERROR(Change("open"));
  if (!names_[name]) SetName(name, std::make_shared<Inode>());
  Inode& inode = *names_[name];
  if (reserves_ && reserved_bytes > inode.content.size()) {
    const std::uint64_t before = std::exchange(inode.reserved, reserved_bytes);
    if (UsedBytes() > capacity_) {
      inode.reserved = before;
      return absl::ResourceExhaustedError("the simulated disk is full");
    }
  }
  return std::make_unique<File>(*this, names_[name]);
}

absl::Status SimulatedStorage::Rename(const std::string& from, const std::string& to) {
  const MutexLock lock(mu_);
  EMBLA_RETURN_IF_ERROR(Change("rename"));
  SetName(to, names_[from]);
  SetName(from, nullptr);
  return absl::OkStatus();
}

absl::Status SimulatedStorage::Remove(const std::string& name) {
  const MutexLock lock(mu_);
  EMBLA_RETURN_IF_ERROR(Change("remove"));
  if (names_[name]) SetName(name, nullptr);
  return absl::OkStatus();
}

absl::Status SimulatedStorage::SyncDirectory() {
  const MutexLock lock(mu_);
  EMBLA_RETURN_IF_ERROR(Change("directory sync"));
  history_.clear();
  return absl::OkStatus();
}

void SimulatedStorage::FailAt(std::uint64_t operation, DiskFault fault) {
  const MutexLock lock(mu_);
  operations_ = 0;
  fail_at_ = operation;
  fault_ = fault;
}

void SimulatedStorage::FailReadAt(std::uint64_t read) {
  const MutexLock lock(mu_);
  reads_ = 0;
  fail_read_at_ = read;
}

std::uint64_t SimulatedStorage::reads() const {
  const MutexLock lock(mu_);
  return reads_;
}

std::uint64_t SimulatedStorage::operations() const {
  const MutexLock lock(mu_);
  return operations_;
}

void SimulatedStorage::SetCapacity(std::uint64_t bytes, bool reserves) {
  const MutexLock lock(mu_);
  capacity_ = bytes;
  reserves_ = reserves;
}

void SimulatedStorage::Hold(Gate gate) {
  const MutexLock lock(mu_);
  held_[static_cast<std::size_t>(gate)] = true;
}

void SimulatedStorage::Release(Gate gate) {
  const MutexLock lock(mu_);
  held_[static_cast<std::size_t>(gate)] = false;
  changed_.NotifyAll();
}

std::uint64_t SimulatedStorage::syncs() const {
  const MutexLock lock(mu_);
  return syncs_;
}

void SimulatedStorage::WaitForSyncs(std::uint64_t count) const {
  const MutexLock lock(mu_);
  while (syncs_ < count) changed_.Wait(mu_);
}

void SimulatedStorage::Restart() {
  const MutexLock lock(mu_);
  fail_at_ = 0;
  fail_read_at_ = 0;
  capacity_ = ~std::uint64_t{0};
  reserves_ = true;
}

void SimulatedStorage::Forget(Inode& inode, std::mt19937_64& random) {
  const bool uncut = inode.uncut && Below(random, 2) == 0;
  const std::string& content = uncut ? *inode.uncut : inode.content;
  const std::size_t durable = std::min(inode.durable_bytes, content.size());
  std::string survivor =
      Survivor(content, durable, uncut ? inode.uncut_ends : inode.write_ends, random);
  inode = Inode{};
  inode.durable_bytes = survivor.size();
  inode.content = std::move(survivor);
}

void SimulatedStorage::LosePower(std::mt19937_64& random) {
  Restart();
  const MutexLock lock(mu_);
  for (const auto& [name, history] : history_) {
    names_[name] = history[Below(random, history.size())];
  }
  history_.clear();
  std::vector<Inode*> seen;
  for (const auto& [name, inode] : names_) {
    if (!inode || std::find(seen.begin(), seen.end(), inode.get()) != seen.end()) continue;
    seen.push_back(inode.get());
    Forget(*inode, random);
  }
}

void SimulatedStorage::Overwrite(const std::string& name, const std::string& content) {
  const MutexLock lock(mu_);
  names_[name] = std::make_shared<Inode>();
  names_[name]->content = content;
  names_[name]->durable_bytes = content.size();
}

}  // namespace embla
