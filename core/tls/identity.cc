#include "core/tls/identity.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"

namespace embla {
namespace {

constexpr std::string_view kScheme = "spiffe://";
constexpr std::size_t kClusterBytesMax = 255;
constexpr std::size_t kNameBytesMax = 128;
constexpr std::string_view kLower = "abcdefghijklmnopqrstuvwxyz";
constexpr std::string_view kUpper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
constexpr std::string_view kOthers = "0123456789.-_";

// Text from a stranger's certificate, for people.
std::string Quoted(std::string_view text) {
  return absl::StrCat("\"", absl::CHexEscape(ToAbsl(text.substr(0, 300))), "\"");
}

}  // namespace

std::string_view NameOf(Role role) {
  switch (role) {
    case Role::kCoordinator:
      return "coordinator";
    case Role::kNode:
      return "node";
    case Role::kTrainer:
      return "trainer";
    case Role::kReader:
      return "reader";
    case Role::kOperator:
      return "operator";
    case Role::kAdmin:
      return "admin";
  }
  return "unknown";
}

std::optional<Role> RoleNamed(std::string_view name) {
  for (const Role role : kAllRoles) {
    if (NameOf(role) == name) return role;
  }
  return std::nullopt;
}

std::string UriOf(const Identity& identity) {
  return absl::StrCat(ToAbsl(kScheme), identity.cluster, "/", ToAbsl(NameOf(identity.role)), "/",
                      identity.name);
}

absl::StatusOr<Identity> IdentityFrom(std::string_view uri) {
  const auto wrong = [uri](std::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(uri), " is not spiffe://CLUSTER/ROLE/NAME: ", ToAbsl(what)));
  };
  if (!uri.starts_with(kScheme)) return wrong("it does not begin with spiffe://");
  const std::string_view path = uri.substr(kScheme.size());
  const std::size_t role_at = path.find('/');
  if (role_at == std::string_view::npos) return wrong("it has no role");
  const std::size_t name_at = path.find('/', role_at + 1);
  if (name_at == std::string_view::npos) return wrong("it has no name");
  const std::string_view role_name = path.substr(role_at + 1, name_at - role_at - 1);
  const std::optional<Role> role = RoleNamed(role_name);
  if (!role.has_value()) return wrong(absl::StrCat("there is no role ", Quoted(role_name)));
  Identity identity{.cluster = std::string(path.substr(0, role_at)),
                    .role = *role,
                    .name = std::string(path.substr(name_at + 1))};
  if (const absl::Status cluster = CheckClusterName(identity.cluster); !cluster.ok()) {
    return wrong(Message(cluster));
  }
  if (const absl::Status name = CheckIdentityName(identity.name); !name.ok()) {
    return wrong(Message(name));
  }
  return identity;
}

absl::Status CheckClusterName(std::string_view name) {
  const bool is_legal =
      !name.empty() && name.size() <= kClusterBytesMax && std::ranges::all_of(name, [](char c) {
        return kLower.find(c) != std::string_view::npos ||
               kOthers.find(c) != std::string_view::npos;
      });
  if (is_legal) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cluster name ", Quoted(name),
                                                 " is no trust domain: 1 to ", kClusterBytesMax,
                                                 " of a-z, 0-9, '.', '-' and '_'"));
}

absl::Status CheckIdentityName(std::string_view name) {
  const bool is_legal = !name.empty() && name.size() <= kNameBytesMax &&
                        name.find_first_not_of('.') != std::string_view::npos &&
                        std::ranges::all_of(name, [](char c) {
                          return kLower.find(c) != std::string_view::npos ||
                                 kUpper.find(c) != std::string_view::npos ||
                                 kOthers.find(c) != std::string_view::npos;
                        });
  if (is_legal) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("name ", Quoted(name), " is not 1 to ",
                                                 kNameBytesMax,
                                                 " of A-Z, a-z, 0-9, '.', '-' and '_'"));
}

}  // namespace embla
