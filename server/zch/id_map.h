// The map of a ZCH table's ids to slots as a table sees it, wherever its memory is: on the host
// (host_id_map.h), or on a GPU (device/device_id_map.h). Both give the same answers, and blocks of
// buckets of the same bytes. The verbs are described in slot_map.h.
//
// Errors beside those that a verb states: those of the memory's device (server/gpu/device.h). A
// verb that changes slots and fails for them stops its device, since nobody knows then which ones
// it changed. A map on the host has none of them.
//
// Thread safety: const methods that a map on the host runs may run at the same time; a map on a GPU
// belongs to the thread of its device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/base/ids.h"
#include "server/zch/batch.h"
#include "server/zch/inspection.h"
#include "server/zch/slot_map_options.h"
#include "server/zch/statistics.h"

namespace embla::zch {

class IdMap {
 public:
  virtual ~IdMap() = default;

  // Neither touches the device: both may be called before its thread runs.
  // InvalidArgument: no such bucket; AlreadyExists.
  virtual absl::Status AddBucket(std::uint32_t bucket) = 0;
  // InvalidArgument, NotFound.
  virtual absl::Status RemoveBucket(std::uint32_t bucket) = 0;
  virtual bool Holds(std::uint32_t bucket) const = 0;

  // Requires: all spans of one size.
  virtual absl::Status Find(std::span<const RowId> ids, std::span<ZchSlot> slots,
                            std::span<Outcome> outcomes) const = 0;
  // The slots that the ids own, kNoSlot where they own none; no statistics count it.
  virtual absl::Status Locate(std::span<const RowId> ids, std::span<ZchSlot> slots) const = 0;
  // Makes room for an Apply of so many ids, or for a sweep, so that neither fails for want of
  // memory after it was decided and written down. ResourceExhausted: nothing has changed.
  virtual absl::Status ReserveApply(std::size_t) { return absl::OkStatus(); }
  virtual absl::Status ReserveSweep() { return absl::OkStatus(); }
  // `loop` is what the host's threads do of it.
  virtual absl::Status Apply(const Batch& batch, Answer& answer, ParallelFor loop) = 0;

  virtual absl::Status Remove(std::span<const RowId> ids, std::uint64_t step,
                              std::vector<Eviction>& evictions) = 0;
  virtual absl::Status EvictExpired(const Clock& clock, std::vector<Eviction>& evictions,
                                    BucketRange range) = 0;
  virtual absl::Status EvictIdle(std::uint64_t before_step, std::uint64_t step,
                                 std::vector<Eviction>& evictions, BucketRange range) = 0;
  virtual absl::Status HalveCounts() = 0;

  virtual absl::StatusOr<Buffer> ExportBucket(std::uint32_t bucket) const = 0;
  // Errors change nothing, also those of a device.
  virtual absl::Status ImportBucket(std::span<const std::byte> block) = 0;

  virtual absl::StatusOr<Explanation> Explain(RowId id) const = 0;
  // Sets ids[i] to the id of slot `begin` + i; none: the slot is free, or its bucket is not here.
  // Requires: slots of the table; of a map on a GPU, of its slice.
  virtual absl::Status IdsAt(ZchSlot begin, std::span<std::optional<RowId>> ids) const = 0;
  virtual absl::StatusOr<Survey> TakeSurvey(std::uint64_t step, BucketRange range) const = 0;

  virtual Statistics statistics() const = 0;
  virtual std::uint64_t residents(std::uint32_t bucket) const = 0;
  virtual const SlotMapOptions& options() const = 0;
  // Bytes of the map's own grant; a map on the host is in the grant of the slice's rows.
  virtual std::size_t memory_bytes() const = 0;
};

}  // namespace embla::zch
