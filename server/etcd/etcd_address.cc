#include "server/etcd/etcd_address.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"

namespace embla {
namespace {

constexpr char kScheme[] = "etcd://";
constexpr char kPort[] = "2379";

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

absl::Status Invalid(const std::string& state, const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat(state, ": ", what, "; expected etcd://HOST[:PORT][,HOST[:PORT]...][/PREFIX]"));
}

absl::StatusOr<std::string> MemberOf(const std::string& state, const std::string& text) {
  const std::size_t bracket = text.rfind(']');
  const std::size_t colon = text.find(':', bracket == std::string::npos ? 0 : bracket);
  const std::string host = text.substr(0, colon);
  const std::string port = colon == std::string::npos ? kPort : text.substr(colon + 1);
  int number = 0;
  if (host.empty() || port.find(':') != std::string::npos) {
    return Invalid(state, absl::StrCat("'", text, "' is not HOST or HOST:PORT"));
  }
  if (!absl::SimpleAtoi(port, &number) || number < 1 || number > 65535) {
    return Invalid(state, absl::StrCat("'", port, "' is no port"));
  }
  return absl::StrCat(host, ":", port);
}

}  // namespace

bool IsEtcdAddress(const std::string& state) { return state.starts_with(kScheme); }

absl::StatusOr<EtcdAddress> ParseEtcdAddress(const std::string& state) {
  if (!IsEtcdAddress(state)) return Invalid(state, "does not begin with etcd://");
  const std::string rest = state.substr(sizeof(kScheme) - 1);
  const std::size_t slash = rest.find('/');
  EtcdAddress address;
  address.prefix = slash == std::string::npos ? "" : rest.substr(slash);
  while (address.prefix.ends_with('/')) address.prefix.pop_back();
  if (address.prefix.empty()) address.prefix = "/embla";
  const bool is_plain =
      std::ranges::all_of(address.prefix, [](char c) { return IsNameCharacter(c) || c == '/'; });
  if (!is_plain || address.prefix.size() > 128) {
    return Invalid(state, "the prefix has up to 128 letters, digits, '.', '_', '-' and '/'");
  }
  const std::vector<std::string> members = absl::StrSplit(rest.substr(0, slash), ',');
  for (const std::string& text : members) {
    EMBLA_ASSIGN_OR_RETURN(address.members.emplace_back(), MemberOf(state, text));
  }
  return address;
}

}  // namespace embla
