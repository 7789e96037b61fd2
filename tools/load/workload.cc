#include "tools/load/workload.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace embla::load {
namespace {

constexpr std::size_t kRequests = 64;
constexpr std::int64_t kRequestBytesMax = std::int64_t{1} << 30;

std::int64_t BytesPerRow(client::WireFormat wire, int dim) {
  switch (wire) {
    case client::WireFormat::kFp32:
      return std::int64_t{4} * dim;
    case client::WireFormat::kFp16:
    case client::WireFormat::kBf16:
      return std::int64_t{2} * dim;
    case client::WireFormat::kInt8:
      return std::int64_t{dim} + 8;
  }
  return 0;
}

absl::Status Wrong(const char* option, const auto& value, const char* allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", option, " is ", value, ", must be ", allowed));
}

}  // namespace

absl::Status Case::Validate() const {
  if (!(update_share >= 0.0 && update_share <= 1.0)) {
    return Wrong("update-share", update_share, "0..1");
  }
  if (tables < 1 || tables > 1000) return Wrong("tables", tables, "1..1000");
  if (ids < 1 || ids > (1 << 24)) return Wrong("ids", ids, "1..2^24");
  if (bag < 1 || bag > ids) return Wrong("bag", bag, "1..--ids");
  if (dim < 1 || dim > 2048) return Wrong("dim", dim, "1..2048");
  if (clients < 1 || clients > 1024) return Wrong("clients", clients, "1..1024");
  if (in_flight < 1 || in_flight > 1024) return Wrong("in-flight", in_flight, "1..1024");
  if (requests < 1) return Wrong("requests", requests, "1 or more");
  if (PayloadBytes() > kRequestBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("one request has ", PayloadBytes(), " bytes, at most ", kRequestBytesMax));
  }
  return absl::OkStatus();
}

std::int64_t Case::IdBytes() const {
  const std::int64_t lengths = has_bags() ? 4 * output_rows() : 0;
  return 8 * rows_per_request() + lengths;
}

std::int64_t Case::RowBytes() const { return output_rows() * BytesPerRow(wire, dim); }

RequestSet::RequestSet(const Case& load, std::vector<std::string> tables,
                       const IdDistribution& distribution, std::uint64_t seed)
    : load_(load), tables_(std::move(tables)) {
  std::mt19937_64 random(seed);
  ids_.resize(kRequests * load.rows_per_request());
  for (std::int64_t& id : ids_) id = distribution.Draw(random);
  if (!load.has_bags()) return;
  for (int left = load.ids; left > 0; left -= load.bag) {
    lengths_.push_back(static_cast<std::uint32_t>(std::min(left, load.bag)));
  }
}

std::size_t RequestSet::row_floats() const { return load_.output_rows() * load_.dim; }

std::span<const std::int64_t> RequestSet::IdsOf(std::size_t number, std::size_t table) const {
  const std::size_t begin = ((number % kRequests) * tables_.size() + table) * load_.ids;
  return std::span(ids_).subspan(begin, load_.ids);
}

std::vector<client::FeatureLookup> RequestSet::Lookup(std::size_t number,
                                                      std::span<float> rows_out) const {
  std::vector<client::FeatureLookup> features(tables_.size());
  const std::size_t floats = row_floats() / tables_.size();
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    features[t].table = tables_[t];
    features[t].ids = IdsOf(number, t);
    features[t].lengths = lengths_;
    features[t].pooling = lengths_.empty() ? client::Pooling::kNone : client::Pooling::kSum;
    features[t].rows_out = rows_out.subspan(t * floats, floats);
  }
  return features;
}

std::vector<client::FeatureGradient> RequestSet::Update(std::size_t number,
                                                        std::span<const float> gradients) const {
  std::vector<client::FeatureGradient> features(tables_.size());
  const std::size_t floats = row_floats() / tables_.size();
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    features[t].table = tables_[t];
    features[t].ids = IdsOf(number, t);
    features[t].lengths = lengths_;
    features[t].pooling = lengths_.empty() ? client::Pooling::kNone : client::Pooling::kSum;
    features[t].gradients = gradients.subspan(t * floats, floats);
  }
  return features;
}

}  // namespace embla::load
