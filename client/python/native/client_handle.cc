#include "client/python/native/client_handle.h"

#include <algorithm>
#include <utility>

#include "client/python/native/waiting.h"
#include "core/base/clock.h"

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

void ClientHandle::Track(const std::shared_ptr<Completion>& update) {
  // The service's window for updates of one session is smaller: the rest is over.
  constexpr std::size_t kTrackedMax = 512;
  if (updates_.size() >= kTrackedMax) {
    std::erase_if(updates_, [](const auto& completion) { return completion->done(); });
  }
  updates_.push_back(update);
}

absl::Status ClientHandle::Flush(absl::Duration timeout) {
  Use();
  const absl::Time deadline = Clock::Real().Now() + timeout;
  absl::Status first_error;
  // A copy: other threads start updates meanwhile, which this does not wait for.
  for (const std::shared_ptr<Completion>& update : std::vector(updates_)) {
    if (update->done()) continue;
    if (!WaitInterruptibly(*update,
                           std::max(deadline - Clock::Real().Now(), absl::ZeroDuration()))) {
      return absl::DeadlineExceededError("some updates are not over yet; they go on");
    }
    first_error.Update(update->status());
  }
  std::erase_if(updates_, [](const auto& completion) { return completion->done(); });
  return first_error;
}

absl::Status ClientHandle::Close(absl::Duration timeout) {
  if (client_ == nullptr) return absl::OkStatus();
  if (fork_guard_.forked()) {
    // Leaked for the reason given in the destructor.
    new std::shared_ptr<Client>(std::move(client_));
    return absl::OkStatus();
  }
  const absl::Status closed =
      RunInterruptibly([client = std::move(client_), timeout] { return client->Close(timeout); },
                       // The calls whose end nobody waits for are nobody's any more.
                       [this](const std::shared_ptr<Completion>&) { parked_->StopWaiting(); });
  parked_->Sweep();
  return closed;
}

}  // namespace embla::python
