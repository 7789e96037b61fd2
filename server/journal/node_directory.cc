#include "server/journal/node_directory.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <span>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/crc32c.h"
#include "core/base/file.h"
#include "core/base/random.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla {
namespace {

constexpr std::string_view kTitle = "embla-node-directory";
constexpr std::string_view kFormat = "1";
constexpr std::string_view kSegmentPrefix = "log-";
constexpr std::size_t kTestimonyBytesMax = 4096;

std::string Checksum(std::string_view text) {
  return absl::StrCat(
      absl::Hex(Crc32c(std::as_bytes(std::span(text.data(), text.size()))), absl::kZeroPad8));
}

absl::Status DamagedIdentity(std::string_view what) {
  return absl::DataLossError(
      absl::StrCat("the identity of the data directory is damaged: ", ToAbsl(what)));
}

// The lines between the title and the checksum: a word, a blank, the rest.
using Lines = std::map<std::string, std::string>;

absl::StatusOr<std::uint64_t> NumberOf(const Lines& lines, const std::string& word) {
  std::uint64_t number = 0;
  const auto found = lines.find(word);
  if (found == lines.end() || !absl::SimpleAtoi(found->second, &number)) {
    return DamagedIdentity(absl::StrCat("no ", word));
  }
  return number;
}

std::string TextOf(const Lines& lines, const std::string& word) {
  const auto found = lines.find(word);
  return found == lines.end() ? "" : found->second;
}

bool HasLog(const std::string& directory) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    if (entry.path().filename().string().starts_with(kSegmentPrefix)) return true;
  }
  return false;
}

}  // namespace

std::string FormatIdentity(const NodeIdentity& identity) {
  std::string text =
      absl::StrCat(ToAbsl(kTitle), " ", ToAbsl(kFormat), "\ndirectory ", identity.directory_id,
                   "\nnode ", identity.node, "\ncluster ", identity.cluster_id, "\nnode-id ",
                   ToInt(identity.node_id), "\nkey-file ", identity.key_path, "\ngeneration ",
                   identity.generation, "\nstore-revision ", identity.store_revision, "\nplan ",
                   ToInt(identity.plan_version), "\ntable ", ToInt(identity.table), "\n");
  if (!identity.place.empty()) absl::StrAppend(&text, "place ", identity.place, "\n");
  if (!identity.testimony.empty()) {
    absl::StrAppend(&text, "testimony ", identity.testimony, "\n");
  }
  absl::StrAppend(&text, "crc ", Checksum(text), "\n");
  return text;
}

absl::StatusOr<NodeIdentity> ParseIdentity(std::string_view content) {
  const std::size_t end = content.rfind("crc ");
  if (end == std::string_view::npos || end == 0 || content[end - 1] != '\n' ||
      content.substr(end) != absl::StrCat("crc ", Checksum(content.substr(0, end)), "\n")) {
    return DamagedIdentity("its checksum is wrong");
  }
  Lines lines;
  for (const absl::string_view line : absl::StrSplit(ToAbsl(content.substr(0, end)), '\n')) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    lines[parts.first] = parts.second;
  }
  if (!lines.contains(std::string(kTitle))) return DamagedIdentity("it has another title");
  if (lines[std::string(kTitle)] != kFormat) {
    return absl::FailedPreconditionError("the data directory is of a newer program");
  }
  NodeIdentity identity;
  identity.directory_id = TextOf(lines, "directory");
  identity.node = TextOf(lines, "node");
  identity.cluster_id = TextOf(lines, "cluster");
  identity.key_path = TextOf(lines, "key-file");
  identity.place = TextOf(lines, "place");
  identity.testimony = TextOf(lines, "testimony");
  EMBLA_ASSIGN_OR_RETURN(const std::uint64_t node_id, NumberOf(lines, "node-id"));
  EMBLA_ASSIGN_OR_RETURN(identity.generation, NumberOf(lines, "generation"));
  EMBLA_ASSIGN_OR_RETURN(identity.store_revision, NumberOf(lines, "store-revision"));
  EMBLA_ASSIGN_OR_RETURN(const std::uint64_t plan, NumberOf(lines, "plan"));
  EMBLA_ASSIGN_OR_RETURN(const std::uint64_t table, NumberOf(lines, "table"));
  identity.node_id = NodeId{static_cast<std::uint32_t>(node_id)};
  identity.plan_version = PlanVersion{plan};
  identity.table = TableId{static_cast<std::uint32_t>(table)};
  return identity;
}

absl::StatusOr<std::unique_ptr<NodeDirectory>> NodeDirectory::Open(const std::string& directory,
                                                                   const std::string& node) {
  const std::string path = directory + "/identity";
  std::string place = PlaceOfFile(directory + "/LOCK").value_or("");
  const absl::StatusOr<std::string> content = ReadFile(path);
  if (absl::IsNotFound(content.status())) {
    if (HasLog(directory)) {
      return DamagedIdentity(absl::StrCat(path, " is missing beside the node's log"));
    }
    const NodeIdentity made{.directory_id = RandomHexId(), .node = node};
    EMBLA_RETURN_IF_ERROR(AtomicWriteFile(path, FormatIdentity(made)));
    return std::unique_ptr<NodeDirectory>(new NodeDirectory(path, std::move(place), made));
  }
  EMBLA_RETURN_IF_ERROR(content.status());
  absl::StatusOr<NodeIdentity> identity = ParseIdentity(*content);
  if (!identity.ok()) return Annotate(identity.status(), path);
  if (identity->node != node) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory, " is the data directory of node ", identity->node,
                     ", this is node ", node, ": give it its own directory, or an empty one"));
  }
  return std::unique_ptr<NodeDirectory>(
      new NodeDirectory(path, std::move(place), *std::move(identity)));
}

NodeIdentity NodeDirectory::identity() const {
  MutexLock lock(mu_);
  return identity_;
}

absl::Status NodeDirectory::NoteRegistered(const NodeIdentity& seen) {
  MutexLock lock(write_mu_);
  NodeIdentity next = identity();
  next.cluster_id = seen.cluster_id;
  next.node_id = seen.node_id;
  // A line of the file ends with the first line break.
  if (seen.key_path.find('\n') == std::string::npos) next.key_path = seen.key_path;
  next.generation = std::max(next.generation, seen.generation);
  next.store_revision = std::max(next.store_revision, seen.store_revision);
  return Write(next);
}

absl::Status NodeDirectory::NotePlan(PlanVersion version, TableId table) {
  MutexLock lock(write_mu_);
  NodeIdentity next = identity();
  next.plan_version = std::max(next.plan_version, version);
  next.table = std::max(next.table, table);
  return Write(next);
}

absl::Status NodeDirectory::NotePlace() {
  MutexLock lock(write_mu_);
  NodeIdentity next = identity();
  next.place = place_;
  return Write(next);
}

absl::Status NodeDirectory::NoteTestimony(const std::string& testimony) {
  if (testimony.size() > kTestimonyBytesMax || testimony.find('\n') != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("a testimony of ", testimony.size(), " bytes is no short line"));
  }
  MutexLock lock(write_mu_);
  NodeIdentity next = identity();
  next.testimony = testimony;
  return Write(next);
}

absl::Status NodeDirectory::Write(const NodeIdentity& identity) {
  {
    MutexLock lock(mu_);
    if (identity == identity_) return absl::OkStatus();
  }
  EMBLA_RETURN_IF_ERROR(AtomicWriteFile(path_, FormatIdentity(identity)));
  MutexLock lock(mu_);
  identity_ = identity;
  return absl::OkStatus();
}

}  // namespace embla
