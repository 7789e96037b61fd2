// How a state store lies in etcd; page: docs/state_store_format.md, "In etcd".
//
//   PREFIX/head          one line: the store's revision and who wrote it; written by every commit
//   PREFIX/data/KEY      an entry: a line with its revision and its number of pieces, then the
//   value PREFIX/more/NNNN/KEY the NNNN-th piece of a value that is larger than kValuePieceBytes
//   PREFIX/redo/REV/NNNN a part of a commit that is too large for one transaction
//   PREFIX/election/ID   a candidate (etcd_election.h)
//
// Pure functions over bytes: etcd_state_store.h has the order of writes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/etcd/etcd_kv.h"
#include "server/state_store/state_store.h"

namespace embla {

// A piece fits into a transaction, whatever its key is.
inline constexpr std::size_t kValuePieceBytes = std::size_t{512} << 10;

// Keys of etcd and what becomes of them; no value: deleted.
using EtcdWrites = std::map<std::string, std::optional<std::string>>;

struct EtcdHead {
  Revision revision{};
  std::uint32_t redo = 0;  // Parts of the commit `revision` under PREFIX/redo; 0: it had none.
  std::string writer;      // Random, of the open store that wrote it.
  bool operator==(const EtcdHead&) const = default;
};

std::string EncodeEtcdHead(const EtcdHead& head);
absl::StatusOr<EtcdHead> DecodeEtcdHead(std::string_view text);

// Names of keys below one prefix.
class EtcdLayout {
 public:
  explicit EtcdLayout(std::string prefix) : prefix_(std::move(prefix)) {}

  std::string Head() const { return prefix_ + "/head"; }
  std::string Data() const { return prefix_ + "/data/"; }  // With the slash, as all below.
  std::string More() const { return prefix_ + "/more/"; }
  std::string Redo() const { return prefix_ + "/redo/"; }
  std::string Election() const { return prefix_ + "/election/"; }
  std::string RedoPart(Revision revision, std::uint32_t part) const;

  // Adds to `writes` what puts `value` in place of a value of `bytes_before` bytes, or deletes it.
  void AddWrites(const std::string& key, const std::optional<std::string>& value,
                 std::size_t bytes_before, Revision revision, EtcdWrites& writes) const;

  // The entries that `data` and `more` hold. DataLoss: a line that cannot be read, a missing piece.
  absl::StatusOr<std::vector<StateEntry>> Read(const EtcdListing& data,
                                               const EtcdListing& more) const;

 private:
  std::string PieceKey(std::size_t piece, std::string_view key) const;

  const std::string prefix_;
};

// A part of a large commit, as its redo record has it: the rest of the writes, as many as fit one
// transaction, are taken out of `writes`.
EtcdWrites TakeOneTxn(EtcdWrites& writes);
std::string EncodeRedo(const EtcdWrites& writes);
absl::StatusOr<EtcdWrites> DecodeRedo(std::string_view text);

}  // namespace embla
