#include "tools/embla/token_cmd.h"

#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/file.h"
#include "core/base/status_macros.h"
#include "core/tls/certificate_authority.h"
#include "core/tls/identity.h"
#include "core/tls/token.h"
#include "tools/embla/invocation.h"

namespace embla::cli {

std::vector<Verb> TokenVerbs() {
  const auto flags = std::make_shared<TokenFlags>();
  return {
      {.name = "new",
       .help = "make a token: shown once, with the line for --tokens of servers",
       .arguments = {{"role", "trainer, reader, operator or admin", &flags->role},
                     {"name", "the caller's name", &flags->name},
                     {"--days", "until it ends; 0: never; default 90", &flags->days, false},
                     {"--dir",
                      "directory of the authority, which knows the cluster's name; "
                      "default certs",
                      &flags->directory, false},
                     {"--cluster", "the cluster's name, instead of --dir", &flags->cluster, false}},
       .run_alone = [flags](const Invocation& in) {
         return TokenNewVerb(*flags, absl::Now(), in.output());
       }}};
}

absl::Status TokenNewVerb(const TokenFlags& flags, absl::Time now, const Output& output) {
  const std::optional<Role> role = RoleNamed(flags.role);
  if (!role.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "there is no role \"", flags.role, "\"; tokens are for trainer, reader, operator, admin"));
  }
  Identity identity{.cluster = flags.cluster, .role = *role, .name = flags.name};
  if (flags.cluster.empty()) {
    EMBLA_ASSIGN_OR_RETURN(const std::string authority, ReadFile(flags.directory + "/ca.pem"));
    EMBLA_ASSIGN_OR_RETURN(identity.cluster, ClusterOfAuthority(authority));
  }
  EMBLA_ASSIGN_OR_RETURN(const std::string token, NewToken(identity));
  const absl::Time end = flags.days == 0
                             ? absl::InfiniteFuture()
                             : now + absl::Hours(24) * static_cast<std::int64_t>(flags.days);
  const std::string line = LineOfToken(identity, token, end);
  if (output.json) {
    output.PutJson({{"identity", UriOf(identity)}, {"token", token}, {"line", line}});
    return absl::OkStatus();
  }
  output.out << "token, for the file of --token-file, mode 0600; it is not shown again:\n"
             << token << "\n\nline for the file of --tokens of the coordinators and nodes:\n"
             << line << "\n";
  return absl::OkStatus();
}

}  // namespace embla::cli
