// A copy of a model's tables in this process, weights and optimizer state, to return to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/include/embla/client.h"

namespace embla::train {

// Thread safety: one thread at a time. No other process trains the tables meanwhile.
class TableCopy {
 public:
  // `client` is not owned and outlives this object.
  TableCopy(client::Client& client, std::vector<std::string> tables, std::int64_t bytes_max)
      : client_(client), names_(std::move(tables)), bytes_max_(bytes_max) {}

  // Copies the tables as they are now. False: they are larger than bytes_max, so nothing is held.
  // After an error the former copy is still there.
  absl::StatusOr<bool> Take();
  // Writes the copy back. Ids of ZCH tables that have got rows since keep them as they are.
  // Requires: Take was true once.
  absl::Status Restore();

 private:
  struct Table {
    std::string name;
    std::vector<std::int64_t> ids;
    std::vector<float> weights;
    std::vector<float> state;
  };

  client::Client& client_;
  const std::vector<std::string> names_;
  const std::int64_t bytes_max_;
  std::vector<Table> tables_;
};

}  // namespace embla::train
