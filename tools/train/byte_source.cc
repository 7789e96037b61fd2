#include "tools/train/byte_source.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace embla::train {
namespace {

constexpr std::size_t kGzipReadMax = std::size_t{1} << 30;

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

absl::Status SystemError(const std::string& path, const char* verb) {
  const int error = errno;
  const std::string text = absl::StrCat(path, ": cannot ", verb, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(text) : absl::UnavailableError(text);
}

// zlib's reader also passes plain files through.
class GzipOrPlainSource final : public ByteSource {
 public:
  GzipOrPlainSource(std::string path, gzFile file) : path_(std::move(path)), file_(file) {}
  ~GzipOrPlainSource() override { gzclose(file_); }

  absl::StatusOr<std::size_t> Read(std::span<char> out) override {
    const auto wanted = static_cast<unsigned>(std::min(out.size(), kGzipReadMax));
    const int got = gzread(file_, out.data(), wanted);
    if (got == static_cast<int>(wanted)) return wanted;
    int code = Z_OK;
    const char* text = gzerror(file_, &code);
    if (got < 0 || code == Z_BUF_ERROR) {
      return absl::DataLossError(absl::StrCat(path_, ": damaged gzip stream: ", text));
    }
    return static_cast<std::size_t>(got);
  }

 private:
  const std::string path_;
  gzFile file_;
};

struct ZstdFree {
  void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
};

class ZstdSource final : public ByteSource {
 public:
  ZstdSource(std::string path, File file)
      : path_(std::move(path)),
        file_(std::move(file)),
        stream_(ZSTD_createDStream()),
        buffer_(ZSTD_DStreamInSize()),
        input_{buffer_.data(), 0, 0} {}

  absl::StatusOr<std::size_t> Read(std::span<char> out) override {
    ZSTD_outBuffer output{out.data(), out.size(), 0};
    while (output.pos == 0 && output.size > 0) {
      if (input_.pos == input_.size && !output_pending_) {
        input_.size = std::fread(buffer_.data(), 1, buffer_.size(), file_.get());
        input_.pos = 0;
        if (std::ferror(file_.get()) != 0) return SystemError(path_, "read");
        if (input_.size == 0) return End();
      }
      const std::size_t code = ZSTD_decompressStream(stream_.get(), &output, &input_);
      if (ZSTD_isError(code)) {
        return absl::DataLossError(
            absl::StrCat(path_, ": damaged zstd stream: ", ZSTD_getErrorName(code)));
      }
      inside_frame_ = code != 0;
      output_pending_ = output.pos == output.size && inside_frame_;
    }
    return output.pos;
  }

 private:
  absl::StatusOr<std::size_t> End() const {
    if (!inside_frame_) return std::size_t{0};
    return absl::DataLossError(absl::StrCat(path_, ": the file ends inside a zstd frame"));
  }

  const std::string path_;
  const File file_;
  const std::unique_ptr<ZSTD_DStream, ZstdFree> stream_;
  std::vector<char> buffer_;
  ZSTD_inBuffer input_;
  bool inside_frame_ = false;
  bool output_pending_ = false;  // The last output was full, so more may come without input.
};

}  // namespace

absl::StatusOr<std::unique_ptr<ByteSource>> OpenByteSource(const std::string& path) {
  static constexpr unsigned char kZstdMagic[] = {0x28, 0xB5, 0x2F, 0xFD};
  File file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return SystemError(path, "open");
  unsigned char start[sizeof(kZstdMagic)] = {};
  const std::size_t got = std::fread(start, 1, sizeof(start), file.get());
  if (std::ferror(file.get()) != 0) return SystemError(path, "read");
  if (got == sizeof(start) && std::memcmp(start, kZstdMagic, sizeof(start)) == 0) {
    std::rewind(file.get());
    return std::make_unique<ZstdSource>(path, std::move(file));
  }
  gzFile plain = gzopen(path.c_str(), "rb");
  if (plain == nullptr) return SystemError(path, "open");
  gzbuffer(plain, 1u << 18);
  return std::make_unique<GzipOrPlainSource>(path, plain);
}

}  // namespace embla::train
