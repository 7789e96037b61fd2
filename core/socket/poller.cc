#include "core/socket/poller.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/short_wait.h"

namespace embla {
namespace {

absl::Status CannotWatch(int error) {
  return absl::UnavailableError(absl::StrCat("cannot watch sockets: ", std::strerror(error)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Poller>> Poller::Start(bool looks) {
  FileDescriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.is_open()) return CannotWatch(errno);
  FileDescriptor wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.is_open()) return CannotWatch(errno);
  epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
  if (::epoll_ctl(epoll.number(), EPOLL_CTL_ADD, wake.number(), &event) != 0) {
    return CannotWatch(errno);
  }
  return std::unique_ptr<Poller>(new Poller(std::move(epoll), std::move(wake), looks));
}

Poller::Poller(FileDescriptor epoll, FileDescriptor wake, bool looks)
    : epoll_(std::move(epoll)), wake_(std::move(wake)), looks_(looks), thread_([this] { Run(); }) {}

Poller::~Poller() {
  stopping_.store(true, std::memory_order_release);  // Pairs with Run's acquire.
  Wake(nullptr);
  thread_.join();
}

void Poller::Wake(std::shared_ptr<Watched> watched) {
  {
    MutexLock lock(mu_);
    woken_.push_back(std::move(watched));
  }
  const std::uint64_t one = 1;
  (void)!::write(wake_.number(), &one, sizeof(one));
}

absl::Status Poller::Add(int fd, std::uint32_t events, std::shared_ptr<Watched> watched) {
  epoll_event event{.events = events, .data = {.ptr = watched.get()}};
  MutexLock lock(mu_);
  if (::epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, fd, &event) != 0) return CannotWatch(errno);
  watched_.emplace(watched.get(), std::move(watched));
  return absl::OkStatus();
}

void Poller::Change(int fd, std::uint32_t events, Watched& watched) {
  epoll_event event{.events = events, .data = {.ptr = &watched}};
  ::epoll_ctl(epoll_.number(), EPOLL_CTL_MOD, fd, &event);
}

void Poller::Remove(int fd, Watched& watched) {
  ::epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, fd, nullptr);
  MutexLock lock(mu_);
  const auto found = watched_.find(&watched);
  if (found == watched_.end()) return;
  removed_ = std::move(found->second);
  watched_.erase(found);
}

void Poller::Run() {
  std::array<epoll_event, 64> events;
  ShortWait short_wait;
  while (!stopping_.load(std::memory_order_acquire)) {
    int count = 0;
    const auto wait = [&](bool sleeps) {
      count = ::epoll_wait(epoll_.number(), events.data(), static_cast<int>(events.size()),
                           sleeps ? -1 : 0);
      return count > 0 || sleeps;
    };
    if (looks_) {
      short_wait.Until(wait);
    } else {
      wait(/*sleeps=*/true);
    }
    for (int i = 0; i < count; ++i) {
      // One event per descriptor, and whoever is removed here removes itself: none is stale.
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.ptr == nullptr) {
        std::uint64_t wakes = 0;
        (void)!::read(wake_.number(), &wakes, sizeof(wakes));
        continue;
      }
      static_cast<Watched*>(event.data.ptr)->OnEvents(event.events);
      removed_.reset();
    }
    // After them: what is removed here has no event that waits to be handled.
    RunWoken();
  }
}

void Poller::RunWoken() {
  std::vector<std::shared_ptr<Watched>> woken;
  {
    MutexLock lock(mu_);
    woken.swap(woken_);
    std::erase_if(woken, [this](const auto& each) { return !watched_.contains(each.get()); });
  }
  for (const auto& each : woken) {
    each->OnEvents(0);
    removed_.reset();
  }
}

}  // namespace embla
