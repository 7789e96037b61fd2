// libFuzzer entry over the segment decoder: clang builds only (target embla_log_fuzzer). The input
// is taken as a segment as it is, and once more with a healthy header in front of it.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/check.h"
#include "server/log/log_format.h"

namespace embla {
namespace {

void Read(const std::string& segment) {
  const LogVisitor ignore = [](const LogRecordView&) { return absl::OkStatus(); };
  const auto scan = ScanSegment(segment, "fuzz", true, ignore);
  if (!scan.ok()) {
    EMBLA_CHECK(absl::IsDataLoss(scan.status()));
    return;
  }
  EMBLA_CHECK(scan->valid_bytes <= segment.size());
  // The valid prefix is a segment of its own, with no torn tail.
  const auto again = ScanSegment(segment.substr(0, scan->valid_bytes), "fuzz", false, ignore);
  EMBLA_CHECK(again.ok() && again->records == scan->records);
}

}  // namespace
}  // namespace embla

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using embla::LogLsn;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  embla::Read(std::string(input));
  const embla::SegmentHeader header{.log_id = 1, .number = 1, .first_lsn = LogLsn{1}};
  std::string segment = embla::EncodeSegmentHeader(header);
  embla::OutgoingRecord record({}, input.substr(0, size / 2));
  record.Seal({embla::SegmentSeed(header), segment.size(), LogLsn{1}, LogLsn{1}});
  std::vector<std::string_view> pieces;
  record.AddPieces(&pieces);
  std::string with_record = segment;
  for (const std::string_view piece : pieces) with_record += piece;
  embla::Read(with_record + std::string(input));
  embla::Read(segment + std::string(input));
  return 0;
}
