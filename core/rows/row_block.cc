#include "core/rows/row_block.h"

#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/crc32c.h"

namespace embla {
namespace {

static_assert(std::endian::native == std::endian::little, "row blocks are written as they are");

// The header as it stands in memory and on the wire.
struct Header {
  char magic[4];
  std::uint16_t version;
  std::uint8_t dtype;
  std::uint8_t reserved;
  std::uint32_t table;
  std::uint32_t column_begin;
  std::uint32_t column_end;
  std::uint32_t state_floats;
  std::uint32_t row_count;
  std::uint32_t crc32c;  // Checksum of the header up to here, then of everything after the header.
};
static_assert(sizeof(Header) == kRowBlockHeaderBytes);

constexpr char kMagic[4] = {'E', 'M', 'R', 'B'};
constexpr std::uint16_t kVersion = 1;

// Offsets of a block's parts. 64-bit sums cannot overflow within the header's limits.
struct Layout {
  std::size_t weights;
  std::size_t weights_end;
  std::size_t state;  // weights_end rounded up to 8.
  std::size_t end;
};

Layout LayoutOf(const RowBlockShape& shape, std::uint32_t row_count) {
  Layout layout{};
  layout.weights = kRowBlockHeaderBytes + std::size_t{8} * row_count;
  layout.weights_end = layout.weights + RowBytes(shape.dtype, shape.columns()) * row_count;
  layout.state = (layout.weights_end + 7) / 8 * 8;
  layout.end = layout.state + std::size_t{4} * shape.state_floats * row_count;
  return layout;
}

absl::Status CheckShape(const RowBlockShape& shape, std::uint32_t row_count) {
  const DType dtype = shape.dtype;
  if (dtype != DType::kFloat32 && dtype != DType::kFloat16 && dtype != DType::kBFloat16) {
    return absl::InvalidArgumentError(
        absl::StrCat("row block: weights of dtype ", static_cast<int>(dtype)));
  }
  if (shape.column_begin >= shape.column_end || shape.column_end > kDimMax) {
    return absl::InvalidArgumentError(absl::StrCat("row block: columns [", shape.column_begin, ", ",
                                                   shape.column_end, ") of at most ", kDimMax));
  }
  if (shape.state_floats > kRowBlockStateFloatsMax || row_count > kRowBlockRowsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("row block: ", row_count, " rows with ", shape.state_floats,
                     " floats of state each; the limits are ", kRowBlockRowsMax, " and ",
                     kRowBlockStateFloatsMax));
  }
  return absl::OkStatus();
}

std::uint32_t Checksum(std::span<const std::byte> bytes) {
  const std::uint32_t header = Crc32c(bytes.first(offsetof(Header, crc32c)));
  return Crc32c(bytes.subspan(kRowBlockHeaderBytes), header);
}

}  // namespace

std::size_t RowBlockShape::RowBytesTotal() const {
  return sizeof(RowId) + RowBytes(dtype, columns()) + sizeof(float) * state_floats;
}

RowBlockBuilder::RowBlockBuilder(const RowBlockShape& shape, std::uint32_t row_count,
                                 BufferPool* pool)
    : shape_(shape), row_count_(row_count) {
  EMBLA_CHECK(CheckShape(shape, row_count).ok());
  const std::size_t size = LayoutOf(shape, row_count).end;
  buffer_ = pool != nullptr ? pool->Take(size) : Buffer::Allocate(size);
}

std::span<RowId> RowBlockBuilder::rows() {
  return {reinterpret_cast<RowId*>(buffer_.data() + kRowBlockHeaderBytes), row_count_};
}

std::span<std::byte> RowBlockBuilder::weights() {
  const Layout layout = LayoutOf(shape_, row_count_);
  return buffer_.bytes().subspan(layout.weights, layout.weights_end - layout.weights);
}

std::span<float> RowBlockBuilder::state() {
  const Layout layout = LayoutOf(shape_, row_count_);
  return {reinterpret_cast<float*>(buffer_.data() + layout.state),
          std::size_t{shape_.state_floats} * row_count_};
}

Buffer RowBlockBuilder::Finish() {
  const Layout layout = LayoutOf(shape_, row_count_);
  std::memset(buffer_.data() + layout.weights_end, 0, layout.state - layout.weights_end);
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kVersion;
  header.dtype = static_cast<std::uint8_t>(shape_.dtype);
  header.table = ToInt(shape_.table);
  header.column_begin = shape_.column_begin;
  header.column_end = shape_.column_end;
  header.state_floats = shape_.state_floats;
  header.row_count = row_count_;
  std::memcpy(buffer_.data(), &header, sizeof(header));
  header.crc32c = Checksum(buffer_.bytes());
  std::memcpy(buffer_.data(), &header, sizeof(header));
  return std::move(buffer_);
}

absl::StatusOr<RowBlock> DecodeRowBlock(std::span<const std::byte> bytes) {
  EMBLA_CHECK(reinterpret_cast<std::uintptr_t>(bytes.data()) % 8 == 0);
  Header header{};
  if (bytes.size() < sizeof(header)) {
    return absl::InvalidArgumentError(
        absl::StrCat("row block: ", bytes.size(), " bytes are less than its header"));
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) {
    return absl::InvalidArgumentError("row block: the first bytes are not \"EMRB\"");
  }
  if (header.version != kVersion || header.reserved != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("row block: version ", header.version, ", this program reads ", kVersion));
  }
  const RowBlockShape shape{TableId{header.table}, header.column_begin, header.column_end,
                            static_cast<DType>(header.dtype), header.state_floats};
  if (absl::Status status = CheckShape(shape, header.row_count); !status.ok()) return status;
  const Layout layout = LayoutOf(shape, header.row_count);
  if (bytes.size() != layout.end) {
    return absl::InvalidArgumentError(
        absl::StrCat("row block: ", bytes.size(), " bytes, its header asks for ", layout.end));
  }
  if (Checksum(bytes) != header.crc32c) {
    return absl::DataLossError(absl::StrCat("row block of table ", header.table, ": checksum of ",
                                            bytes.size(), " bytes does not match"));
  }
  RowBlock block{shape, {}, {}, {}};
  block.rows = {reinterpret_cast<const RowId*>(bytes.data() + kRowBlockHeaderBytes),
                header.row_count};
  block.weights = bytes.subspan(layout.weights, layout.weights_end - layout.weights);
  block.state = {reinterpret_cast<const float*>(bytes.data() + layout.state),
                 std::size_t{shape.state_floats} * header.row_count};
  return block;
}

}  // namespace embla
