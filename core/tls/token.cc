#include "core/tls/token.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/file.h"
#include "core/base/random.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/tls/certificate.h"

namespace embla {
namespace {

constexpr std::size_t kSecretDigits = 64;
constexpr std::string_view kUriScheme = "spiffe://";

using Hash = std::array<unsigned char, 32>;

Hash HashOf(std::string_view token) {
  Hash hash = {};
  unsigned int bytes = 0;
  EVP_Digest(token.data(), token.size(), hash.data(), &bytes, EVP_sha256(), nullptr);
  return hash;
}

std::string HexOf(const Hash& hash) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(hash.data()), hash.size()));
}

bool IsHex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

absl::Status CheckRole(Role role) {
  if (role != Role::kCoordinator && role != Role::kNode) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the role ", ToAbsl(NameOf(role)), " needs a certificate, and has no tokens"));
}

struct Accepted {
  Hash hash = {};
  absl::Time end = absl::InfiniteFuture();
};

// "trainer/t0"
std::string KeyOf(Role role, std::string_view name) {
  return absl::StrCat(ToAbsl(NameOf(role)), "/", ToAbsl(name));
}

struct Line {
  std::string key;
  Accepted accepted;
};

absl::StatusOr<Line> ParseLine(std::string_view text) {
  const std::vector<std::string> words =
      absl::StrSplit(ToAbsl(text), absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (words.size() < 3 || words.size() > 4) {
    return absl::InvalidArgumentError("it is not ROLE NAME SHA256 [END]");
  }
  const std::optional<Role> role = RoleNamed(words[0]);
  if (!role.has_value()) return absl::InvalidArgumentError("there is no such role");
  EMBLA_RETURN_IF_ERROR(CheckRole(*role));
  EMBLA_RETURN_IF_ERROR(CheckIdentityName(words[1]));
  Line line{.key = KeyOf(*role, words[1]), .accepted = {}};
  const std::string hex = absl::AsciiStrToLower(words[2]);
  if (hex.size() != 2 * line.accepted.hash.size() || !IsHex(hex)) {
    return absl::InvalidArgumentError("its hash is not 64 hexadecimal digits");
  }
  const std::string hash = absl::HexStringToBytes(hex);
  std::copy(hash.begin(), hash.end(), line.accepted.hash.begin());
  std::string ignored;
  if (words.size() == 4 &&
      !absl::ParseTime(absl::RFC3339_full, words[3], &line.accepted.end, &ignored)) {
    return absl::InvalidArgumentError("its end is not a time like 2026-12-31T00:00:00Z");
  }
  return line;
}

using TokensByIdentity = std::map<std::string, std::vector<Accepted>>;

absl::Status ReadTokens(const std::string& file, TokensByIdentity& by_identity) {
  EMBLA_ASSIGN_OR_RETURN(const std::string content, ReadStatedFile("--tokens", file));
  std::size_t number = 0;
  std::size_t tokens = 0;
  for (const absl::string_view piece : absl::StrSplit(content, '\n')) {
    ++number;
    const absl::string_view text = absl::StripAsciiWhitespace(piece);
    if (text.empty() || text.front() == '#') continue;
    const absl::StatusOr<Line> line = ParseLine(ToStd(text));
    if (!line.ok()) {
      return Annotate(line.status(), absl::StrCat("--tokens ", file, ", line ", number));
    }
    by_identity[line->key].push_back(line->accepted);
    if (++tokens > AcceptedTokens::kTokensMax) {
      return absl::InvalidArgumentError(absl::StrCat("--tokens ", file, " has more than ",
                                                     AcceptedTokens::kTokensMax, " tokens"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadToken(const std::string& file) {
  EMBLA_ASSIGN_OR_RETURN(const std::string text, ReadStatedFile("--token-file", file));
  std::string token(absl::StripAsciiWhitespace(text));
  const absl::Status claim = ClaimOf(token).status();
  if (claim.ok()) return token;
  return absl::InvalidArgumentError(absl::StrCat("--token-file ", file, ": ", claim.message()));
}

}  // namespace

struct AcceptedTokens::Content {
  TokensByIdentity by_identity;
};

absl::StatusOr<std::string> NewToken(const Identity& identity) {
  EMBLA_RETURN_IF_ERROR(CheckRole(identity.role));
  const std::string uri = UriOf(identity);
  EMBLA_RETURN_IF_ERROR(IdentityFrom(uri).status());
  return absl::StrCat(uri.substr(kUriScheme.size()), "/", RandomHexId(), RandomHexId());
}

std::string LineOfToken(const Identity& identity, std::string_view token, absl::Time end) {
  std::string line =
      absl::StrCat(ToAbsl(NameOf(identity.role)), " ", identity.name, " ", HexOf(HashOf(token)));
  if (end == absl::InfiniteFuture()) return line;
  return absl::StrCat(line, " ", absl::FormatTime(absl::RFC3339_sec, end, absl::UTCTimeZone()));
}

absl::StatusOr<Identity> ClaimOf(std::string_view token) {
  const absl::Status none = absl::UnauthenticatedError(
      "the token is not CLUSTER/ROLE/NAME/SECRET, as embla token new makes them");
  const std::size_t slash = token.rfind('/');
  if (slash == std::string_view::npos) return none;
  const std::string_view secret = token.substr(slash + 1);
  if (secret.size() != kSecretDigits || !IsHex(secret)) return none;
  absl::StatusOr<Identity> identity =
      IdentityFrom(absl::StrCat(ToAbsl(kUriScheme), ToAbsl(token.substr(0, slash))));
  if (!identity.ok() || !CheckRole(identity->role).ok()) return none;
  return identity;
}

AcceptedTokens::AcceptedTokens(const std::string& file)
    : content_("tls", "tokens",
               [file](const auto&) -> absl::StatusOr<std::shared_ptr<const Content>> {
                 auto content = std::make_shared<Content>();
                 EMBLA_RETURN_IF_ERROR(ReadTokens(file, content->by_identity));
                 return content;
               }) {}

absl::StatusOr<Identity> AcceptedTokens::Verify(std::string_view token, std::string_view cluster,
                                                absl::Time now) {
  EMBLA_ASSIGN_OR_RETURN(const Identity claim, ClaimOf(token));
  const std::string what = absl::StrCat("the token of ", UriOf(claim));
  if (claim.cluster != cluster) {
    return absl::UnauthenticatedError(
        absl::StrCat(what, " is of another cluster than ", ToAbsl(cluster)));
  }
  const Hash hash = HashOf(token);
  const std::shared_ptr<const Content> content = content_.Current(now);
  std::optional<absl::Time> end;
  if (content != nullptr) {
    const auto found = content->by_identity.find(KeyOf(claim.role, claim.name));
    if (found != content->by_identity.end()) {
      for (const Accepted& accepted : found->second) {
        if (CRYPTO_memcmp(accepted.hash.data(), hash.data(), hash.size()) == 0) end = accepted.end;
      }
    }
  }
  if (!end.has_value()) return absl::UnauthenticatedError(what + " is not one that is accepted");
  if (*end > now) return claim;
  return absl::UnauthenticatedError(absl::StrCat(
      what, " ended at ", absl::FormatTime(absl::RFC3339_sec, *end, absl::UTCTimeZone())));
}

TokenFile::TokenFile(const std::string& file)
    : token_("tls", "the token",
             [file](const auto&) -> absl::StatusOr<std::shared_ptr<const std::string>> {
               EMBLA_ASSIGN_OR_RETURN(std::string token, ReadToken(file));
               return std::make_shared<const std::string>(std::move(token));
             }) {}

std::string TokenFile::Current(absl::Time now) {
  const std::shared_ptr<const std::string> token = token_.Current(now);
  return token == nullptr ? std::string() : *token;
}

}  // namespace embla
