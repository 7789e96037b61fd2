#include "client/python/native/bindings.h"
#include "client/python/native/child_starter.h"
#include "client/python/native/errors.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace embla::python {

void BindChildren(nb::module_& module) {
  nb::class_<ChildStarter>(module, "ChildStarter",
                           "Starts programs that end with this process, however it ends, and with "
                           "this object.")
      .def(nb::init<>())
      .def(
          "start",
          [](ChildStarter& starter, const std::vector<std::string>& command,
             const std::string& log_path) {
            absl::StatusOr<int> pid = absl::InternalError("");
            {
              const nb::gil_scoped_release no_gil;
              pid = starter.Start(command, log_path);
            }
            Check(pid.status());
            return *pid;
          },
          "command"_a, "log_path"_a,
          "Starts `command`, whose first word is a path, with its output appended to the log; "
          "returns its process id. The caller waits for its end.")
      .def("close", &ChildStarter::Close, nb::call_guard<nb::gil_scoped_release>(),
           "Ends the children that are left, with SIGTERM.");
}

}  // namespace embla::python
