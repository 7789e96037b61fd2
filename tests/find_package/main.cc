// A user's first program, without a cluster.
#include <cstdio>

#include "embla/admin.h"
#include "embla/client.h"

int main() {
  const absl::Duration timeout = absl::Milliseconds(300);
  const auto client =
      embla::client::Client::Connect({.coordinator = "127.0.0.1:1", .timeout = timeout});
  const auto admin = embla::client::Admin::Connect("127.0.0.1:1", timeout);
  std::printf("client: %s\nadmin: %s\n", client.status().ToString().c_str(),
              admin.status().ToString().c_str());
  const bool expected = absl::IsUnavailable(client.status()) && absl::IsUnavailable(admin.status());
  return expected ? 0 : 1;
}
