#include "client/python/native/options.h"

#include <array>
#include <memory>
#include <string>
#include <utility>

#include <nanobind/stl/string.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/python/native/errors.h"

namespace nb = nanobind;

namespace embla::python {
namespace {

template <typename Value, std::size_t Count>
Value FromName(const char* what, std::string_view name,
               const std::array<std::pair<std::string_view, Value>, Count>& known) {
  std::string words;
  for (const auto& [word, value] : known) {
    if (word == name) return value;
    absl::StrAppend(&words, words.empty() ? "" : ", ", std::string(word));
  }
  Raise(absl::InvalidArgumentError(
      absl::StrCat(what, " is \"", std::string(name), "\", must be one of ", words)));
}

std::string Ask(const nb::object& callable) {
  // A thread that the module made for a call that waits: it has no context of the caller's.
  if (PyGILState_GetThisThreadState() == nullptr) return "";
  const nb::gil_scoped_acquire gil;
  try {
    const nb::object text = callable();
    return text.is_none() ? "" : nb::cast<std::string>(text);
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const nb::cast_error&) {
    PyErr_SetString(PyExc_TypeError, "traceparent must return a str or None");
  }
  PyErr_WriteUnraisable(callable.ptr());
  return "";
}

}  // namespace

client::WireFormat WireFromName(std::string_view name) {
  using client::WireFormat;
  static constexpr std::array<std::pair<std::string_view, WireFormat>, 4> kWords = {
      {{"fp32", WireFormat::kFp32},
       {"fp16", WireFormat::kFp16},
       {"bf16", WireFormat::kBf16},
       {"int8", WireFormat::kInt8}}};
  return FromName("wire", name, kWords);
}

client::Pooling PoolingFromName(std::string_view name) {
  using client::Pooling;
  static constexpr std::array<std::pair<std::string_view, Pooling>, 3> kWords = {
      {{"none", Pooling::kNone}, {"sum", Pooling::kSum}, {"mean", Pooling::kMean}}};
  return FromName("pooling", name, kWords);
}

client::Transport TransportFromName(std::string_view name) {
  using client::Transport;
  static constexpr std::array<std::pair<std::string_view, Transport>, 4> kWords = {
      {{"auto", Transport::kAuto},
       {"stream", Transport::kStream},
       {"tcp", Transport::kTcp},
       {"unary", Transport::kUnary}}};
  return FromName("transport", name, kWords);
}

absl::Duration DurationFromSeconds(std::string_view name, double seconds) {
  if (!(seconds >= 0)) {
    Raise(absl::InvalidArgumentError(
        absl::StrCat(std::string(name), " is ", seconds, " s, must not be negative")));
  }
  return absl::Seconds(seconds);
}

client::CallOptions MakeCallOptions(std::string_view wire, double timeout_seconds) {
  client::CallOptions options;
  options.wire = WireFromName(wire);
  options.timeout = DurationFromSeconds("timeout", timeout_seconds);
  return options;
}

std::function<std::string()> TraceparentOf(nb::object callable) {
  if (callable.is_none()) return nullptr;
  // The client's threads copy the function and give it up, without the GIL.
  const std::shared_ptr<nb::object> shared(new nb::object(std::move(callable)),
                                           [](nb::object* object) {
                                             if (!Py_IsInitialized()) return;
                                             const nb::gil_scoped_acquire gil;
                                             delete object;
                                           });
  return [shared] { return Ask(*shared); };
}

}  // namespace embla::python
