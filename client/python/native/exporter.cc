#include "client/python/native/exporter.h"

#include "absl/strings/str_cat.h"

namespace nb = nanobind;

namespace embla::python {
namespace {

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

}  // namespace

// Both begin as in dlpack.h of DLPack 1.2; what follows is not used here.
struct Exporter::Managed {
  Version version;
  void* context;
  void (*deleter)(Managed* self);
};

struct Exporter::Functions {
  Version version;
  void* previous;
  void* allocate;
  int (*export_object)(void* object, Managed** exported);
};

nb::object Exporter::Capsule(nb::handle object) {
  constexpr const char* kName = "dltensor_versioned";
  const Functions* functions = FunctionsOf(object.type());
  if (functions == nullptr) return nb::borrow(object);
  Managed* exported = nullptr;
  if (functions->export_object(object.ptr(), &exported) != 0) throw nb::python_error();
  // A consumer that has taken the tensor has renamed the capsule.
  PyObject* capsule = PyCapsule_New(exported, kName, [](PyObject* self) {
    if (PyCapsule_IsValid(self, kName) == 0) return;
    auto* left = static_cast<Managed*>(PyCapsule_GetPointer(self, kName));
    left->deleter(left);
  });
  if (capsule == nullptr) {
    exported->deleter(exported);
    throw nb::python_error();
  }
  return nb::steal(capsule);
}

const Exporter::Functions* Exporter::FunctionsOf(nb::handle type) {
  if (type.is(type_)) return functions_;
  type_ = type;
  functions_ = nullptr;
  const nb::object offered = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (offered.is_none()) return nullptr;
  const auto* functions =
      static_cast<const Functions*>(PyCapsule_GetPointer(offered.ptr(), "dlpack_exchange_api"));
  if (functions == nullptr) throw nb::python_error();
  if (functions->version.major == 1) functions_ = functions;
  return functions_;
}

void Exporter::RaiseTypeError(const char* name, const char* kind) {
  throw nb::type_error(absl::StrCat(name, " must be ", kind).c_str());
}

}  // namespace embla::python
