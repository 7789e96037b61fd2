// embla table export and import: the rows of a table in files that others read, docs/row_files.md.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "client/include/embla/client.h"
#include "tools/embla/output.h"

namespace embla::cli {

struct RowFilesRequest {
  std::string table = {};
  std::string directory = {};
  std::string tensor = {};  // Name of the weights; empty: TorchRec's, embedding_bags.T.weight.
  bool with_state = true;   // Export only.
  std::size_t file_bytes = std::size_t{64} << 20;  // Export only: at most so many of rows each.
};

// The directory appears when all of it is written. AlreadyExists: there is one.
absl::Status TableExportVerb(client::Client& client, const RowFilesRequest& request,
                             const Output& output);

// Looks at all files before the first row is written. InvalidArgument names the file, the tensor
// and what does not fit; DataLoss: a file is cut off.
absl::Status TableImportVerb(client::Client& client, const RowFilesRequest& request,
                             const Output& output);

}  // namespace embla::cli
