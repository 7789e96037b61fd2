// The common part of lookups and updates, which are tasks of several devices.
#pragma once

#include <atomic>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/base/buffer.h"
#include "server/shard/node_context.h"
#include "server/table/device_executor.h"

namespace embla {

class RequestTask : public DeviceTask {
 public:
  // Devices on which the task is to be queued.
  DeviceSet devices() const { return devices_; }

 protected:
  RequestTask(const NodeContext& node, absl::Time deadline)
      : node_(node), deadline_(deadline), errors_(node.devices.size()) {}

  // Whether the deadline allows to begin; the first device decides for all.
  bool Begin();
  Device& device(std::uint32_t index) const { return *node_.devices[index]; }

  // An error of any of the task's devices is shared by all; each calls it. True on all or on none.
  bool Agree(std::uint32_t device, const absl::Status& status);

  // Sets the error of one device; each device sets its own only.
  void SetError(std::uint32_t device, absl::Status status) { errors_[device] = std::move(status); }
  const absl::Status& error(std::uint32_t device) const { return errors_[device]; }
  // The task's status, in Finish: DeadlineExceeded if it never began, else the lowest device's
  // error.
  absl::Status Outcome() const;

  const NodeContext node_;
  const absl::Time deadline_;
  DeviceSet devices_;  // Set before the task is queued.

 private:
  enum class Admission : std::uint8_t { kUndecided, kBegun, kExpired };

  std::vector<absl::Status> errors_;
  // Relaxed: it carries no other data, and Finish is ordered after every Run.
  std::atomic<Admission> admission_ = Admission::kUndecided;
};

}  // namespace embla
