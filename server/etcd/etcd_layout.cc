#include "server/etcd/etcd_layout.h"

#include <charconv>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/ids.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla {
namespace {

constexpr std::string_view kHeadWord = "embla-state 1 ";

// A revision has at most 20 digits, a count of pieces 10, and there are a space and a line's end.
constexpr std::size_t kEntryLineBytesMax = 32;

std::size_t PiecesOf(std::size_t value_bytes) {
  return value_bytes <= kValuePieceBytes ? 0 : (value_bytes - 1) / kValuePieceBytes;
}

// Takes a number and the character after it off the front of `text`; false: there is none.
bool TakeNumber(std::string_view& text, char end, std::uint64_t& number) {
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || rest == text.data() + text.size() || *rest != end) return false;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()) + 1);
  return true;
}

absl::Status Unreadable(std::string_view key, std::string_view what) {
  return absl::DataLossError(absl::StrCat("etcd key ", ToAbsl(key), " ", ToAbsl(what)));
}

}  // namespace

std::string EncodeEtcdHead(const EtcdHead& head) {
  return absl::StrCat(ToAbsl(kHeadWord), ToInt(head.revision), " ", head.redo, " ", head.writer,
                      "\n");
}

absl::StatusOr<EtcdHead> DecodeEtcdHead(std::string_view text) {
  EtcdHead head;
  std::uint64_t revision = 0;
  std::uint64_t redo = 0;
  std::string_view rest = text;
  if (!rest.starts_with(kHeadWord)) return absl::DataLossError("is no head of a state store");
  rest.remove_prefix(kHeadWord.size());
  if (!TakeNumber(rest, ' ', revision) || !TakeNumber(rest, ' ', redo) || redo > UINT32_MAX ||
      rest.empty() || rest.back() != '\n') {
    return absl::DataLossError("is no head of a state store");
  }
  head.revision = Revision{revision};
  head.redo = static_cast<std::uint32_t>(redo);
  head.writer = rest.substr(0, rest.size() - 1);
  return head;
}

std::string EtcdLayout::RedoPart(Revision revision, std::uint32_t part) const {
  return absl::StrCat(Redo(), absl::StrFormat("%020u/%06u", ToInt(revision), part));
}

std::string EtcdLayout::PieceKey(std::size_t piece, std::string_view key) const {
  return absl::StrCat(More(), absl::StrFormat("%04u/", piece), ToAbsl(key));
}

void EtcdLayout::AddWrites(const std::string& key, const std::optional<std::string>& value,
                           std::size_t bytes_before, Revision revision, EtcdWrites& writes) const {
  const std::size_t pieces = value ? PiecesOf(value->size()) : 0;
  if (value) {
    writes[Data() + key] =
        absl::StrCat(ToInt(revision), " ", pieces, "\n",
                     ToAbsl(std::string_view(*value).substr(0, kValuePieceBytes)));
    for (std::size_t i = 1; i <= pieces; ++i) {
      writes[PieceKey(i, key)] = value->substr(i * kValuePieceBytes, kValuePieceBytes);
    }
  } else {
    writes[Data() + key] = std::nullopt;
  }
  for (std::size_t i = pieces + 1; i <= PiecesOf(bytes_before); ++i) {
    writes[PieceKey(i, key)] = std::nullopt;
  }
}

absl::StatusOr<std::vector<StateEntry>> EtcdLayout::Read(const EtcdListing& data,
                                                         const EtcdListing& more) const {
  std::map<std::string_view, std::string_view> pieces;
  for (const EtcdEntry& piece : more.entries) pieces[piece.key] = piece.value;
  std::vector<StateEntry> entries;
  entries.reserve(data.entries.size());
  for (const EtcdEntry& raw : data.entries) {
    std::string_view rest = raw.value;
    std::uint64_t revision = 0;
    std::uint64_t count = 0;
    if (!TakeNumber(rest, ' ', revision) || !TakeNumber(rest, '\n', count)) {
      return Unreadable(raw.key, "does not begin with a revision and a number of pieces");
    }
    StateEntry entry{raw.key.substr(Data().size()), std::string(rest), Revision{revision}};
    for (std::uint64_t i = 1; i <= count; ++i) {
      const auto piece = pieces.find(PieceKey(i, entry.key));
      if (piece == pieces.end()) return Unreadable(PieceKey(i, entry.key), "is missing");
      entry.value += piece->second;
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

EtcdWrites TakeOneTxn(EtcdWrites& writes) {
  EtcdWrites taken;
  std::size_t bytes = 0;
  while (!writes.empty() && taken.size() < kEtcdTxnOpsMax) {
    const auto& [key, value] = *writes.begin();
    bytes += key.size() + (value ? value->size() : 0) + kEntryLineBytesMax;
    if (bytes > kEtcdTxnBytesMax && !taken.empty()) break;
    taken.insert(writes.extract(writes.begin()));
  }
  return taken;
}

// Each write: bytes of the key, bytes of the value or -1, then both.
std::string EncodeRedo(const EtcdWrites& writes) {
  std::string text;
  for (const auto& [key, value] : writes) {
    const std::string count = value ? absl::StrCat(value->size()) : "d";
    absl::StrAppend(&text, key.size(), " ", count, "\n", key, value ? *value : "");
  }
  return text;
}

absl::StatusOr<EtcdWrites> DecodeRedo(std::string_view text) {
  EtcdWrites writes;
  while (!text.empty()) {
    std::uint64_t key_bytes = 0;
    std::uint64_t value_bytes = 0;
    bool is_whole = TakeNumber(text, ' ', key_bytes);
    const bool is_delete = text.starts_with("d\n");
    if (is_delete) text.remove_prefix(2);
    is_whole = is_whole && (is_delete || TakeNumber(text, '\n', value_bytes)) &&
               key_bytes <= text.size() && value_bytes <= text.size() - key_bytes;
    if (!is_whole) return absl::DataLossError("a part of a large commit cannot be read");
    std::optional<std::string> value;
    if (!is_delete) value = text.substr(key_bytes, value_bytes);
    writes[std::string(text.substr(0, key_bytes))] = std::move(value);
    text.remove_prefix(key_bytes + value_bytes);
  }
  return writes;
}

}  // namespace embla
