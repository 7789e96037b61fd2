// Reading all rows of a table, as a method of the Python class Client and an iterator.
#pragma once

#include <nanobind/nanobind.h>

#include "client/python/native/client_handle.h"

namespace embla::python {

void BindScans(nanobind::module_& module, nanobind::class_<ClientHandle>& binding);

}  // namespace embla::python
