// Counts which faults hit which processes in which state: state x victim.
#pragma once

#include <map>
#include <string>
#include <tuple>

#include "absl/base/thread_annotations.h"
#include "core/base/mutex.h"

namespace embla::fault {

// Thread safety: every method may be called from any thread.
class Coverage {
 public:
  // `state` is what units were doing, `victim` a role: source, target, both, bystander,
  // coordinator, trainers.
  void Add(const std::string& fault, const std::string& state, const std::string& victim);
  // A process died at this failpoint.
  void AddFailpoint(const std::string& name);

  int faults() const;
  std::string Table() const;

 private:
  mutable Mutex mu_;
  int faults_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::tuple<std::string, std::string>, std::map<std::string, int>> hits_
      ABSL_GUARDED_BY(mu_);  // (fault, victim) -> state -> times.
  std::map<std::string, int> failpoints_ ABSL_GUARDED_BY(mu_);
};

}  // namespace embla::fault
