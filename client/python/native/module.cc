// embla._native: the C++ client for Python. No Python logic here, and nothing of torch: the package
// `embla` around it has what users see.
#include <nanobind/nanobind.h>

#include "client/python/native/bindings.h"
#include "client/python/native/fork_guard.h"

namespace nb = nanobind;

NB_MODULE(_native, module) {
  // Clients that live in a module's globals are still there when the interpreter looks.
  nb::set_leak_warnings(false);
  module.def("version", [] { return EMBLA_VERSION; });
  embla::python::WatchForks();
  embla::python::BindFeatures(module);
  embla::python::BindClient(module);
  embla::python::BindAdmin(module);
  embla::python::BindChildren(module);
}
