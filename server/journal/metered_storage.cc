#include "server/journal/metered_storage.h"

#include <chrono>
#include <utility>

#include "core/base/status_macros.h"

namespace embla {

class MeteredStorage::File final : public LogFile {
 public:
  File(std::unique_ptr<LogFile> file, const Meters& meters)
      : file_(std::move(file)), meters_(meters) {}

  absl::Status Append(std::size_t bytes, Source next) override {
    meters_.bytes.Add(static_cast<double>(bytes));
    return file_->Append(bytes, next);
  }
  void BeginSync() override { file_->BeginSync(); }
  absl::Status Sync() override {
    const auto start = std::chrono::steady_clock::now();
    const absl::Status status = file_->Sync();
    meters_.sync.Observe(absl::FromChrono(std::chrono::steady_clock::now() - start));
    return status;
  }
  absl::Status Truncate(std::uint64_t size) override { return file_->Truncate(size); }
  std::uint64_t size() const override { return file_->size(); }

 private:
  const std::unique_ptr<LogFile> file_;
  const Meters meters_;
};

absl::Status MeteredStorage::ReadInto(const std::string& name, std::string& content) const {
  EMBLA_RETURN_IF_ERROR(storage_.ReadInto(name, content));
  if (meters_.read) meters_.read(content.size());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LogFile>> MeteredStorage::Open(const std::string& name,
                                                              std::uint64_t reserved_bytes) {
  EMBLA_ASSIGN_OR_RETURN(std::unique_ptr<LogFile> file, storage_.Open(name, reserved_bytes));
  return std::make_unique<File>(std::move(file), meters_);
}

}  // namespace embla
