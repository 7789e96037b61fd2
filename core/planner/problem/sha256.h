// SHA-256 (FIPS 180-4), by OpenSSL: names plans and their inputs.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace embla::planner {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  void Add(std::string_view bytes);
  // 64 hexadecimal digits. The object is spent afterwards.
  std::string Finish();

 private:
  struct Context;  // OpenSSL's.
  void Flush();

  std::unique_ptr<Context> context_;
  std::string pending_;  // Many small additions become one call.
};

}  // namespace embla::planner
