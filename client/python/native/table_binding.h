// Rows, state and upkeep of tables, as methods of the Python class Client.
#pragma once

#include <nanobind/nanobind.h>

#include "client/python/native/client_handle.h"

namespace embla::python {

void BindTables(nanobind::class_<ClientHandle>& binding);

}  // namespace embla::python
