// The queue that gRPC's callback API shares in a process.
#pragma once

#include <functional>

#include "absl/time/time.h"

namespace embla::wire {

// Keeps gRPC's callback queue alive until the process ends. Called before the first channel or
// server that uses the callback API; later calls are free.
//
// gRPC counts the channels and servers that use the queue, and takes it down with its polling
// threads when the last of them is destroyed. Until 1.62 at least, a thread that still delivers
// that channel's last call then touches the queue after it is gone ("assertion failed: prior > 0").
// A client that drops its only connection, to make another one, would crash now and then.
void KeepCallbackQueue();

// Runs `task` on a thread of the queue, after `delay`. It must not block.
void RunLater(absl::Duration delay, std::function<void()> task);

}  // namespace embla::wire
