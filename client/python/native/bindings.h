// The parts of the module.
#pragma once

#include <nanobind/nanobind.h>

namespace embla::python {

void BindFeatures(nanobind::module_& module);
void BindClient(nanobind::module_& module);
void BindAdmin(nanobind::module_& module);
void BindChildren(nanobind::module_& module);

}  // namespace embla::python
