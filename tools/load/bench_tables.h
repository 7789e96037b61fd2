// The tables of a benchmark run: created for it, verified before anything is timed, dropped after.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/include/embla/admin.h"
#include "client/include/embla/client.h"
#include "tools/load/workload.h"

namespace embla::load {

struct TableSetup {
  std::int64_t rows = 1'000'000;
  std::string dtype = "fp32";
  std::string optimizer = "rowwise_adagrad";
  std::string sharding = "row_wise";
  std::string prefix = "bench";
};

// Thread safety: one thread at a time.
class BenchTables {
 public:
  // Not owned; they outlive this object.
  BenchTables(const TableSetup& setup, client::Admin& admin, client::Client& client)
      : setup_(setup), admin_(admin), client_(client) {}
  // Drops what Ensure created.
  ~BenchTables();

  // Names of `count` tables of this dim, created where they are missing.
  absl::StatusOr<std::vector<std::string>> Ensure(int count, int dim);

 private:
  const TableSetup setup_;
  client::Admin& admin_;
  client::Client& client_;
  std::vector<std::string> created_;
};

// Looks one request up and compares every row with ReadRows; applies one update and checks that it
// moved every row against the gradient. Internal: a wrong result, with where it is.
absl::Status VerifyCase(const Case& load, const RequestSet& requests, client::Client& client);

}  // namespace embla::load
