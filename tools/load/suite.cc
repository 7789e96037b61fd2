#include "tools/load/suite.h"

namespace embla::load {
namespace {

Case LargeCase(const char* name, double update_share, client::WireFormat wire, int in_flight = 1) {
  Case load;
  load.name = name;
  load.update_share = update_share;
  load.wire = wire;
  load.in_flight = in_flight;
  load.requests = 2000;
  return load;
}

Case SmallCase(const char* name, int in_flight) {
  Case load;
  load.name = name;
  load.ids = 64;
  load.in_flight = in_flight;
  load.requests = 20000;
  return load;
}

}  // namespace

std::vector<Case> ServiceSuite() {
  std::vector<Case> cases = {
      LargeCase("lookup/ids:4096/fp32", 0.0, client::WireFormat::kFp32),
      LargeCase("lookup/ids:4096/bf16", 0.0, client::WireFormat::kBf16),
      LargeCase("update/ids:4096/fp32", 1.0, client::WireFormat::kFp32),
      LargeCase("update/ids:4096/bf16", 1.0, client::WireFormat::kBf16),
      LargeCase("lookup/ids:4096/in_flight:4", 0.0, client::WireFormat::kFp32, 4),
      LargeCase("update/ids:4096/in_flight:4", 1.0, client::WireFormat::kFp32, 4),
      SmallCase("lookup/ids:64/in_flight:1", 1),
      SmallCase("lookup/ids:64/in_flight:16", 16),
  };
  for (const std::size_t i : {1, 4}) cases[i].compared_with = cases[0].name;
  for (const std::size_t i : {3, 5}) cases[i].compared_with = cases[2].name;
  cases[7].compared_with = cases[6].name;
  return cases;
}

}  // namespace embla::load
