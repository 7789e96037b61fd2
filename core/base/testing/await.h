// Waits for a state that other threads bring about, never for time to pass.
//
//   ASSERT_TRUE(AwaitFor([&] { return node.plan_version() == 2; }, absl::Seconds(10),
//                        "the node installs plan 2"));
#pragma once

#include <functional>
#include <source_location>
#include <string_view>

#include "absl/time/time.h"

namespace embla::testing {

// Asks `condition` until it is true, at first often, later every 5 ms. After `limit` the test
// fails in the caller's line, with the words `what`, and the result is false.
// Any thread; the condition is asked on the calling one.
bool AwaitFor(const std::function<bool()>& condition, absl::Duration limit, std::string_view what,
              std::source_location where = std::source_location::current());

}  // namespace embla::testing
