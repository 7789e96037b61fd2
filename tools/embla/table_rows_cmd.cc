#include "tools/embla/table_rows_cmd.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/file.h"
#include "core/base/status_macros.h"
#include "core/plan/names.h"
#include "tools/embla/row_files.h"

namespace embla::cli {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<client::TableInfo> FindTable(client::Client& client, const std::string& name) {
  EMBLA_RETURN_IF_ERROR(client.RefreshPlan());
  const std::vector<client::TableInfo> tables = client.Tables();
  const auto found = std::find_if(tables.begin(), tables.end(),
                                  [&](const auto& table) { return table.name == name; });
  if (found != tables.end()) return *found;
  return absl::NotFoundError(absl::StrCat("no table ", name, "; embla table ls names them"));
}

absl::StatusOr<RowFileShape> ShapeOf(const client::TableInfo& table,
                                     const RowFilesRequest& request) {
  OptimizerSpec optimizer;
  EMBLA_ASSIGN_OR_RETURN(optimizer.kind, FromName<OptimizerKind>(table.optimizer));
  RowFileShape shape;
  shape.name = request.tensor.empty() ? absl::StrCat("embedding_bags.", table.name, ".weight")
                                      : request.tensor;
  shape.dim = table.dim;
  shape.state = StateShapeOf(optimizer);
  shape.with_ids = table.zch;
  return shape;
}

// Writes stretches of rows as files of about the same size.
class Exporter {
 public:
  Exporter(std::string directory, RowFileShape shape, std::size_t file_bytes)
      : directory_(std::move(directory)), shape_(std::move(shape)), file_bytes_(file_bytes) {}

  absl::Status Add(const client::TableRows& rows) {
    const std::size_t count = rows.ids.size();
    if (count == 0) return absl::OkStatus();
    const std::size_t row_bytes = (rows.weights.size() + rows.state.size()) / count * sizeof(float);
    const std::size_t rows_max = std::max(file_bytes_ / row_bytes, std::size_t{1});
    for (std::size_t begin = 0; begin < count;) {
      const std::size_t end = std::min(count, begin + rows_max - pending_.ids.size());
      Append(rows, begin, end);
      begin = end;
      if (pending_.ids.size() == rows_max) EMBLA_RETURN_IF_ERROR(Write());
    }
    return absl::OkStatus();
  }

  absl::Status Finish() { return pending_.ids.empty() && files_ > 0 ? absl::OkStatus() : Write(); }

  std::size_t rows() const { return rows_; }
  std::size_t files() const { return files_; }

 private:
  void Append(const client::TableRows& rows, std::size_t begin, std::size_t end) {
    const std::int64_t first_row = rows.first_row + static_cast<std::int64_t>(begin);
    if (pending_.ids.empty()) pending_.first_row = first_row;
    const auto append = [&](auto& to, const auto& from) {
      const std::size_t width = from.size() / rows.ids.size();
      const auto part = from.subspan(begin * width, (end - begin) * width);
      to.insert(to.end(), part.begin(), part.end());
    };
    append(pending_.ids, rows.ids);
    append(pending_.weights, rows.weights);
    append(pending_.state, rows.state);
    rows_ += end - begin;
  }

  absl::Status Write() {
    const std::string name =
        absl::StrFormat("shard-%05d-model-00001-of-00001.safetensors", files_ + 1);
    EMBLA_RETURN_IF_ERROR(WriteRowFile(absl::StrCat(directory_, "/", name), shape_, pending_));
    ++files_;
    pending_ = {};
    pending_.first_row = static_cast<std::int64_t>(rows_);
    return absl::OkStatus();
  }

  const std::string directory_;
  const RowFileShape shape_;
  const std::size_t file_bytes_;
  FileRows pending_;
  std::size_t rows_ = 0;
  std::size_t files_ = 0;
};

// The files of the directory that hold rows of the table, by name.
absl::StatusOr<std::vector<RowFile>> OpenFiles(const RowFilesRequest& request,
                                               const RowFileShape& shape) {
  std::error_code error;
  std::vector<std::string> paths;
  for (fs::directory_iterator it(request.directory, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == ".safetensors") paths.push_back(it->path().string());
  }
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("cannot read ", request.directory, ": ", error.message()));
  }
  std::sort(paths.begin(), paths.end());
  std::vector<RowFile> files;
  for (const std::string& path : paths) {
    EMBLA_ASSIGN_OR_RETURN(RowFile file, RowFile::Open(path));
    if (file.Has(shape)) files.push_back(std::move(file));
  }
  if (!files.empty()) return files;
  return absl::NotFoundError(absl::StrCat("no file *.safetensors in ", request.directory,
                                          " has a tensor ", shape.name,
                                          "; --tensor names another one"));
}

// Checks that the files' rows are rows of the table, each in one file.
absl::Status CheckRanges(const std::vector<RowFile>& files, const RowFileShape& shape,
                         std::int64_t rows) {
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  for (const RowFile& file : files) {
    const std::vector<std::int64_t>& offsets = file.tensors().at(shape.name).saved_offsets;
    if (offsets.empty() && files.size() > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(files.size(), " files have a tensor ", shape.name,
                       ", but not all say which rows theirs are (DCP_SHARDING_INFO)"));
    }
    const std::int64_t begin = offsets.empty() ? 0 : offsets.front();
    const std::int64_t count = file.row_count(shape);
    if (begin > rows || count > rows - begin) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", shape.name, " has rows ", begin,
                                                     " to ", begin + count, ", the table has ",
                                                     rows));
    }
    ranges.push_back({begin, begin + count});
  }
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first >= ranges[i - 1].second) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("two files have row ", ranges[i].first, " of tensor ", shape.name));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status TableExportVerb(client::Client& client, const RowFilesRequest& request,
                             const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const client::TableInfo table, FindTable(client, request.table));
  EMBLA_ASSIGN_OR_RETURN(RowFileShape shape, ShapeOf(table, request));
  shape.with_state = request.with_state;
  std::error_code error;
  if (fs::exists(request.directory, error)) {
    return absl::AlreadyExistsError(
        absl::StrCat(request.directory, " exists: name a directory that does not"));
  }
  const std::string partial = request.directory + ".partial";
  fs::remove_all(partial, error);  // Left over from an export that was ended.
  EMBLA_RETURN_IF_ERROR(MakeDirectories(partial));
  Exporter exporter(partial, shape, request.file_bytes);
  EMBLA_RETURN_IF_ERROR(
      client.ScanTable(table.name, request.with_state,
                       [&](const client::TableRows& rows) { return exporter.Add(rows); }));
  EMBLA_RETURN_IF_ERROR(exporter.Finish());
  EMBLA_RETURN_IF_ERROR(SyncDirectory(partial));
  EMBLA_RETURN_IF_ERROR(RenameDurably(partial, request.directory));
  if (output.json) {
    output.PutJson({{"table", table.name},
                    {"rows", exporter.rows()},
                    {"files", exporter.files()},
                    {"tensor", shape.name}});
  } else {
    output.out << "exported " << exporter.rows() << " rows of " << table.name << " to "
               << exporter.files() << " files in " << request.directory << " as " << shape.name
               << "\n";
  }
  return absl::OkStatus();
}

absl::Status TableImportVerb(client::Client& client, const RowFilesRequest& request,
                             const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const client::TableInfo table, FindTable(client, request.table));
  EMBLA_ASSIGN_OR_RETURN(RowFileShape shape, ShapeOf(table, request));
  EMBLA_ASSIGN_OR_RETURN(const std::vector<RowFile> files, OpenFiles(request, shape));
  std::vector<bool> has_state;
  for (const RowFile& file : files) {
    EMBLA_ASSIGN_OR_RETURN(const bool state, file.Check(shape));
    has_state.push_back(state);
  }
  if (!table.zch) EMBLA_RETURN_IF_ERROR(CheckRanges(files, shape, table.rows));
  std::int64_t written = 0;
  for (std::size_t f = 0; f < files.size(); ++f) {
    shape.with_state = has_state[f];
    const std::size_t row_floats = shape.dim + (shape.with_state ? shape.state_floats() : 0);
    const auto rows_at_once = static_cast<std::int64_t>(
        std::max<std::size_t>((std::size_t{16} << 20) / (row_floats * sizeof(float)), 1));
    const std::int64_t count = files[f].row_count(shape);
    for (std::int64_t begin = 0; begin < count; begin += rows_at_once) {
      EMBLA_ASSIGN_OR_RETURN(const FileRows rows,
                             files[f].Read(shape, begin, std::min(rows_at_once, count - begin)));
      EMBLA_RETURN_IF_ERROR(client.WriteRows(table.name, rows.ids, rows.weights, rows.state, {}));
      written += static_cast<std::int64_t>(rows.ids.size());
    }
  }
  const bool all_have_state =
      std::find(has_state.begin(), has_state.end(), false) == has_state.end();
  if (output.json) {
    output.PutJson({{"table", table.name},
                    {"rows", written},
                    {"files", files.size()},
                    {"with_state", all_have_state}});
    return absl::OkStatus();
  }
  output.out << "imported " << written << " rows of " << table.name << " from " << files.size()
             << " files" << (all_have_state ? "" : "; optimizer state stays as it was") << "\n";
  if (!table.zch && written < table.rows) {
    output.out << "rows that are in no file stay as they were: " << table.rows - written << "\n";
  }
  return absl::OkStatus();
}

}  // namespace embla::cli
