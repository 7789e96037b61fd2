// Packed calls, as methods of the Python class Client.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "client/python/native/arrays.h"
#include "client/python/native/client_handle.h"
#include "client/python/native/features.h"
#include "client/python/native/ticket.h"

namespace embla::python {

// Adds the packed calls to the class Client.
void BindPackedCalls(nanobind::class_<ClientHandle>& binding);

}  // namespace embla::python
