// The load on the service: one case of a benchmark run, and its requests.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/include/embla/client.h"
#include "tools/load/id_stream.h"

namespace embla::load {

struct Case {
  std::string name;
  double update_share = 0.0;  // Share of updates in the requests; the others are lookups.
  int tables = 1;             // In every request.
  int ids = 4096;             // Per table and request.
  int bag = 1;                // Ids per bag; above 1 rows are summed in bags.
  bool pooled = false;        // Rows are summed in bags even of one id, as models write it.
  int dim = 64;
  client::WireFormat wire = client::WireFormat::kFp32;
  bool combine_duplicates = true;
  int clients = 1;            // Each with its own connections.
  int in_flight = 1;          // Per client.
  int requests = 200;         // Per round, of all clients together.
  std::string compared_with;  // Name of a case whose rows per second are the unit; may be empty.

  absl::Status Validate() const;

  std::int64_t rows_per_request() const { return std::int64_t{tables} * ids; }
  // Rows that travel: one per id, or one per bag.
  std::int64_t output_rows() const { return std::int64_t{tables} * ((ids + bag - 1) / bag); }
  // Bytes of ids, lengths, rows and gradients; the rest of a message is some tens of bytes.
  std::int64_t IdBytes() const;
  std::int64_t RowBytes() const;
  std::int64_t PayloadBytes() const { return IdBytes() + RowBytes(); }
  bool has_bags() const { return pooled || bag > 1; }
  bool only_lookups() const { return update_share == 0.0; }
  bool only_updates() const { return update_share == 1.0; }
};

// Requests drawn before the clock starts, used in turn. Thread safety: const methods, any thread.
class RequestSet {
 public:
  // `tables` are the names, load.tables of them, all of `distribution`'s rows.
  RequestSet(const Case& load, std::vector<std::string> tables, const IdDistribution& distribution,
             std::uint64_t seed);

  // Floats of all rows of one request.
  std::size_t row_floats() const;
  // `number` may be any; rows_out and gradients hold row_floats().
  std::vector<client::FeatureLookup> Lookup(std::size_t number, std::span<float> rows_out) const;
  std::vector<client::FeatureGradient> Update(std::size_t number,
                                              std::span<const float> gradients) const;

 private:
  std::span<const std::int64_t> IdsOf(std::size_t number, std::size_t table) const;

  const Case load_;
  const std::vector<std::string> tables_;
  std::vector<std::int64_t> ids_;       // kRequests x tables x ids.
  std::vector<std::uint32_t> lengths_;  // Lengths for one table; empty when rows are not pooled.
};

}  // namespace embla::load
