// A LogStorage that counts what is read from it and written to it, and how long its disk takes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/metrics/metrics.h"
#include "server/log/log_storage.h"

namespace embla {

class MeteredStorage final : public LogStorage {
 public:
  struct Meters {
    Counter bytes;
    Histogram sync;
    // Told of bytes that were read, on any thread; may be empty.
    std::function<void(std::uint64_t bytes)> read = {};
  };
  // `storage` is not owned and outlives this object.
  MeteredStorage(LogStorage& storage, const Meters& meters) : storage_(storage), meters_(meters) {}

  const std::string& path() const override { return storage_.path(); }
  absl::StatusOr<std::vector<std::string>> List() const override { return storage_.List(); }
  absl::Status ReadInto(const std::string& name, std::string& content) const override;
  absl::StatusOr<std::string> ReadBegin(const std::string& name, std::size_t bytes) const override {
    return storage_.ReadBegin(name, bytes);
  }
  absl::StatusOr<std::unique_ptr<LogFile>> Open(const std::string& name,
                                                std::uint64_t reserved_bytes) override;
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return storage_.Rename(from, to);
  }
  absl::Status Remove(const std::string& name) override { return storage_.Remove(name); }
  absl::Status SyncDirectory() override { return storage_.SyncDirectory(); }

 private:
  class File;

  LogStorage& storage_;  // Not owned; outlives this object.
  const Meters meters_;
};

}  // namespace embla
