// Sets of applied updates as bytes of a record: the `windows` of docs/journal_format.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "server/journal/record_bytes.h"
#include "server/migration/unit_windows.h"

namespace embla {

inline void PutWindows(const UnitWindows& windows, RecordWriter& out) {
  out.Put(static_cast<std::uint32_t>(windows.sessions().size()));
  for (const SessionWindow& window : windows.sessions()) {
    out.Put(ToInt(window.session));
    out.Put(ToInt(window.floor));
    for (const std::uint64_t word : window.words) out.Put(word);
  }
}

// Empty after Fail, if they are none.
inline UnitWindows GetWindows(RecordReader& in) {
  constexpr std::size_t kWindowBytes = 16 + SessionWindow::kSize / 8;
  std::vector<SessionWindow> sessions(in.GetCount(kWindowBytes));
  for (SessionWindow& window : sessions) {
    window.session = SessionId{in.Get<std::uint64_t>()};
    window.floor = UpdateSeq{in.Get<std::uint64_t>()};
    for (std::uint64_t& word : window.words) word = in.Get<std::uint64_t>();
  }
  absl::StatusOr<UnitWindows> windows = UnitWindows::FromSessions(std::move(sessions));
  if (windows.ok()) return *std::move(windows);
  in.Fail();
  return {};
}

}  // namespace embla
