// The identity that a certificate gives to a program or a person: spiffe://CLUSTER/ROLE/NAME, the
// only URI among the certificate's alternative names. The cluster is the trust domain, so a
// certificate of one cluster is of no use in another, even if one authority signed both.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace embla {

// A set of roles for each method says who may call it (server/rpc/access_rules.h).
enum class Role : std::uint8_t {
  kCoordinator,  // Serves the cluster's plan.
  kNode,         // Serves rows, and calls other nodes.
  kTrainer,      // Reads and updates rows.
  kReader,       // Reads rows.
  kOperator,     // Makes changes that another call undoes.
  kAdmin,        // Destroys, restores and grants.
};
inline constexpr std::array kAllRoles = {Role::kCoordinator, Role::kNode,     Role::kTrainer,
                                         Role::kReader,      Role::kOperator, Role::kAdmin};

// The name in certificates: lower case.
std::string_view NameOf(Role role);
std::optional<Role> RoleNamed(std::string_view name);

struct Identity {
  std::string cluster;
  Role role = Role::kReader;
  std::string name;

  friend bool operator==(const Identity&, const Identity&) = default;
};

std::string UriOf(const Identity& identity);
// InvalidArgument says which part of `uri` is wrong.
absl::StatusOr<Identity> IdentityFrom(std::string_view uri);

// A cluster's name is a SPIFFE trust domain: 1 to 255 of a-z, 0-9, '.', '-' and '_'.
absl::Status CheckClusterName(std::string_view name);
// Names of nodes and trainers: 1 to 128 of A-Z, a-z, 0-9, '.', '-' and '_', not only dots.
absl::Status CheckIdentityName(std::string_view name);

}  // namespace embla
