// Test support: what a program of this machine answers over HTTP.
#pragma once

#include <string>

namespace embla::testing {

// The whole answer, head and body, to GET `path` of `address`, such as 127.0.0.1:80; empty: nobody
// answers.
std::string HttpGet(const std::string& address, const std::string& path);

}  // namespace embla::testing
