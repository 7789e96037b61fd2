#include "server/zch/bucket_block.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/base/crc32c.h"
#include "core/base/status_macros.h"
#include "core/plan/id_place.h"

namespace embla::zch {
namespace {

constexpr std::uint32_t kMagic = 0x425a4d45;  // "EMZB"
constexpr std::uint16_t kVersion = 1;

struct Header {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint8_t policy;
  std::uint8_t reserved_lanes;
  std::uint32_t buckets;
  std::uint32_t bucket;
  std::uint32_t groups;
  std::uint32_t residents;
  std::uint32_t candidates;
  std::uint32_t evictions;
  std::uint32_t reserved;
  std::uint32_t crc32c;
};
static_assert(sizeof(Header) == kBucketBlockHeaderBytes);

struct CandidateRecord {
  std::int64_t id;
  std::uint32_t count;
  std::uint32_t reserved;
};
static_assert(sizeof(CandidateRecord) == 16);

struct EvictionRecord {
  std::int64_t id;
  std::uint64_t last_step;
  std::uint64_t step;
  std::uint32_t slot_in_bucket;
  std::uint32_t reason;
};
static_assert(sizeof(EvictionRecord) == 32);

constexpr std::size_t kChecksumAt = offsetof(Header, crc32c);

std::uint32_t Checksum(std::span<const std::byte> block) {
  return Crc32c(block.subspan(kBucketBlockHeaderBytes), Crc32c(block.first(kChecksumAt)));
}

template <typename T>
T Read(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

template <typename T>
std::byte* Write(const T& value, std::byte* out) {
  std::memcpy(out, &value, sizeof(T));
  return out + sizeof(T);
}

std::size_t BlockBytes(const Header& header) {
  return kBucketBlockHeaderBytes + std::size_t{header.groups} * sizeof(SlotGroup) +
         std::size_t{header.candidates} * sizeof(CandidateRecord) +
         std::size_t{header.evictions} * sizeof(EvictionRecord);
}

template <typename... Parts>
absl::Status Damaged(const Header& header, const Parts&... parts) {
  return absl::DataLossError(absl::StrCat("block of bucket ", header.bucket, ": ", parts...));
}

// Also bounds every size, so that nothing below can overflow or read outside.
absl::Status CheckHeader(const SlotMapOptions& options, const Header& header, std::size_t bytes) {
  if (header.magic != kMagic) return absl::InvalidArgumentError("not a bucket block");
  if (header.version != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("bucket block of version ", header.version, ", known is ", kVersion));
  }
  if (header.policy != static_cast<std::uint8_t>(options.policy) ||
      header.reserved_lanes != options.reserved_lanes || header.buckets != options.buckets ||
      header.groups != options.groups_per_bucket() || header.bucket >= options.buckets) {
    return absl::InvalidArgumentError(absl::StrCat(
        "block of bucket ", header.bucket, " of ", header.buckets, " with ", header.groups,
        " groups, policy ", header.policy, " and ", header.reserved_lanes,
        " reserved lanes; the table has ", options.buckets, " buckets, ",
        options.groups_per_bucket(), " groups, policy ", static_cast<int>(options.policy), ", ",
        options.reserved_lanes, " reserved lanes"));
  }
  const bool counts = options.admission == Admission::kCount;
  const std::uint32_t candidates_max = counts ? options.candidates_per_bucket() : 0;
  if (header.candidates > candidates_max || header.evictions > options.eviction_history) {
    return absl::InvalidArgumentError(absl::StrCat(
        "bucket block with ", header.candidates, " waiting ids and ", header.evictions,
        " evictions; the table allows ", candidates_max, " and ", options.eviction_history));
  }
  if (bytes != BlockBytes(header) || header.reserved != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("bucket block of ", bytes, " bytes, expected ", BlockBytes(header)));
  }
  return absl::OkStatus();
}

// Reads one block whose header has been checked.
class Decoder {
 public:
  Decoder(const SlotMapOptions& options, const Header& header, std::span<const std::byte> bytes)
      : options_(options), header_(header), bytes_(bytes) {}

  absl::StatusOr<BucketBlock> Decode() {
    BucketBlock block;
    block.bucket = header_.bucket;
    block.groups =
        bytes_.subspan(kBucketBlockHeaderBytes, std::size_t{header_.groups} * sizeof(SlotGroup));
    block.state = BucketState(options_.eviction_history);
    EMBLA_RETURN_IF_ERROR(CheckGroups(block.state));
    EMBLA_RETURN_IF_ERROR(ReadCandidates(block.state));
    EMBLA_RETURN_IF_ERROR(ReadEvictions(block.state));
    return block;
  }

 private:
  SlotGroup GroupAt(std::uint32_t g) const {
    return Read<SlotGroup>(bytes_, kBucketBlockHeaderBytes + std::size_t{g} * sizeof(SlotGroup));
  }
  Place PlaceOfId(std::int64_t id) const {
    return PlaceOf(RowId{id}, options_.buckets, header_.groups);
  }

  absl::Status CheckGroups(BucketState& state) const {
    for (std::uint32_t g = 0; g < header_.groups; ++g) {
      const SlotGroup group = GroupAt(g);
      for (int lane = 0; lane < static_cast<int>(kLanes); ++lane) {
        if (!IsLaneRight(group, g, lane)) {
          return Damaged(header_, "group ", g, " lane ", lane, " with id ", group.ids[lane],
                         " cannot be");
        }
        state.residents += group.tags[lane] != 0;
      }
    }
    if (state.residents == header_.residents) return absl::OkStatus();
    return Damaged(header_, state.residents, " ids, announced ", header_.residents);
  }

  bool IsLaneRight(const SlotGroup& group, std::uint32_t g, int lane) const {
    const std::uint8_t tag = group.tags[lane];
    if (tag == 0) {
      return group.ids[lane] == 0 && group.last_steps[lane] == 0 && group.words[lane] == 0;
    }
    if (lane >= static_cast<int>(options_.lanes_for_ids())) return false;
    if (options_.policy == Policy::kLru && group.words[lane] != 0) return false;
    const Place place = PlaceOfId(group.ids[lane]);
    if (place.bucket != header_.bucket || place.group != g || place.tag != tag) return false;
    return LaneOf(group, LanesWithTag(group, tag), group.ids[lane]) == lane;  // The only one.
  }

  absl::Status ReadCandidates(BucketState& state) const {
    std::size_t at = kBucketBlockHeaderBytes + std::size_t{header_.groups} * sizeof(SlotGroup);
    std::int64_t last_id = 0;
    for (std::uint32_t i = 0; i < header_.candidates; ++i, at += sizeof(CandidateRecord)) {
      const auto record = Read<CandidateRecord>(bytes_, at);
      const Place place = PlaceOfId(record.id);
      const bool right = place.bucket == header_.bucket && record.count != 0 &&
                         record.reserved == 0 && (i == 0 || record.id > last_id);
      if (!right) return Damaged(header_, "waiting id ", record.id, " cannot be");
      const SlotGroup group = GroupAt(place.group);
      if (LaneOf(group, LanesWithTag(group, place.tag), record.id) >= 0) {
        return Damaged(header_, "waiting id ", record.id, " has a slot");
      }
      state.candidates.Add(RowId{record.id}, record.count, header_.candidates);
      last_id = record.id;
    }
    return absl::OkStatus();
  }

  absl::Status ReadEvictions(BucketState& state) const {
    std::size_t at = bytes_.size() - std::size_t{header_.evictions} * sizeof(EvictionRecord);
    for (; at < bytes_.size(); at += sizeof(EvictionRecord)) {
      const auto record = Read<EvictionRecord>(bytes_, at);
      const Place place = PlaceOfId(record.id);
      const bool right = place.bucket == header_.bucket &&
                         record.slot_in_bucket / kLanes == place.group && record.reason >= 1 &&
                         record.reason < kEvictionReasons;
      if (!right) return Damaged(header_, "evicted id ", record.id, " cannot be");
      const std::int64_t slot =
          std::int64_t{header_.bucket} * options_.slots_per_bucket() + record.slot_in_bucket;
      state.history.Add({RowId{record.id}, ZchSlot{slot},
                         static_cast<EvictionReason>(record.reason), record.last_step,
                         record.step});
    }
    return absl::OkStatus();
  }

  const SlotMapOptions& options_;
  const Header& header_;
  std::span<const std::byte> bytes_;
};

EvictionRecord RecordOf(const Eviction& eviction, std::uint32_t slots_per_bucket) {
  return {ToInt(eviction.id), eviction.last_step, eviction.step,
          static_cast<std::uint32_t>(ToInt(eviction.slot) % slots_per_bucket),
          static_cast<std::uint32_t>(eviction.reason)};
}

}  // namespace

Buffer EncodeBucket(const SlotMapOptions& options, std::uint32_t bucket,
                    std::span<const SlotGroup> groups, const BucketState& state) {
  const std::vector<Candidate> candidates = state.candidates.Sorted();
  const std::vector<Eviction> evictions = state.history.InOrder();
  Header header{};
  header.magic = kMagic;
  header.version = kVersion;
  header.policy = static_cast<std::uint8_t>(options.policy);
  header.reserved_lanes = static_cast<std::uint8_t>(options.reserved_lanes);
  header.buckets = options.buckets;
  header.bucket = bucket;
  header.groups = static_cast<std::uint32_t>(groups.size());
  header.residents = static_cast<std::uint32_t>(state.residents);
  header.candidates = static_cast<std::uint32_t>(candidates.size());
  header.evictions = static_cast<std::uint32_t>(evictions.size());

  Buffer block = Buffer::Allocate(BlockBytes(header));
  std::byte* out = Write(header, block.data());
  std::memcpy(out, groups.data(), groups.size_bytes());
  out += groups.size_bytes();
  for (const Candidate& candidate : candidates) {
    out = Write(CandidateRecord{candidate.id, candidate.count, 0}, out);
  }
  for (const Eviction& eviction : evictions) {
    out = Write(RecordOf(eviction, options.slots_per_bucket()), out);
  }
  Write(Checksum(block.bytes()), block.data() + kChecksumAt);
  return block;
}

absl::StatusOr<BucketBlock> DecodeBucket(const SlotMapOptions& options,
                                         std::span<const std::byte> bytes) {
  if (bytes.size() < kBucketBlockHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat("bucket block of ", bytes.size(), " bytes"));
  }
  const auto header = Read<Header>(bytes, 0);
  EMBLA_RETURN_IF_ERROR(CheckHeader(options, header, bytes.size()));
  if (Checksum(bytes) != header.crc32c) return Damaged(header, "checksum does not match");
  return Decoder(options, header, bytes).Decode();
}

}  // namespace embla::zch
