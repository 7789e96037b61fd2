// The cluster's key: the secret by which the coordinator, its nodes and the sessions it grants are
// told from strangers. The key is never sent; what is sent are proofs, which only a holder of the
// key can make: HMAC-SHA256 over a label and some parts.
//
// Every purpose has a label of its own, so that no proof made for one is good for another. The
// input of the HMAC is the label and the parts, one after the other and without separators; a use
// therefore gives each part but the last a fixed size, and no label begins another. Labels and
// parts of every proof: docs/protocol.md.
//
// A key file has one key a line, `embla-cluster-key 1 <64 hexadecimal digits>`. The first line
// signs, every line verifies: with a second line, two keys are valid while the key is changed.
// Empty lines and lines that begin with # are skipped.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace embla {

// Immutable. Thread safety: every method may be called from any thread.
class ClusterKey {
 public:
  static constexpr std::size_t kKeyBytes = 32;
  static constexpr std::size_t kProofBytes = 32;
  static constexpr std::size_t kNonceBytes = 16;
  static constexpr std::size_t kKeysMax = 8;

  // A new random key.
  static ClusterKey Generate();
  // InvalidArgument names the line. The message has no part of a key.
  static absl::StatusOr<ClusterKey> Parse(std::string_view content);

  // The content of a key file.
  std::string Format() const;

  // The proof of `parts` for the purpose `label`, kProofBytes long, by the first key.
  std::string Sign(std::string_view label, std::initializer_list<std::string_view> parts) const;
  // Whether `proof` is a proof of `parts` by any of the keys. A shorter proof, of at least 16
  // bytes, has to be the beginning of one. The time taken does not depend on `proof`'s content.
  bool Verify(std::string_view label, std::initializer_list<std::string_view> parts,
              std::string_view proof) const;

 private:
  using Key = std::array<unsigned char, kKeyBytes>;

  explicit ClusterKey(std::vector<Key> keys) : keys_(std::move(keys)) {}

  std::vector<Key> keys_;  // Not empty. The first one signs.
};

using ClusterKeyPtr = std::shared_ptr<const ClusterKey>;

// The key of the file at `path`, which must belong to this process's user or to root, and be of no
// use to anyone else: mode 0600 or 0400. PermissionDenied otherwise, NotFound, InvalidArgument.
absl::StatusOr<ClusterKey> ReadClusterKey(const std::string& path);

// The key of the file at `path`, after making the file, mode 0600, where there is none.
absl::StatusOr<ClusterKey> ReadOrMakeClusterKey(const std::string& path);

// ClusterKey::kNonceBytes random bytes from the system.
std::string RandomNonce();

// `value` as 8 bytes, little-endian: a part of a proof.
std::string LittleEndianPart(std::uint64_t value);

}  // namespace embla
