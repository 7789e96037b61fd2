// A part of what a program serves over HTTP beside its metrics: a path, and who answers it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/tls/identity.h"

namespace embla {

struct WebRequest {
  bool is_over_tls = false;
  bool is_loopback = false;  // It came to an address of this machine that others cannot reach.
  std::optional<Identity> caller = {};  // Over TLS: by a certificate or a token of the cluster.
  std::string refusal = {};             // Over TLS, without a caller: why.
  std::string host = {};                // The header: what the caller takes this server for.
  std::map<std::string, std::string> parameters = {};  // After the question mark, decoded.

  // Empty: it is missing.
  std::string Parameter(const std::string& name) const {
    const auto found = parameters.find(name);
    return found == parameters.end() ? std::string() : found->second;
  }
};

struct WebAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
};

struct WebRoute {
  std::string path;  // The whole path; a GET of any other is none of this route's.
  // Asked on one of a few threads that also serve metrics and probes: must not wait for long.
  std::function<WebAnswer(const WebRequest& request)> answer;
};

}  // namespace embla
