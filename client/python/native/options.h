// Words of the Python API as enumerations of the client.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <nanobind/nanobind.h>

#include "embla/client.h"

namespace embla::python {

// Raise InvalidArgumentError, which names the words there are.
client::WireFormat WireFromName(std::string_view name);
client::Pooling PoolingFromName(std::string_view name);
client::Transport TransportFromName(std::string_view name);

// `timeout_seconds` 0: the client's own.
client::CallOptions MakeCallOptions(std::string_view wire, double timeout_seconds);

// Raises InvalidArgumentError for NaN and negative numbers.
absl::Duration DurationFromSeconds(std::string_view name, double seconds);

// ConnectOptions::traceparent by a Python callable, or None. It is asked on threads of Python's own
// only; an error of it is reported as unraisable, and is no trace.
std::function<std::string()> TraceparentOf(nanobind::object callable);

}  // namespace embla::python
