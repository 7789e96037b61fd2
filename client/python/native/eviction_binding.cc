#include "client/python/native/eviction_binding.h"

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

constexpr std::size_t kQueuedRowsMax = 1024;

// client::EvictedRow with its own memory.
struct OwnedEviction {
  std::int64_t id = 0;
  std::string reason;
  std::uint64_t step = 0;
  std::uint64_t last_step = 0;
  std::vector<float> weights;
  std::vector<float> state;
  std::uint64_t missed = 0;
};

class EvictionIterator {
 public:
  EvictionIterator(std::shared_ptr<client::Client> client, std::string table, bool follow)
      : reading_(kQueuedRowsMax, [client = std::move(client), table = std::move(table),
                                  follow](ItemQueue<OwnedEviction>& queue) {
          return client->ReadEvictions(table, follow, [&queue](const client::EvictedRow& row) {
            return queue.Put({.id = row.id,
                              .reason = row.reason,
                              .step = row.step,
                              .last_step = row.last_step,
                              .weights = {row.weights.begin(), row.weights.end()},
                              .state = {row.state.begin(), row.state.end()},
                              .missed = row.missed});
          });
        }) {}

  nb::dict Next() {
    OwnedEviction eviction = reading_.Next();
    nb::dict fields;
    fields["id"] = eviction.id;
    fields["reason"] = eviction.reason;
    fields["step"] = eviction.step;
    fields["last_step"] = eviction.last_step;
    fields["weights"] = ArrayOf(std::move(eviction.weights));
    fields["state"] = ArrayOf(std::move(eviction.state));
    fields["missed"] = eviction.missed;
    return fields;
  }

 private:
  Reading<OwnedEviction> reading_;
};

}  // namespace

void BindEvictions(nb::module_& module, nb::class_<ClientHandle>& binding) {
  nb::class_<EvictionIterator>(
      module, "EvictionIterator",
      "Evicted rows, one dict after another. A reading that is dropped ends "
      "with the next row, or with the client.")
      .def(
          "__iter__", [](nb::handle self) { return self; },
          nb::sig("def __iter__(self) -> EvictionIterator"))
      .def("__next__", &EvictionIterator::Next);
  binding.def(
      "_evictions",
      [](ClientHandle& handle, std::string table, bool follow) {
        return std::make_unique<EvictionIterator>(handle.Use(), std::move(table), follow);
      },
      "table"_a, "follow"_a);
}

}  // namespace embla::python
