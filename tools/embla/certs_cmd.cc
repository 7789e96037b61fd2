#include "tools/embla/certs_cmd.h"

#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "core/base/file.h"
#include "core/base/status_macros.h"
#include "core/base/text.h"
#include "core/tls/certificate.h"
#include "core/tls/certificate_authority.h"
#include "core/tls/identity.h"
#include "tools/embla/text_table.h"

namespace embla::cli {
namespace {

std::string AuthorityFile(const CertsFlags& flags) { return flags.directory + "/ca.pem"; }
std::string AuthorityKey(const CertsFlags& flags) { return flags.directory + "/ca.key"; }
// The serial numbers that are revoked, one a line.
std::string SerialsFile(const CertsFlags& flags) { return flags.directory + "/revoked.txt"; }

absl::StatusOr<CertificateAndKey> ReadAuthorityOf(const CertsFlags& flags) {
  CertificateAndKey authority;
  EMBLA_ASSIGN_OR_RETURN(authority.certificate, ReadFile(AuthorityFile(flags)));
  EMBLA_ASSIGN_OR_RETURN(authority.key, ReadFile(AuthorityKey(flags)));
  return authority;
}

nlohmann::ordered_json ViewOf(const std::string& file, const CertificateFacts& facts) {
  return {{"file", file},
          {"identity", facts.uri},
          {"serial", facts.serial},
          {"issuer", facts.issuer},
          {"is_authority", facts.is_authority},
          {"not_before", TimeView(facts.not_before)},
          {"not_after", TimeView(facts.not_after)}};
}

std::string LeftUntil(absl::Time end, absl::Time now) {
  const std::int64_t hours = (end - now) / absl::Hours(1);
  if (end <= now) return "expired";
  return hours < 48 ? absl::StrCat(hours, " h") : absl::StrCat(hours / 24, " days");
}

}  // namespace

absl::Status CertsInitVerb(const CertsFlags& flags, const Output& output) {
  if (ReadFile(AuthorityKey(flags)).ok()) {
    return absl::AlreadyExistsError(
        absl::StrCat(AuthorityKey(flags), " exists: what it has signed would be refused"));
  }
  EMBLA_ASSIGN_OR_RETURN(
      const CertificateAndKey authority,
      MakeAuthority(flags.cluster, absl::Hours(24) * flags.authority_days, absl::Now()));
  EMBLA_RETURN_IF_ERROR(MakeDirectories(flags.directory));
  EMBLA_RETURN_IF_ERROR(AtomicWriteFile(AuthorityKey(flags), authority.key));
  EMBLA_RETURN_IF_ERROR(AtomicWriteFile(AuthorityFile(flags), authority.certificate));
  if (output.json) {
    EMBLA_ASSIGN_OR_RETURN(const CertificateFacts facts, ReadCertificate(authority.certificate));
    output.PutJson(ViewOf(AuthorityFile(flags), facts));
    return absl::OkStatus();
  }
  output.out << "made the authority of cluster " << flags.cluster << ": " << AuthorityFile(flags)
             << " goes to every program (--tls-ca), " << AuthorityKey(flags)
             << " stays where it is safe\n";
  return absl::OkStatus();
}

absl::Status CertsIssueVerb(const CertsFlags& flags, const Output& output) {
  const std::optional<Role> role = RoleNamed(flags.role);
  if (!role.has_value()) {
    std::string known;
    for (const Role each : kAllRoles) absl::StrAppend(&known, " ", ToAbsl(NameOf(each)));
    return absl::InvalidArgumentError(
        absl::StrCat("there is no role \"", flags.role, "\"; roles are", known));
  }
  EMBLA_ASSIGN_OR_RETURN(const CertificateAndKey authority, ReadAuthorityOf(flags));
  Identity identity{.cluster = {}, .role = *role, .name = flags.name};
  EMBLA_ASSIGN_OR_RETURN(identity.cluster, ClusterOfAuthority(authority.certificate));
  EMBLA_ASSIGN_OR_RETURN(
      const CertificateAndKey issued,
      IssueCertificate(authority, identity, absl::Hours(24) * flags.days, absl::Now()));
  const std::string file =
      flags.out.empty() ? absl::StrCat(flags.directory, "/", flags.role, "-", flags.name, ".pem")
                        : flags.out;
  EMBLA_RETURN_IF_ERROR(AtomicWriteFile(file, issued.key + issued.certificate));
  EMBLA_ASSIGN_OR_RETURN(const CertificateFacts facts, ReadCertificate(issued.certificate));
  if (output.json) {
    output.PutJson(ViewOf(file, facts));
    return absl::OkStatus();
  }
  output.out << file << ": " << facts.uri << ", with its key, until " << TimeText(facts.not_after)
             << "\n";
  return absl::OkStatus();
}

absl::Status CertsShowVerb(const CertsFlags& flags, const Output& output) {
  const absl::Time now = absl::Now();
  TextTable table({"FILE", "IDENTITY", "ENDS", ">LEFT"});
  nlohmann::ordered_json views = nlohmann::ordered_json::array();
  for (const std::string& file : flags.files) {
    EMBLA_ASSIGN_OR_RETURN(const std::string pem, ReadFile(file));
    const absl::StatusOr<CertificateFacts> facts = ReadCertificate(pem);
    if (!facts.ok()) return Annotate(facts.status(), file);
    views.push_back(ViewOf(file, *facts));
    table.Add({file, facts->is_authority ? facts->uri + " (authority)" : facts->uri,
               TimeText(facts->not_after), LeftUntil(facts->not_after, now)});
  }
  if (output.json) {
    output.PutJson(views);
  } else {
    output.out << table.Render();
  }
  return absl::OkStatus();
}

absl::Status CertsRevokeVerb(const CertsFlags& flags, const Output& output) {
  EMBLA_ASSIGN_OR_RETURN(const CertificateAndKey authority, ReadAuthorityOf(flags));
  std::vector<std::string> serials;
  if (const absl::StatusOr<std::string> known = ReadFile(SerialsFile(flags)); known.ok()) {
    for (const auto& line : absl::StrSplit(*known, '\n', absl::SkipEmpty())) {
      serials.emplace_back(ToStd(line));
    }
  }
  for (const std::string& file : flags.files) {
    EMBLA_ASSIGN_OR_RETURN(const std::string pem, ReadFile(file));
    const absl::StatusOr<CertificateFacts> facts = ReadCertificate(pem);
    if (!facts.ok()) return Annotate(facts.status(), file);
    serials.push_back(facts->serial);
  }
  EMBLA_ASSIGN_OR_RETURN(
      const std::string list,
      MakeRevocationList(authority, serials, absl::Hours(24) * flags.list_days, absl::Now()));
  std::string lines;
  for (const std::string& serial : serials) absl::StrAppend(&lines, serial, "\n");
  const std::string directory = flags.directory + "/revoked";
  EMBLA_RETURN_IF_ERROR(AtomicWriteFile(SerialsFile(flags), lines));
  EMBLA_RETURN_IF_ERROR(MakeDirectories(directory));
  EMBLA_RETURN_IF_ERROR(AtomicWriteFile(directory + "/list.pem", list));
  if (output.json) {
    output.PutJson({{"file", directory + "/list.pem"}, {"serials", serials}});
    return absl::OkStatus();
  }
  output.out << directory << "/list.pem: " << serials.size() << " revoked; copy it to the "
             << "directory of --tls-revoked of every program, again within " << flags.list_days
             << " days\n";
  return absl::OkStatus();
}

}  // namespace embla::cli
