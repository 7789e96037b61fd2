// A trainer of trainer_leases_test and set_clocks_test: adds 1 to all weights of row 3 again and
// again, and counts the acknowledged updates in a file, until an update fails; then its exit code
// is the error's. An update that was on its way while the process was stopped may be out of time:
// it goes on then. Usage: counting_trainer COORDINATOR FILE
#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "client/include/embla/client.h"

namespace embla {
namespace {

constexpr std::uint32_t kDim = 8;

absl::Status AddOnesUntilItFails(const std::string& coordinator, const std::string& file) {
  const auto client = client::Client::Connect({.coordinator = coordinator});
  if (!client.ok()) return client.status();
  const std::vector<std::int64_t> ids = {3};
  const std::vector<float> gradients(kDim, -1.0f);
  const client::FeatureGradient feature{.table = "t", .ids = ids, .gradients = gradients};
  while (true) {
    const absl::Status status = (*client)->Update({&feature, 1}, {});
    if (absl::IsDeadlineExceeded(status)) continue;
    if (!status.ok()) return status;
    std::ofstream(file, std::ios::app) << "acknowledged\n";
  }
}

}  // namespace
}  // namespace embla

int main(int argc, char** argv) {
  if (argc != 3) return 100;
  const absl::Status status = embla::AddOnesUntilItFails(argv[1], argv[2]);
  std::cerr << status << '\n';
  return status.raw_code();
}
