#include "client/python/native/eviction_binding.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include "client/python/native/errors.h"
#include "client/python/native/eviction_queue.h"
#include "client/python/native/fork_guard.h"
#include "client/python/native/waiting.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace embla::python {
namespace {

constexpr std::size_t kQueuedRowsMax = 1024;

// An array that owns its floats.
nb::object ArrayOf(std::vector<float> floats) {
  auto* owned = new std::vector<float>(std::move(floats));
  const nb::capsule owner(
      owned, [](void* memory) noexcept { delete static_cast<std::vector<float>*>(memory); });
  return nb::ndarray<nb::numpy, float, nb::ndim<1>>(owned->data(), {owned->size()}, owner).cast();
}

// One read of evictions, which goes on in a thread of its own until it is over or dropped.
class EvictionIterator {
 public:
  EvictionIterator(std::shared_ptr<client::Client> client, std::string table, bool follow) {
    std::thread([queue = queue_, client = std::move(client), table = std::move(table), follow] {
      queue->End(client->ReadEvictions(
          table, follow, [&queue](const client::EvictedRow& row) { return queue->Put(row); }));
    }).detach();
  }
  ~EvictionIterator() {
    if (!fork_guard_.forked()) queue_->Stop();
  }
  EvictionIterator(const EvictionIterator&) = delete;
  EvictionIterator& operator=(const EvictionIterator&) = delete;

  nb::dict Next() {
    if (fork_guard_.forked()) {
      RaiseNamed("ForkedClientError", "the reading was begun before this process was forked");
    }
    WaitInterruptibly([this](absl::Duration timeout) { return queue_->WaitFor(timeout); },
                      std::nullopt);
    absl::StatusOr<std::optional<OwnedEviction>> row = queue_->Take();
    Check(row.status());
    if (!row->has_value()) throw nb::stop_iteration();
    OwnedEviction& eviction = **row;
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
  const ForkGuard fork_guard_;
  const std::shared_ptr<EvictionQueue> queue_ = std::make_shared<EvictionQueue>(kQueuedRowsMax);
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
