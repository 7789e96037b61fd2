// The Python class Admin over embla/admin.h: one function calls any method of AdminService. The
// request comes as JSON and the reply goes as a dict, both with the field names of admin.proto.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include "absl/strings/str_cat.h"
#include "client/python/native/bindings.h"
#include "client/python/native/errors.h"
#include "client/python/native/fork_guard.h"
#include "client/python/native/options.h"
#include "client/python/native/waiting.h"
#include "embla/admin.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace embla::python {
namespace {

using client::Admin;
using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MethodDescriptor;

const MethodDescriptor& MethodOf(const std::string& name) {
  const auto& service = *v1::Job::descriptor()->file()->FindServiceByName("AdminService");
  const MethodDescriptor* const method = service.FindMethodByName(name);
  if (method == nullptr) {
    Raise(absl::InvalidArgumentError(absl::StrCat("AdminService has no method ", name)));
  }
  return *method;
}

std::unique_ptr<Message> NewMessage(const Descriptor& type) {
  return std::unique_ptr<Message>(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type)->New());
}

nb::dict FieldsOf(const Message& message);

// One value of a field; `index` -1: the field is not repeated.
nb::object ValueOf(const Message& message, const FieldDescriptor& field, int index) {
  const auto& read = *message.GetReflection();
  const bool is_one = index < 0;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return nb::int_(is_one ? read.GetInt32(message, &field)
                             : read.GetRepeatedInt32(message, &field, index));
    case FieldDescriptor::CPPTYPE_INT64:
      return nb::int_(is_one ? read.GetInt64(message, &field)
                             : read.GetRepeatedInt64(message, &field, index));
    case FieldDescriptor::CPPTYPE_UINT32:
      return nb::int_(is_one ? read.GetUInt32(message, &field)
                             : read.GetRepeatedUInt32(message, &field, index));
    case FieldDescriptor::CPPTYPE_UINT64:
      return nb::int_(is_one ? read.GetUInt64(message, &field)
                             : read.GetRepeatedUInt64(message, &field, index));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return nb::float_(is_one ? read.GetDouble(message, &field)
                               : read.GetRepeatedDouble(message, &field, index));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return nb::float_(is_one ? read.GetFloat(message, &field)
                               : read.GetRepeatedFloat(message, &field, index));
    case FieldDescriptor::CPPTYPE_BOOL:
      return nb::bool_(is_one ? read.GetBool(message, &field)
                              : read.GetRepeatedBool(message, &field, index));
    case FieldDescriptor::CPPTYPE_ENUM:
      return nb::cast(
          (is_one ? read.GetEnum(message, &field) : read.GetRepeatedEnum(message, &field, index))
              ->name());
    case FieldDescriptor::CPPTYPE_STRING:
      return nb::cast(is_one ? read.GetString(message, &field)
                             : read.GetRepeatedString(message, &field, index));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return FieldsOf(is_one ? read.GetMessage(message, &field)
                             : read.GetRepeatedMessage(message, &field, index));
  }
  return nb::none();
}

// All fields, those that are not set among them.
nb::dict FieldsOf(const Message& message) {
  nb::dict fields;
  const Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (!field.is_repeated()) {
      fields[nb::cast(field.name())] = ValueOf(message, field, -1);
      continue;
    }
    nb::list values;
    const int count = message.GetReflection()->FieldSize(message, &field);
    for (int at = 0; at < count; ++at) values.append(ValueOf(message, field, at));
    fields[nb::cast(field.name())] = values;
  }
  return fields;
}

// Refuses use after close and after fork, as ClientHandle does.
class AdminHandle {
 public:
  AdminHandle(const std::string& address, absl::Duration timeout, Admin::IfAbsent if_absent,
              const client::TlsOptions& tls) {
    auto made = std::make_shared<std::shared_ptr<Admin>>();
    Check(RunInterruptibly([address, timeout, if_absent, tls, made] {
      absl::StatusOr<std::unique_ptr<Admin>> admin =
          Admin::Connect(address, timeout, if_absent, tls);
      if (admin.ok()) *made = *std::move(admin);
      return admin.status();
    }));
    admin_ = std::move(*made);
  }
  ~AdminHandle() { Close(); }
  AdminHandle(const AdminHandle&) = delete;
  AdminHandle& operator=(const AdminHandle&) = delete;

  void Close() {
    if (admin_ != nullptr && fork_guard_.forked()) {
      new std::shared_ptr<Admin>(std::move(admin_));  // Its threads are in the parent: never ends.
      return;
    }
    const nb::gil_scoped_release no_gil;
    admin_.reset();
  }

  // Calls a method of AdminService interruptibly; raises its error.
  nb::dict Call(const std::string& name, const std::string& request_json, bool changes) {
    if (fork_guard_.forked()) {
      RaiseNamed("ForkedClientError",
                 "this process was forked after the admin connected: connect again in it");
    }
    if (admin_ == nullptr) RaiseNamed("ClientClosedError", "the admin is closed");
    const MethodDescriptor& method = MethodOf(name);
    // Both may outlive this function with the call.
    const std::shared_ptr<Message> request = NewMessage(*method.input_type());
    const std::shared_ptr<Message> reply = NewMessage(*method.output_type());
    const auto parsed = google::protobuf::util::JsonStringToMessage(request_json, request.get());
    if (!parsed.ok()) {
      Raise(absl::InvalidArgumentError(
          absl::StrCat(name, ": ", std::string(parsed.message()), " in ", request_json)));
    }
    Check(RunInterruptibly(
              [admin = admin_, request, reply] { return admin->Call(*request, *reply); }),
          changes ? CallKind::kWrite : CallKind::kRead);
    return FieldsOf(*reply);
  }

 private:
  const ForkGuard fork_guard_;
  std::shared_ptr<Admin> admin_;  // Null after Close.
};

}  // namespace

void BindAdmin(nb::module_& module) {
  nb::class_<AdminHandle>(module, "Admin")
      .def(
          "__init__",
          [](AdminHandle* self, const std::string& address, double timeout, bool waits,
             std::optional<client::TlsOptions> tls) {
            new (self) AdminHandle(address, DurationFromSeconds("timeout", timeout),
                                   waits ? Admin::IfAbsent::kWait : Admin::IfAbsent::kFail,
                                   tls.value_or(client::TlsOptions()));
          },
          "address"_a, nb::kw_only(), "timeout"_a = 10.0, "waits_for_coordinator"_a = true,
          "tls"_a = nb::none())
      .def("close", &AdminHandle::Close, "Ends the connection.")
      .def("_call", &AdminHandle::Call, "method"_a, "request_json"_a, nb::kw_only(), "changes"_a);
}

}  // namespace embla::python
