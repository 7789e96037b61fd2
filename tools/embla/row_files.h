// Rows of a table as safetensors files, of which each holds a range of rows: docs/row_files.md.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/plan/table_spec.h"

namespace embla::cli {

// Names of a table's tensors, and what they hold.
struct RowFileShape {
  std::string name;  // Name of the weights; other tensors are named after it.
  std::uint32_t dim = 0;
  StateShape state;
  bool with_state = false;
  bool with_ids = false;  // ZCH tables.

  std::string ids_name() const { return name + ".ids"; }
  std::size_t state_floats() const {
    return state.row_floats + std::size_t{state.element_arrays} * dim;
  }
  // A tensor of the state: floats [at, at + floats) of each row's. TorchRec's names, and `steps`.
  struct StateTensor {
    std::string name;
    std::size_t at = 0;
    std::size_t floats = 0;  // 1: a scalar per row.
  };
  std::vector<StateTensor> StateTensors() const;
};

// Rows that follow each other in the table; state as Client::ReadState gives it.
struct FileRows {
  std::int64_t first_row = 0;
  std::vector<std::int64_t> ids;
  std::vector<float> weights;
  std::vector<float> state;
};

// Durably. Errors: those of core/base/file.h.
absl::Status WriteRowFile(const std::string& path, const RowFileShape& shape, const FileRows& rows);

// One file, opened.
class RowFile {
 public:
  // A tensor by the file's header; `begin` is its place in the file.
  struct Tensor {
    std::string dtype;
    std::vector<std::int64_t> dims;
    std::vector<std::int64_t> saved_offsets;  // Empty: the file does not say.
    std::uint64_t begin = 0;
    std::uint64_t bytes = 0;
  };

  // Errors: those of core/base/file.h; DataLoss (no safetensors file, or one that is cut off).
  static absl::StatusOr<RowFile> Open(const std::string& path);
  RowFile(RowFile&& other) noexcept;
  RowFile& operator=(RowFile&&) = delete;
  ~RowFile();

  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  bool Has(const RowFileShape& shape) const { return tensors_.contains(shape.name); }

  // Rows of the tensor of weights. Requires: Has(shape).
  std::int64_t row_count(const RowFileShape& shape) const {
    return tensors_.at(shape.name).dims.front();
  }
  // Whether it holds the state, all of it. InvalidArgument names the tensor that does not fit, and
  // says why. Requires: Has(shape).
  absl::StatusOr<bool> Check(const RowFileShape& shape) const;
  // Rows [begin, begin + count) of the file; with state if the shape says so.
  // Requires: Check(shape) is OK.
  absl::StatusOr<FileRows> Read(const RowFileShape& shape, std::int64_t begin,
                                std::int64_t count) const;

 private:
  RowFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  absl::Status ReadHeader();
  absl::Status ReadBytes(std::uint64_t begin, std::span<std::byte> out) const;
  absl::StatusOr<std::vector<float>> ReadFloats(const Tensor& tensor, std::int64_t begin,
                                                std::int64_t count) const;

  std::string path_;
  int descriptor_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace embla::cli
