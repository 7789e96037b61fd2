// The content of files that may change while a program runs.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/base/text.h"

namespace embla {

// Looked at again at most once a second, by a thread that wants it: whoever does not ask pays
// nothing, and two changes within one second are seen, too.
//
// Thread safety: every method may be called from any thread.
template <typename Content>
class FreshContent {
 public:
  using Ptr = std::shared_ptr<const Content>;
  // `before` is null at first, and may be returned where nothing has changed.
  using Read = std::function<absl::StatusOr<Ptr>(const Ptr& before)>;

  // `component` and `what`, which have static lifetime, are for the log: ("tls", "tokens").
  FreshContent(const char* component, const char* what, Read read)
      : component_(component), what_(what), read_(std::move(read)) {}

  // Errors: those of `read`.
  absl::Status Load() {
    absl::StatusOr<Ptr> content = read_(nullptr);
    if (!content.ok()) return content.status();
    MutexLock lock(mu_);
    content_ = *std::move(content);
    return absl::OkStatus();
  }

  // After an error the content before, which is null if there was none.
  Ptr Current(absl::Time now) {
    Ptr before;
    {
      MutexLock lock(mu_);
      before = content_;
      if (now >= read_at_ && now - read_at_ < kReadEvery) return before;
      read_at_ = now;
    }
    absl::StatusOr<Ptr> content = read_(before);
    if (!content.ok()) {
      LogWarning(component_, what_,
                 " cannot be read again, the ones before stay reason=", Message(content.status()));
      return before;
    }
    MutexLock lock(mu_);
    content_ = *std::move(content);
    return content_;
  }

 private:
  static constexpr absl::Duration kReadEvery = absl::Seconds(1);

  const char* const component_;
  const char* const what_;
  const Read read_;

  Mutex mu_;
  Ptr content_ ABSL_GUARDED_BY(mu_);
  absl::Time read_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace embla
