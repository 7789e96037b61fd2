// libFuzzer entry over the decoders of a journal's and a snapshot's records: clang builds only
// (target embla_record_fuzzer). The first two bytes are the record's kind. What is read and written
// again must be read alike.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/status.h"
#include "core/base/buffer.h"
#include "core/base/check.h"
#include "server/journal/decision_record.h"
#include "server/journal/image_records.h"
#include "server/journal/record_text.h"
#include "server/journal/unit_records.h"

namespace embla {
namespace {

void ExpectRefusal(const absl::Status& status) {
  EMBLA_CHECK(status.ok() || absl::IsDataLoss(status) || absl::IsFailedPrecondition(status));
}

Buffer Aligned(std::string_view content) {
  Buffer bytes = Buffer::Allocate(content.size());
  if (!content.empty()) std::memcpy(bytes.data(), content.data(), content.size());
  return bytes;
}

void ReadAsRecord(JournalKind kind, std::string_view content) {
  RecordTexts texts;
  ExpectRefusal(
      texts.Describe({.kind = static_cast<std::uint16_t>(kind), .payload = content}).status());
  if (!IsDecision(kind)) return;
  const auto decision = DecodeDecision(kind, Aligned(content), Plan());
  ExpectRefusal(decision.status());
  // Plans are written in another way than they are read.
  if (!decision.ok() || std::holds_alternative<InstalledPlan>(*decision)) return;
  const DecisionRecord again = EncodeDecision(*decision);
  EMBLA_CHECK(again.kind == kind && again.payload.content() == content);
}

void ReadAsImage(std::string_view content) {
  const Buffer bytes = Aligned(content);
  ExpectRefusal(DecodeImage(bytes.bytes()).status());
  ExpectRefusal(DecodeTableImage(bytes.bytes()).status());
  ExpectRefusal(DecodeUnitAtRest(bytes.bytes()).status());
  ExpectRefusal(DecodeUnitMoving(bytes.bytes()).status());
  ExpectRefusal(DecodePlaces(bytes.bytes()).status());
  ExpectRefusal(DecodeRows(bytes.bytes()).status());
  ExpectRefusal(DecodeImageEnd(bytes.bytes()).status());
}

}  // namespace
}  // namespace embla

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (size < sizeof(std::uint16_t)) return 0;
  std::uint16_t kind = 0;
  std::memcpy(&kind, data, sizeof(kind));
  embla::ReadAsRecord(embla::JournalKind{kind}, input.substr(sizeof(kind)));
  embla::ReadAsImage(input.substr(sizeof(kind)));
  return 0;
}
