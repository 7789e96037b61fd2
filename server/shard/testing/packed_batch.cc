#include "server/shard/testing/packed_batch.h"

#include <cstring>

#include "core/base/check.h"
#include "kernels/convert.h"
#include "server/table/element.h"

namespace embla::testing {
namespace {

// Copies arrays into one buffer, one after the other.
class Packer {
 public:
  explicit Packer(std::size_t bytes) : memory_(Buffer::Allocate(bytes)) {}

  template <typename T>
  std::span<const T> Add(std::span<const T> values) {
    at_ = (at_ + alignof(T) - 1) / alignof(T) * alignof(T);
    EMBLA_CHECK(at_ + values.size_bytes() <= memory_.size());
    if (!values.empty()) std::memcpy(memory_.data() + at_, values.data(), values.size_bytes());
    const auto* const placed = reinterpret_cast<const T*>(memory_.data() + at_);
    at_ += values.size_bytes();
    return {placed, values.size()};
  }
  void Skip(std::size_t bytes) { at_ += bytes; }
  Buffer Take() { return std::move(memory_); }

 private:
  Buffer memory_;
  std::size_t at_ = 0;
};

template <typename T>
std::span<const T> View(const std::vector<T>& values) {
  return values;
}

}  // namespace

LookupBatch Pack(const LookupBatch& header, const std::vector<LookupPartData>& parts) {
  std::size_t bytes = 64;
  for (const LookupPartData& part : parts) {
    bytes += 64 + 8 * part.ids.size() + 4 * part.lengths.size() + 4 * part.weights.size();
  }
  Packer packer(bytes);
  LookupBatch packed = header;
  packed.parts.clear();
  for (const LookupPartData& data : parts) {
    LookupPart part = data.part;
    part.ids = packer.Add(View(data.ids));
    part.lengths = packer.Add(View(data.lengths));
    part.weights = packer.Add(View(data.weights));
    packed.parts.push_back(part);
  }
  packed.memory = packer.Take();
  return packed;
}

UpdateBatch Pack(const UpdateBatch& header, const std::vector<UpdatePartData>& parts,
                 std::size_t gap_bytes) {
  std::size_t bytes = 64;
  for (const UpdatePartData& part : parts) {
    bytes += 128 + gap_bytes + 8 * part.ids.size() + 4 * part.lengths.size() +
             4 * part.weights.size() + part.gradients.size() + 4 * part.row_sum_squares.size();
  }
  Packer packer(bytes);
  UpdateBatch packed = header;
  packed.parts.clear();
  for (const UpdatePartData& data : parts) {
    UpdatePart part = data.part;
    part.ids = packer.Add(View(data.ids));
    part.lengths = packer.Add(View(data.lengths));
    part.weights = packer.Add(View(data.weights));
    part.row_sum_squares = packer.Add(View(data.row_sum_squares));
    packed.parts.push_back(part);
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    packed.parts[i].gradients = packer.Add(View(parts[i].gradients));
    packer.Skip(gap_bytes);
  }
  packed.memory = packer.Take();
  return packed;
}

UpdateBatch Copy(const UpdateBatch& batch) {
  std::vector<UpdatePartData> parts;
  for (const UpdatePart& part : batch.parts) {
    parts.push_back({part,
                     {part.ids.begin(), part.ids.end()},
                     {part.lengths.begin(), part.lengths.end()},
                     {part.weights.begin(), part.weights.end()},
                     {part.gradients.begin(), part.gradients.end()},
                     {part.row_sum_squares.begin(), part.row_sum_squares.end()}});
  }
  return Pack(batch, parts);
}

std::vector<std::byte> EncodeRows(const std::vector<float>& values, std::uint32_t columns,
                                  DType dtype) {
  const std::size_t rows = values.size() / columns;
  const std::size_t row_bytes = RowBytes(dtype, columns);
  std::vector<std::byte> encoded(rows * row_bytes);
  kernels::Convert({values.data(), columns * sizeof(float), kernels::Element::kFloat32},
                   {encoded.data(), row_bytes, ElementOf(dtype)}, rows, columns);
  return encoded;
}

}  // namespace embla::testing
