#include "tools/embla/health_cmd.h"

#include <ctime>
#include <memory>

#include <httplib.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tools/embla/invocation.h"

namespace embla::cli {
namespace {

constexpr std::time_t kTimeoutSeconds = 3;

}  // namespace

std::vector<Verb> HealthVerbs() {
  struct Words {
    std::string url;
    bool is_live = false;
  };
  const auto words = std::make_shared<Words>();
  return {
      {.name = "health",
       .help = "whether one server is ready, for health checks of containers",
       .arguments = {{"url", "its metrics address, http://HOST:PORT, over TLS https://HOST:PORT",
                      &words->url},
                     {"--live", "whether it lives at all", &words->is_live, false}},
       .run_alone = [words](const Invocation& in) {
         return HealthVerb(words->url, words->is_live, in.output());
       }}};
}

absl::Status HealthVerb(const std::string& url, bool is_live, const Output& output) {
  httplib::Client client(url);
  if (!client.is_valid() || !(url.starts_with("http://") || url.starts_with("https://"))) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", url, "\" is neither http://HOST:PORT nor https://HOST:PORT"));
  }
  client.enable_server_certificate_verification(false);
  client.set_connection_timeout(kTimeoutSeconds);
  client.set_read_timeout(kTimeoutSeconds);
  const httplib::Result answer = client.Get(is_live ? "/healthz" : "/readyz");
  if (!answer) {
    return absl::UnavailableError(absl::StrCat(url, ": ", httplib::to_string(answer.error())));
  }
  const std::string text(absl::StripAsciiWhitespace(answer->body));
  if (answer->status != 200) return absl::FailedPreconditionError(absl::StrCat(url, ": ", text));
  if (output.json) {
    output.PutJson({{"health", text}});
  } else {
    output.out << text << "\n";
  }
  return absl::OkStatus();
}

}  // namespace embla::cli
