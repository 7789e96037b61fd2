// Fields and arrays of a record, little-endian; arrays begin at multiples of 8 and are padded with
// zeros to one.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "server/log/log_format.h"

namespace embla {

static_assert(std::endian::native == std::endian::little, "arrays are stored as they are");

inline constexpr std::size_t kRecordAlignment = 8;

class RecordWriter {
 public:
  RecordWriter() = default;
  // The record begins behind `headroom` bytes, a multiple of 8.
  explicit RecordWriter(std::size_t headroom) : bytes_(headroom, '\0') {}
  // A record of a log, whose large arrays are not copied: they live as long as `memory`, or, if it
  // is null, as the record.
  static RecordWriter OfViews(std::shared_ptr<const void> memory) {
    RecordWriter out(kRecordHeaderBytes);
    out.views_arrays_ = true;
    out.memory_ = std::move(memory);
    return out;
  }

  template <typename T>
  void Put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  template <typename T>
  void PutArray(std::span<const T> values) {
    Pad();
    const std::string_view array(reinterpret_cast<const char*>(values.data()), values.size_bytes());
    if (views_arrays_ && array.size() >= kViewedBytesMin) {
      views_.push_back({bytes_.size(), array});
      viewed_bytes_ += array.size();
    } else if (!array.empty()) {
      bytes_ += array;
    }
    Pad();
  }
  void PutBytes(std::string_view bytes) { bytes_ += bytes; }
  // `bytes` more, and the padding that a log adds.
  void Reserve(std::size_t bytes) {
    if (!views_arrays_) bytes_.reserve(bytes_.size() + bytes + kRecordAlignment);
  }
  // Requires: not of views.
  std::string Take() && { return std::move(bytes_); }
  // Requires: headroom for a log's header.
  LogPayload TakePayload() && {
    return LogPayload::Behind(std::move(bytes_), std::move(views_), std::move(memory_));
  }

 private:
  // Smaller ones are cheaper to copy than to write from where they are.
  static constexpr std::size_t kViewedBytesMin = 1024;

  void Pad() {
    const std::size_t size = bytes_.size() + viewed_bytes_;
    bytes_.append((kRecordAlignment - size % kRecordAlignment) % kRecordAlignment, '\0');
  }

  std::string bytes_;
  bool views_arrays_ = false;
  std::vector<LogPayload::View> views_;
  std::size_t viewed_bytes_ = 0;
  std::shared_ptr<const void> memory_;
};

// Reads what RecordWriter wrote. Once something is missing, everything reads as zero or empty, and
// ok() is false: to be asked at the end, and before a count is believed.
// Requires: bytes.data() is aligned to 8.
class RecordReader {
 public:
  explicit RecordReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  T Get() {
    T value{};
    const std::span<const std::byte> field = Next(sizeof(T));
    if (ok_) std::memcpy(&value, field.data(), sizeof(T));
    return value;
  }
  template <typename T>
  std::span<const T> GetArray(std::uint64_t count) {
    SkipPadding();
    if (count > left() / sizeof(T)) ok_ = false;
    const std::span<const std::byte> array = Next(ok_ ? count * sizeof(T) : 0);
    SkipPadding();
    if (!ok_) return {};
    return {reinterpret_cast<const T*>(array.data()), static_cast<std::size_t>(count)};
  }
  // Bytes without padding, as PutBytes wrote them.
  std::span<const char> GetBytes(std::uint32_t size) {
    const std::span<const std::byte> bytes = Next(size);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  // Reads a count of things that take at least `bytes_each`.
  std::uint32_t GetCount(std::size_t bytes_each) {
    const auto count = Get<std::uint32_t>();
    if (count > left() / bytes_each) ok_ = false;
    return ok_ ? count : 0;
  }

  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && left() == 0; }
  void Fail() { ok_ = false; }

 private:
  std::size_t left() const { return bytes_.size() - at_; }
  std::span<const std::byte> Next(std::size_t size) {
    if (!ok_ || size > left()) {
      ok_ = false;
      return {};
    }
    at_ += size;
    return bytes_.subspan(at_ - size, size);
  }
  void SkipPadding() {
    const std::size_t padding = (kRecordAlignment - at_ % kRecordAlignment) % kRecordAlignment;
    for (const std::byte byte : Next(padding)) {
      if (byte != std::byte{0}) ok_ = false;
    }
  }

  const std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

template <typename Id>
Id GetId(RecordReader& in) {
  return Id{in.Get<std::underlying_type_t<Id>>()};
}

}  // namespace embla
