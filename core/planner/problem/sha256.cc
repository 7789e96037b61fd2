#include "core/planner/problem/sha256.h"

#include <openssl/evp.h>

#include "core/base/check.h"

namespace embla::planner {
namespace {

constexpr std::size_t kPendingMax = 1 << 14;

}  // namespace

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  EMBLA_CHECK(context_->evp != nullptr);
  EMBLA_CHECK(EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() = default;

void Sha256::Add(std::string_view bytes) {
  pending_.append(bytes);
  if (pending_.size() >= kPendingMax) Flush();
}

void Sha256::Flush() {
  EMBLA_CHECK(EVP_DigestUpdate(context_->evp, pending_.data(), pending_.size()) == 1);
  pending_.clear();
}

std::string Sha256::Finish() {
  Flush();
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EMBLA_CHECK(EVP_DigestFinal_ex(context_->evp, digest, &size) == 1);
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text.push_back(kDigits[digest[i] >> 4]);
    text.push_back(kDigits[digest[i] & 15]);
  }
  return text;
}

}  // namespace embla::planner
