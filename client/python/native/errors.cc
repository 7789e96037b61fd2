#include "client/python/native/errors.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "embla/client.h"

namespace nb = nanobind;

namespace embla::python {
namespace {

bool MayHaveHappened(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded;
}

[[noreturn]] void Throw(nb::handle exception) {
  PyErr_SetObject(exception.type().ptr(), exception.ptr());
  throw nb::python_error();
}

}  // namespace

void Raise(const absl::Status& status, CallKind kind) {
  const client::ErrorDetails details = client::DetailsOf(status);
  const bool unknown =
      details.outcome_unknown || (kind == CallKind::kWrite && MayHaveHappened(status.code()));
  const std::string message(status.message());
  Throw(nb::module_::import_("embla.errors")
            .attr("from_status")(static_cast<int>(status.code()), message, unknown, details.table,
                                 details.node, details.retryable));
}

void RaiseNamed(const char* name, const std::string& message) {
  Throw(nb::module_::import_("embla.errors").attr(name)(message));
}

}  // namespace embla::python
