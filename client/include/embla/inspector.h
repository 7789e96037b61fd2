// The units of a table as the coordinator has recorded them, and as the nodes really hold them. The
// CLI's `verify` compares the two through this interface.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "embla/tls.h"

namespace embla::client {

// A unit whose owner has been recorded: it took part in a move.
struct UnitOwner {
  std::uint32_t row_granule = 0;
  std::uint32_t column_granule = 0;  // The first of the unit's columns.
  std::uint32_t node = 0;            // Id of the owner.
  std::uint64_t epoch = 0;
  std::string phase =
      {};  // State of the node's last move: none (there is none to end), open, aborted, committed.
};

// A unit, or a copy of it, on a device of a node.
struct UnitOnNode {
  enum class State : std::uint8_t {
    kServed = 1,    // Requests find its rows.
    kRetained = 2,  // Rows that are kept for another node, which owns the unit or is about to.
    kStaged = 3,    // Memory for rows that come in.
  };
  std::uint32_t row_granule = 0;
  std::uint32_t column_begin = 0;
  std::uint32_t column_end = 0;
  std::uint32_t replica_group = 0;
  std::uint32_t device = 0;
  State state = State::kServed;
  // A served unit has rows (in a ZCH table: rows of an id), and the CRC-32C over them in
  // ascending order, each as id, weights, optimizer state.
  std::int64_t rows = 0;
  std::uint32_t crc32c = 0;
};

// Thread safety: every method may be called from any thread.
class Inspector {
 public:
  // Unavailable: the coordinator does not answer. Errors of `tls`: those of Client::Connect.
  static absl::StatusOr<std::unique_ptr<Inspector>> Connect(const std::string& admin_address,
                                                            absl::Duration timeout,
                                                            const TlsOptions& tls = {});
  virtual ~Inspector() = default;

  // Lists the units that took part in a move, which have a record. NotFound: no such table.
  virtual absl::StatusOr<std::vector<UnitOwner>> Owners(const std::string& table) = 0;
  // Asks the node itself, at its address in the plan. A node that has nothing of the table answers
  // with nothing. It reads all rows of the table.
  virtual absl::StatusOr<std::vector<UnitOnNode>> UnitsOn(const std::string& node_address,
                                                          std::uint32_t table_id) = 0;
};

}  // namespace embla::client
