#include "core/base/cluster_key.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/check.h"
#include "core/base/file.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla {
namespace {

constexpr std::string_view kLinePrefix = "embla-cluster-key 1 ";
constexpr std::size_t kProofBytesMin = 16;
constexpr std::size_t kFileBytesMax = std::size_t{1} << 14;

absl::Status BadLine(std::size_t number, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("line ", number, " of the cluster key: ", ToAbsl(what)));
}

bool IsHex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

template <std::size_t kSize>
std::array<unsigned char, kSize> RandomBytes() {
  std::array<unsigned char, kSize> bytes;
  EMBLA_CHECK(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1);
  return bytes;
}

std::string Hmac(const unsigned char* key, std::string_view message) {
  std::string proof(ClusterKey::kProofBytes, '\0');
  unsigned int size = 0;
  EMBLA_CHECK(HMAC(EVP_sha256(), key, ClusterKey::kKeyBytes,
                   reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                   reinterpret_cast<unsigned char*>(proof.data()), &size) != nullptr);
  EMBLA_CHECK(size == proof.size());
  return proof;
}

std::string MessageOf(std::string_view label, std::initializer_list<std::string_view> parts) {
  std::string message(label);
  for (const std::string_view part : parts) message.append(part);
  return message;
}

// Closes itself.
struct Descriptor {
  explicit Descriptor(int opened) : value(opened) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }

  const int value;
};

// Whether nobody but this process's user and root can read or change the open file.
absl::Status CheckIsPrivate(int descriptor, const std::string& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is no regular file"));
  }
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " belongs to another user, ", status.st_uid));
  }
  if ((status.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " is open to others: its mode must be 0600"));
  }
  return absl::OkStatus();
}

// The content of a private file. One descriptor serves the check and the reading, so that nobody
// can put another file there in between; O_NONBLOCK keeps a FIFO from holding the caller.
absl::StatusOr<std::string> ReadPrivateFile(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.value < 0) {
    const int error = errno;
    return absl::Status(
        error == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kPermissionDenied,
        absl::StrCat("cannot open ", path, ": ",
                     std::error_code(error, std::generic_category()).message()));
  }
  EMBLA_RETURN_IF_ERROR(CheckIsPrivate(file.value, path));
  std::string content(kFileBytesMax, '\0');
  const ssize_t got = ::read(file.value, content.data(), content.size());
  if (got < 0) return absl::UnavailableError(absl::StrCat("cannot read ", path));
  content.resize(static_cast<std::size_t>(got));
  return content;
}

}  // namespace

ClusterKey ClusterKey::Generate() { return ClusterKey({RandomBytes<kKeyBytes>()}); }

absl::StatusOr<ClusterKey> ClusterKey::Parse(std::string_view content) {
  std::vector<Key> keys;
  std::size_t number = 0;
  for (const absl::string_view piece : absl::StrSplit(ToAbsl(content), '\n')) {
    ++number;
    std::string_view line = ToStd(absl::StripAsciiWhitespace(piece));
    if (line.empty() || line.front() == '#') continue;
    if (!line.starts_with(kLinePrefix)) return BadLine(number, "no `embla-cluster-key 1 `");
    line.remove_prefix(kLinePrefix.size());
    if (line.size() != 2 * kKeyBytes || !IsHex(line)) {
      return BadLine(number, "not 64 hexadecimal digits");
    }
    if (keys.size() == kKeysMax) return BadLine(number, absl::StrCat("more than ", kKeysMax));
    const std::string bytes = absl::HexStringToBytes(ToAbsl(line));
    Key& key = keys.emplace_back();
    std::copy(bytes.begin(), bytes.end(), key.begin());
  }
  if (keys.empty()) return absl::InvalidArgumentError("the cluster key has no key");
  return ClusterKey(std::move(keys));
}

std::string ClusterKey::Format() const {
  std::string content;
  for (const Key& key : keys_) {
    const absl::string_view bytes(reinterpret_cast<const char*>(key.data()), key.size());
    absl::StrAppend(&content, ToAbsl(kLinePrefix), absl::BytesToHexString(bytes), "\n");
  }
  return content;
}

std::string ClusterKey::Sign(std::string_view label,
                             std::initializer_list<std::string_view> parts) const {
  return Hmac(keys_.front().data(), MessageOf(label, parts));
}

bool ClusterKey::Verify(std::string_view label, std::initializer_list<std::string_view> parts,
                        std::string_view proof) const {
  if (proof.size() < kProofBytesMin || proof.size() > kProofBytes) return false;
  const std::string message = MessageOf(label, parts);
  bool valid = false;
  for (const Key& key : keys_) {
    const std::string want = Hmac(key.data(), message);
    valid |= CRYPTO_memcmp(want.data(), proof.data(), proof.size()) == 0;
  }
  return valid;
}

absl::StatusOr<ClusterKey> ReadClusterKey(const std::string& path) {
  EMBLA_ASSIGN_OR_RETURN(const std::string content, ReadPrivateFile(path));
  absl::StatusOr<ClusterKey> key = ClusterKey::Parse(content);
  if (!key.ok()) return Annotate(key.status(), path);
  return key;
}

absl::StatusOr<ClusterKey> ReadOrMakeClusterKey(const std::string& path) {
  absl::StatusOr<ClusterKey> key = ReadClusterKey(path);
  if (!absl::IsNotFound(key.status())) return key;
  const ClusterKey made = ClusterKey::Generate();
  EMBLA_RETURN_IF_ERROR(AtomicWriteFile(path, made.Format()));
  return made;
}

std::string RandomNonce() {
  const auto bytes = RandomBytes<ClusterKey::kNonceBytes>();
  return std::string(bytes.begin(), bytes.end());
}

std::string LittleEndianPart(std::uint64_t value) {
  std::string part;
  for (int shift = 0; shift < 64; shift += 8) part.push_back(static_cast<char>(value >> shift));
  return part;
}

}  // namespace embla
