#include "client/python/native/client_handle.h"

#include <thread>
#include <utility>

#include "client/python/native/waiting.h"

namespace nb = nanobind;

namespace embla::python {
namespace {

using client::Client;

}  // namespace

ClientHandle::ClientHandle(client::ConnectOptions options) {
  // Owned by the thread that connects, which may outlive this call.
  auto made = std::make_shared<std::shared_ptr<Client>>();
  Check(RunInterruptibly([options = std::move(options), made] {
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(options);
    if (client.ok()) *made = *std::move(client);
    return client.status();
  }));
  client_ = std::move(*made);
}

ClientHandle::~ClientHandle() {
  if (client_ == nullptr) return;
  if (fork_guard_.forked()) {
    new std::shared_ptr<Client>(std::move(client_));  // Its threads are in the parent: never ends.
    return;
  }
  const nb::gil_scoped_release no_gil;
  client_.reset();
}

std::shared_ptr<Client> ClientHandle::Use() {
  if (fork_guard_.forked()) {
    RaiseNamed("ForkedClientError",
               "this process was forked after the client connected: connect again in it");
  }
  if (client_ == nullptr) RaiseNamed("ClientClosedError", "the client is closed");
  parked_->Sweep();
  return client_;
}

absl::Status ClientHandle::Run(std::function<absl::Status(Client&)> call, KeptArrays arrays) {
  return RunInterruptibly([client = Use(), call = std::move(call)] { return call(*client); },
                          [this, &arrays](std::shared_ptr<Completion> completion) {
                            parked_->Park(std::move(completion), std::move(arrays));
                          });
}

bool ClientHandle::Close(absl::Duration timeout) {
  if (client_ == nullptr) return true;
  if (fork_guard_.forked()) {
    new std::shared_ptr<Client>(std::move(client_));  // As in the destructor.
    return true;
  }
  auto closed = std::make_shared<Completion>();
  {
    const nb::gil_scoped_release no_gil;
    std::thread([closed, client = std::move(client_)]() mutable {
      client.reset();
      closed->Set(absl::OkStatus());
    }).detach();
  }
  // The calls that the wait below does not see the end of are nobody's any more.
  parked_->StopWaiting();
  const bool over = WaitInterruptibly(*closed, timeout);
  parked_->Sweep();
  return over;
}

}  // namespace embla::python
