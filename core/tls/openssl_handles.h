// OpenSSL's objects with owners, and its last error as a status.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/text.h"

namespace embla::openssl {

template <auto kFree>
struct Deleter {
  template <typename Object>
  void operator()(Object* object) const {
    kFree(object);
  }
};

inline void FreeStack(STACK_OF(X509) * certificates) { sk_X509_pop_free(certificates, X509_free); }

using Bio = std::unique_ptr<BIO, Deleter<&BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Deleter<&X509_free>>;
using Certificates = std::unique_ptr<STACK_OF(X509), Deleter<&FreeStack>>;
using Crl = std::unique_ptr<X509_CRL, Deleter<&X509_CRL_free>>;
using Key = std::unique_ptr<EVP_PKEY, Deleter<&EVP_PKEY_free>>;
using Store = std::unique_ptr<X509_STORE, Deleter<&X509_STORE_free>>;
using StoreContext = std::unique_ptr<X509_STORE_CTX, Deleter<&X509_STORE_CTX_free>>;

inline Bio ReadFrom(std::string_view text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

inline std::string TextOf(BIO& memory) {
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(&memory, &data);
  return {data, static_cast<std::size_t>(bytes)};
}

// Internal: an operation of the library that only fails for want of memory or randomness.
inline absl::Status Failed(std::string_view what) {
  char text[256] = {};
  ERR_error_string_n(ERR_get_error(), text, sizeof(text));
  ERR_clear_error();
  return absl::InternalError(absl::StrCat("OpenSSL cannot ", ToAbsl(what), ": ", text));
}

}  // namespace embla::openssl
