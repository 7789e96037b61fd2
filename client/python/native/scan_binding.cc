#include "client/python/native/scan_binding.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include "client/python/native/arrays.h"
#include "client/python/native/reading.h"
#include "embla/client.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace embla::python {
namespace {

// One stretch is in Python's hands, one waits, one is read: about 16 MiB each.
constexpr std::size_t kQueuedStretchesMax = 1;

// client::TableRows with its own memory.
struct OwnedRows {
  std::int64_t first_row = 0;
  std::vector<std::int64_t> ids;
  std::vector<float> weights;
  std::vector<float> state;
};

class ScanIterator {
 public:
  ScanIterator(std::shared_ptr<client::Client> client, std::string table, bool with_state)
      : reading_(kQueuedStretchesMax, [client = std::move(client), table = std::move(table),
                                       with_state](ItemQueue<OwnedRows>& queue) {
          return client->ScanTable(table, with_state, [&queue](const client::TableRows& rows) {
            return queue.Put({.first_row = rows.first_row,
                              .ids = {rows.ids.begin(), rows.ids.end()},
                              .weights = {rows.weights.begin(), rows.weights.end()},
                              .state = {rows.state.begin(), rows.state.end()}});
          });
        }) {}

  nb::dict Next() {
    OwnedRows rows = reading_.Next();
    nb::dict fields;
    fields["first_row"] = rows.first_row;
    fields["ids"] = ArrayOf(std::move(rows.ids));
    fields["weights"] = ArrayOf(std::move(rows.weights));
    fields["state"] = ArrayOf(std::move(rows.state));
    return fields;
  }

 private:
  Reading<OwnedRows> reading_;
};

}  // namespace

void BindScans(nb::module_& module, nb::class_<ClientHandle>& binding) {
  nb::class_<ScanIterator>(module, "ScanIterator",
                           "Stretches of a table's rows, one dict after another: weights and state "
                           "are flat. A reading that is dropped ends with the next stretch.")
      .def(
          "__iter__", [](nb::handle self) { return self; },
          nb::sig("def __iter__(self) -> ScanIterator"))
      .def("__next__", &ScanIterator::Next);
  binding.def(
      "_scan",
      [](ClientHandle& handle, std::string table, bool with_state) {
        return std::make_unique<ScanIterator>(handle.Use(), std::move(table), with_state);
      },
      "table"_a, "with_state"_a);
}

}  // namespace embla::python
