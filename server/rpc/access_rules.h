// The rules of access: one for every method of every service. A method without a rule may be
// called by nobody, and access_rules_test fails for it.
//
// Rules hold over TLS, where certificates say who calls (core/tls/identity.h). Plaintext is for
// loopback, for unix sockets of the same user, and for networks that --insecure calls trusted:
// there, every caller may call everything.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "core/plan/plan.h"
#include "core/tls/identity.h"

namespace embla {

class RoleSet {
 public:
  constexpr RoleSet(std::initializer_list<Role> roles) {
    for (const Role role : roles) bits_ |= 1u << static_cast<unsigned>(role);
  }
  constexpr bool Has(Role role) const { return (bits_ >> static_cast<unsigned>(role) & 1u) != 0; }

 private:
  std::uint32_t bits_ = 0;
};

// For people: "trainer, admin".
std::string NamesOf(const RoleSet& roles);

struct AccessRule {
  std::string_view method;  // On the wire: /embla.v1.DataService/Lookup.
  RoleSet roles;
  bool changes;  // A successful call may change the cluster: the audit log has it.
};

std::span<const AccessRule> AccessRules();
// Null: there is none.
const AccessRule* FindAccessRule(std::string_view method);

// PermissionDenied says who may not call what, and who may.
absl::Status CheckAccess(std::string_view method, const Identity& caller);
// Without a caller, over plaintext, everything may be called.
absl::Status CheckAccess(std::string_view method, const std::optional<Identity>& caller);

// Trainers and readers may use the tables whose spec names them or nobody (TableSpec::callers).
// Other roles, callers over plaintext, and tables that the plan does not have are none of its
// business. PermissionDenied names caller and table.
absl::Status CheckTable(const std::optional<Identity>& caller, const Plan& plan, TableId table);

// A caller with a certificate has that name and no other. `kind` is "node" or "trainer".
// PermissionDenied names both.
absl::Status CheckName(const std::optional<Identity>& caller, std::string_view kind,
                       std::string_view name);

}  // namespace embla
