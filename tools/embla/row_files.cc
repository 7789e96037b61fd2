#include "tools/embla/row_files.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/file.h"
#include "core/base/status_macros.h"
#include "kernels/convert.h"
#include "nlohmann/json.hpp"

namespace embla::cli {
namespace {

using SortedJson = nlohmann::json;

static_assert(std::endian::native == std::endian::little);

constexpr std::uint64_t kHeaderBytesMax = std::uint64_t{64} << 20;
constexpr std::size_t kLengthBytes = 8;

// The format's own keys.
constexpr char kMetadata[] = "__metadata__";
constexpr char kShardingInfo[] = "DCP_SHARDING_INFO";

struct NewTensor {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> dims;
  std::vector<float> floats;
  std::vector<std::int64_t> numbers;

  std::string_view bytes() const {
    return numbers.empty()
               ? std::string_view(reinterpret_cast<const char*>(floats.data()), floats.size() * 4)
               : std::string_view(reinterpret_cast<const char*>(numbers.data()),
                                  numbers.size() * 8);
  }
};

// Floats [begin, begin + count) of each row of `state`.
std::vector<float> CutState(const RowFileShape& shape, const FileRows& rows, std::size_t begin,
                            std::size_t count) {
  std::vector<float> cut;
  cut.reserve(rows.ids.size() * count);
  for (std::size_t row = 0; row < rows.ids.size(); ++row) {
    const auto from = rows.state.begin() + row * shape.state_floats() + begin;
    cut.insert(cut.end(), from, from + count);
  }
  return cut;
}

std::vector<std::int64_t> StateDims(const RowFileShape::StateTensor& tensor, std::int64_t rows) {
  if (tensor.floats == 1) return {rows};
  return {rows, static_cast<std::int64_t>(tensor.floats)};
}

std::vector<NewTensor> TensorsOf(const RowFileShape& shape, const FileRows& rows) {
  const auto count = static_cast<std::int64_t>(rows.ids.size());
  std::vector<NewTensor> tensors = {{shape.name, "F32", {count, shape.dim}, rows.weights, {}}};
  if (shape.with_state) {
    for (const RowFileShape::StateTensor& state : shape.StateTensors()) {
      tensors.push_back({state.name,
                         "F32",
                         StateDims(state, count),
                         CutState(shape, rows, state.at, state.floats),
                         {}});
    }
  }
  if (shape.with_ids) tensors.push_back({shape.ids_name(), "I64", {count}, {}, rows.ids});
  return tensors;
}

std::string HeaderOf(const std::vector<NewTensor>& tensors, std::int64_t first_row) {
  SortedJson header, sharding;
  std::size_t offset = 0;
  for (const NewTensor& tensor : tensors) {
    const std::size_t end = offset + tensor.bytes().size();
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.dims}, {"data_offsets", {offset, end}}};
    std::vector<std::int64_t> saved(tensor.dims.size(), 0);
    saved.front() = first_row;
    sharding[tensor.name] = {{"saved_offsets", saved}};
    offset = end;
  }
  // The format wants strings here.
  header[kMetadata] = {{"format", "pt"}, {"DCP_VERSION", "1.0"}, {kShardingInfo, sharding.dump()}};
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

std::size_t BytesOf(const std::string& dtype) {
  if (dtype == "F32") return 4;
  if (dtype == "F16" || dtype == "BF16") return 2;
  if (dtype == "I64") return 8;
  return 0;
}

std::string DimsText(const std::vector<std::int64_t>& dims) {
  return absl::StrCat("[", absl::StrJoin(dims, ", "), "]");
}

}  // namespace

std::vector<RowFileShape::StateTensor> RowFileShape::StateTensors() const {
  std::vector<StateTensor> tensors;
  std::uint32_t momentum = 0;
  const auto next_name = [&] { return absl::StrCat(name, ".momentum", ++momentum); };
  std::size_t at = 0;
  for (; at < state.row_floats; ++at) {
    const bool counts_steps = at < state.row_counters;
    tensors.push_back({counts_steps ? name + ".steps" : next_name(), at, 1});
  }
  for (std::uint32_t a = 0; a < state.element_arrays; ++a, at += dim) {
    tensors.push_back({next_name(), at, dim});
  }
  return tensors;
}

absl::Status WriteRowFile(const std::string& path, const RowFileShape& shape,
                          const FileRows& rows) {
  const std::vector<NewTensor> tensors = TensorsOf(shape, rows);
  const std::string header = HeaderOf(tensors, rows.first_row);
  EMBLA_ASSIGN_OR_RETURN(AppendFile file, AppendFile::Open(path));
  const std::uint64_t length = header.size();
  EMBLA_RETURN_IF_ERROR(file.Append({reinterpret_cast<const char*>(&length), sizeof(length)}));
  EMBLA_RETURN_IF_ERROR(file.Append(header));
  for (const NewTensor& tensor : tensors) EMBLA_RETURN_IF_ERROR(file.Append(tensor.bytes()));
  return file.Sync();
}

RowFile::RowFile(RowFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      tensors_(std::move(other.tensors_)) {}

RowFile::~RowFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

absl::StatusOr<RowFile> RowFile::Open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return absl::NotFoundError(absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
  }
  RowFile file(path, descriptor);
  EMBLA_RETURN_IF_ERROR(file.ReadHeader());
  return file;
}

absl::Status RowFile::ReadBytes(std::uint64_t begin, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(begin));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot read ", path_, ": ", std::strerror(errno)));
    }
    if (got == 0) return absl::DataLossError(absl::StrCat(path_, " is cut off"));
    out = out.subspan(static_cast<std::size_t>(got));
    begin += static_cast<std::uint64_t>(got);
  }
  return absl::OkStatus();
}

absl::Status RowFile::ReadHeader() {
  const auto damaged = [this](const auto&... why) {
    return absl::DataLossError(absl::StrCat(path_, " is no whole safetensors file: ", why...));
  };
  const off_t end = ::lseek(descriptor_, 0, SEEK_END);
  const auto file_bytes = static_cast<std::uint64_t>(std::max<off_t>(end, 0));
  if (file_bytes < kLengthBytes) return damaged("it has ", file_bytes, " bytes");
  std::uint64_t length = 0;
  EMBLA_RETURN_IF_ERROR(ReadBytes(0, std::as_writable_bytes(std::span(&length, 1))));
  if (length > kHeaderBytesMax || length > file_bytes - kLengthBytes) {
    return damaged("its header of ", length, " bytes does not fit in ", file_bytes);
  }
  std::string text(length, '\0');
  EMBLA_RETURN_IF_ERROR(
      ReadBytes(kLengthBytes, std::as_writable_bytes(std::span(text.data(), text.size()))));
  const std::uint64_t data = kLengthBytes + length;
  try {
    const SortedJson header = SortedJson::parse(text);
    SortedJson sharding = SortedJson::object();
    if (header.contains(kMetadata) && header.at(kMetadata).contains(kShardingInfo)) {
      sharding = SortedJson::parse(header.at(kMetadata).at(kShardingInfo).get<std::string>());
    }
    for (const auto& [name, entry] : header.items()) {
      if (name == kMetadata) continue;
      Tensor tensor;
      tensor.dtype = entry.at("dtype").get<std::string>();
      tensor.dims = entry.at("shape").get<std::vector<std::int64_t>>();
      const auto offsets = entry.at("data_offsets").get<std::vector<std::uint64_t>>();
      if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > file_bytes - data) {
        return damaged("tensor ", name, " is not within the file");
      }
      tensor.begin = data + offsets[0];
      tensor.bytes = offsets[1] - offsets[0];
      if (sharding.contains(name)) {
        tensor.saved_offsets =
            sharding.at(name).at("saved_offsets").get<std::vector<std::int64_t>>();
      }
      tensors_.emplace(name, std::move(tensor));
    }
  } catch (const SortedJson::exception& error) {
    return damaged(error.what());
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> RowFile::Check(const RowFileShape& shape) const {
  const auto fail = [this](const std::string& name, const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ", tensor ", name, ": ", why...));
  };
  const auto check = [&](const std::string& name, std::vector<std::int64_t> dims,
                         bool numbers) -> absl::Status {
    const Tensor& tensor = tensors_.at(name);
    const std::size_t element = BytesOf(tensor.dtype);
    if (element == 0 || (tensor.dtype == "I64") != numbers) {
      return fail(name, "dtype ", tensor.dtype, ", expected ",
                  numbers ? "I64" : "F32, F16 or BF16");
    }
    if (tensor.dims != dims) {
      return fail(name, "shape ", DimsText(tensor.dims), ", expected ", DimsText(dims));
    }
    std::uint64_t elements = 1;
    for (const std::int64_t dim : dims) elements *= static_cast<std::uint64_t>(dim);
    if (tensor.bytes == elements * element) return absl::OkStatus();
    return fail(name, tensor.bytes, " bytes, but its shape has ", elements * element);
  };
  const std::vector<std::int64_t>& dims = tensors_.at(shape.name).dims;
  const std::int64_t count = dims.empty() ? -1 : dims.front();
  // More rows cannot be in a file, and their bytes can be counted.
  if (count < 0 || count > std::int64_t{1} << 40) {
    return fail(shape.name, "shape ", DimsText(dims), ", expected rows x ", shape.dim);
  }
  EMBLA_RETURN_IF_ERROR(check(shape.name, {count, shape.dim}, false));
  if (shape.with_ids) {
    if (!tensors_.contains(shape.ids_name())) {
      return fail(shape.ids_name(), "it is missing, and rows of a zch table belong to ids");
    }
    EMBLA_RETURN_IF_ERROR(check(shape.ids_name(), {count}, true));
  } else {
    const std::vector<std::int64_t>& at = tensors_.at(shape.name).saved_offsets;
    if (!at.empty() && (at.size() != 2 || at[0] < 0 || at[1] != 0)) {
      return fail(shape.name, "saved_offsets ", DimsText(at), ", but rows are whole");
    }
  }
  const std::vector<RowFileShape::StateTensor> wanted = shape.StateTensors();
  std::vector<std::string> missing;
  for (const RowFileShape::StateTensor& state : wanted) {
    if (tensors_.contains(state.name)) {
      EMBLA_RETURN_IF_ERROR(check(state.name, StateDims(state, count), false));
    } else {
      missing.push_back(state.name);
    }
  }
  if (missing.empty()) return !wanted.empty();
  if (missing.size() == wanted.size()) return false;
  return fail(missing.front(), "it is missing, but other tensors of the state are there");
}

absl::StatusOr<std::vector<float>> RowFile::ReadFloats(const Tensor& tensor, std::int64_t begin,
                                                       std::int64_t count) const {
  std::size_t per_row = 1;
  for (std::size_t d = 1; d < tensor.dims.size(); ++d) {
    per_row *= static_cast<std::size_t>(tensor.dims[d]);
  }
  const std::size_t element = BytesOf(tensor.dtype);
  const std::size_t values = static_cast<std::size_t>(count) * per_row;
  std::vector<std::byte> bytes(values * element);
  EMBLA_RETURN_IF_ERROR(
      ReadBytes(tensor.begin + static_cast<std::uint64_t>(begin) * per_row * element, bytes));
  std::vector<float> floats(values);
  const kernels::Element from = tensor.dtype == "F32"   ? kernels::Element::kFloat32
                                : tensor.dtype == "F16" ? kernels::Element::kFloat16
                                                        : kernels::Element::kBFloat16;
  kernels::Convert({bytes.data(), per_row * element, from},
                   {floats.data(), per_row * sizeof(float), kernels::Element::kFloat32},
                   static_cast<std::size_t>(count), static_cast<std::uint32_t>(per_row));
  return floats;
}

absl::StatusOr<FileRows> RowFile::Read(const RowFileShape& shape, std::int64_t begin,
                                       std::int64_t count) const {
  const Tensor& weights = tensors_.at(shape.name);
  FileRows rows;
  rows.first_row = (weights.saved_offsets.empty() ? 0 : weights.saved_offsets.front()) + begin;
  EMBLA_ASSIGN_OR_RETURN(rows.weights, ReadFloats(weights, begin, count));
  rows.ids.resize(static_cast<std::size_t>(count));
  if (shape.with_ids) {
    EMBLA_RETURN_IF_ERROR(
        ReadBytes(tensors_.at(shape.ids_name()).begin + static_cast<std::uint64_t>(begin) * 8,
                  std::as_writable_bytes(std::span(rows.ids))));
  } else {
    for (std::size_t i = 0; i < rows.ids.size(); ++i) {
      rows.ids[i] = rows.first_row + static_cast<std::int64_t>(i);
    }
  }
  if (!shape.with_state) return rows;
  rows.state.resize(rows.ids.size() * shape.state_floats());
  for (const RowFileShape::StateTensor& state : shape.StateTensors()) {
    EMBLA_ASSIGN_OR_RETURN(const std::vector<float> values,
                           ReadFloats(tensors_.at(state.name), begin, count));
    for (std::size_t row = 0; row < rows.ids.size(); ++row) {
      std::copy_n(values.begin() + row * state.floats, state.floats,
                  rows.state.begin() + row * shape.state_floats() + state.at);
    }
  }
  return rows;
}

}  // namespace embla::cli
