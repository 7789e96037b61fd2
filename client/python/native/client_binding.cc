// The Python classes Client and Ticket.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "client/python/native/bindings.h"
#include "client/python/native/client_handle.h"
#include "client/python/native/eviction_binding.h"
#include "client/python/native/feature_binding.h"
#include "client/python/native/options.h"
#include "client/python/native/packed_binding.h"
#include "client/python/native/scan_binding.h"
#include "client/python/native/table_binding.h"
#include "client/python/native/ticket.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace embla::python {
namespace {

void Connect(ClientHandle* self, std::string coordinator, std::string name, std::string trainer,
             double timeout, std::string_view transport, int connections_per_node,
             std::int64_t in_flight_bytes_max_per_node, double retry_budget_ratio, int threads,
             std::optional<std::uint32_t> replica_group, bool waits_for_coordinator,
             std::optional<std::uint32_t> rank, std::uint32_t ranks,
             std::optional<client::TlsOptions> tls, nb::object traceparent) {
  new (self) ClientHandle({.coordinator = std::move(coordinator),
                           .name = std::move(name),
                           .trainer = std::move(trainer),
                           .timeout = DurationFromSeconds("timeout", timeout),
                           .transport = TransportFromName(transport),
                           .connections_per_node = connections_per_node,
                           .in_flight_bytes_max_per_node = in_flight_bytes_max_per_node,
                           .retry_budget_ratio = retry_budget_ratio,
                           .threads = threads,
                           .replica_group = replica_group,
                           .waits_for_coordinator = waits_for_coordinator,
                           .rank = rank,
                           .ranks = ranks,
                           .tls = tls.value_or(client::TlsOptions()),
                           .traceparent = TraceparentOf(std::move(traceparent))});
}

nb::object Await(nb::handle ticket) {
  return nb::module_::import_("embla._await").attr("completed")(ticket).attr("__await__")();
}

void BindTicket(nb::module_& module) {
  nb::class_<Ticket>(module, "Ticket",
                     "A call that is running. It keeps its arrays alive until it is over; a ticket "
                     "that is dropped before waits for that.")
      .def("wait", &Ticket::Wait, "timeout"_a = nb::none(),
           nb::sig("def wait(self, timeout: float | None = None) -> typing.Any"),
           "Waits for the call and returns its result, or raises its error. `timeout` seconds, "
           "then DeadlineExceededError: the call itself goes on.")
      .def("done", &Ticket::done, "Whether `wait` returns at once.")
      .def("cancel", &Ticket::Cancel,
           "Gives up a lookup that is not over: its `wait` raises CancelledError, and `out` may "
           "be written for a while. False: it is over, or it is an update, which cannot be taken "
           "back.")
      .def("cancelled", &Ticket::cancelled)
      .def(
          "__await__", &Await,
          nb::sig("def __await__(self) -> collections.abc.Generator[typing.Any, None, typing.Any]"))
      .def("_fileno", &Ticket::ReadableDescriptor,
           "A descriptor that is readable when the call is over; the ticket's own.");
}

void BindTls(nb::module_& module) {
  nb::class_<client::TlsOptions>(module, "Tls",
                                 "The certificates of a connection, or its token: paths of files, "
                                 "which are read again when they change.")
      .def(
          "__init__",
          [](client::TlsOptions* self, std::string certificate, std::string authorities,
             std::string key, std::string revoked, std::string token) {
            new (self)
                client::TlsOptions{std::move(certificate), std::move(key), std::move(authorities),
                                   std::move(revoked), std::move(token)};
          },
          "certificate"_a = "", "authorities"_a = "", "key"_a = "", "revoked"_a = "",
          "token"_a = "")
      .def_ro("certificate", &client::TlsOptions::certificate,
              "The client's own; empty, and no token: the connection is plaintext.")
      .def_ro("authorities", &client::TlsOptions::authorities,
              "Authorities whose certificates are accepted.")
      .def_ro("key", &client::TlsOptions::key,
              "The certificate's private key; empty: it is in the certificate's file.")
      .def_ro("revoked", &client::TlsOptions::revoked,
              "A directory of revocation lists; empty: none.")
      .def_ro("token", &client::TlsOptions::token,
              "A file with a token, which takes the certificate's place.");
}

}  // namespace

void BindClient(nb::module_& module) {
  BindTls(module);
  BindTicket(module);
  nb::class_<ClientHandle> binding(module, "Client");
  binding.def("__init__", &Connect, "coordinator"_a, nb::kw_only(), "name"_a = "", "trainer"_a = "",
              "timeout"_a = 10.0, "transport"_a = "auto", "connections_per_node"_a = 1,
              "in_flight_bytes_max_per_node"_a = 64 << 20, "retry_budget_ratio"_a = 0.1,
              "threads"_a = 2, "replica_group"_a = nb::none(), "waits_for_coordinator"_a = true,
              "rank"_a = nb::none(), "ranks"_a = 0, "tls"_a = nb::none(),
              "traceparent"_a = nb::none());
  BindPackedCalls(binding);
  binding.def("_lookup_features", &LookupFeatures, "features"_a, "wire"_a, "timeout"_a,
              "combine_duplicates"_a, nb::arg("result").none());
  binding.def("_update_features", &UpdateFeatures, "features"_a, "step"_a, "wire"_a, "timeout"_a,
              "combine_duplicates"_a);
  BindTables(binding);
  BindEvictions(module, binding);
  BindScans(module, binding);
  binding.def_prop_ro("closed", &ClientHandle::closed);
  binding.def_prop_ro(
      "plan_version", [](ClientHandle& handle) { return handle.Use()->plan_version(); },
      "The version of the plan that calls go by.");
  binding.def_prop_ro(
      "has_taken_over", [](ClientHandle& handle) { return handle.Use()->has_taken_over(); },
      "Whether the session took the place of an earlier one of the same trainer: its rank then "
      "goes on with the step at which that one was.");
  binding.def_prop_ro(
      "session", [](ClientHandle& handle) { return handle.Use()->session(); },
      "The number of this process of the trainer.");
  binding.def(
      "metrics_text", [](ClientHandle& handle) { return handle.Use()->MetricsText(); },
      "This client's metrics in the Prometheus text format.");
  binding.def(
      "flush",
      [](ClientHandle& handle, double timeout) {
        Check(handle.Flush(DurationFromSeconds("timeout", timeout)), CallKind::kWrite);
      },
      "timeout"_a = 30.0,
      "Waits for the updates in flight; raises the error of the first that fails, or "
      "DeadlineExceededError where some are not over after `timeout` seconds.");
  binding.def(
      "_close",
      [](ClientHandle& handle, double timeout) {
        Check(handle.Close(DurationFromSeconds("timeout", timeout)));
      },
      "timeout"_a);
}

}  // namespace embla::python
