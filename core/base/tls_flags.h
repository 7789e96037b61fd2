// The flags by which every program names its certificates.
#pragma once

namespace embla {

// Adds --tls-cert, --tls-key, --tls-ca and --tls-revoked to a CLI::App (or an option group).
// `files` has the members certificate, key, authorities and revoked, which are strings, and
// outlives the parsing. Only programs include CLI11, so its types are parameters here.
template <typename App, typename Files>
void AddTlsFlags(App& app, Files& files) {
  app.add_option("--tls-cert", files.certificate,
                 "TLS on every connection: the file of this program's certificate, PEM. It is read "
                 "again when it changes")
      ->envname("EMBLA_TLS_CERT");
  app.add_option("--tls-key", files.key, "File of its private key, PEM")
      ->envname("EMBLA_TLS_KEY")
      ->default_str("in the file of --tls-cert");
  app.add_option("--tls-ca", files.authorities,
                 "File of the authorities whose certificates are accepted, PEM")
      ->envname("EMBLA_TLS_CA");
  app.add_option("--tls-revoked", files.revoked,
                 "Directory of certificate revocation lists, PEM; empty: none")
      ->envname("EMBLA_TLS_REVOKED");
}

// For programs that call: `files` has the member token, a string.
template <typename App, typename Files>
void AddTokenFlag(App& app, Files& files) {
  app.add_option("--token-file", files.token,
                 "File of a token that takes the place of --tls-cert; read again when it changes")
      ->envname("EMBLA_TOKEN_FILE");
}

// For programs that are called: `files` has the member tokens, a string.
template <typename App, typename Files>
void AddTokensFlag(App& app, Files& files) {
  app.add_option("--tokens", files.tokens,
                 "File of hashes of tokens that callers may have instead of certificates, one a "
                 "line, as embla token new prints it; read again when it changes; empty: none");
}

}  // namespace embla
