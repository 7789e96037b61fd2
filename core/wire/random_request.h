// Test support: random valid requests as the generated protobuf classes hold them, and byte
// buffers cut into slices at random places, as a network delivers them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include "core/base/trace_context.h"
#include "core/plan/table_spec.h"
#include "embla/v1/data.pb.h"

namespace embla::wire {

class RandomRequest {
 public:
  explicit RandomRequest(std::uint64_t seed) : random_(seed) {}

  std::uint64_t Below(std::uint64_t bound) { return random_() % bound; }
  bool Chance(int percent) { return Below(100) < static_cast<std::uint64_t>(percent); }

  std::string Bytes(std::size_t size) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    return bytes;
  }

  v1::LookupRequest Lookup() {
    v1::LookupRequest request;
    request.set_plan_version(random_() >> Below(64));
    request.set_wire_dtype(static_cast<v1::WireDType>(Below(5)));
    if (Chance(50)) SetSession(request);
    request.set_takes_refused(Chance(50));
    if (Chance(30)) request.set_traceparent(Traceparent());
    if (Chance(30)) request.set_frame_bytes_max(static_cast<std::uint32_t>(65536 + Below(1 << 22)));
    for (std::uint64_t parts = Below(6); parts > 0; --parts) {
      v1::LookupPart& part = *request.add_parts();
      SetShape(part);
      part.set_pooling(static_cast<v1::Pooling>(1 + Below(3)));
      if (part.pooling() != v1::POOLING_NONE) AddBags(part, *request.mutable_lengths());
      part.set_weighted(part.pooling() == v1::POOLING_SUM && Chance(50));
      request.mutable_ids()->append(Bytes(8 * part.ids_count()));
      if (part.weighted()) request.mutable_weights()->append(Bytes(4 * part.ids_count()));
    }
    return request;
  }

  v1::UpdateRequest Update() {
    v1::UpdateRequest request;
    request.set_plan_version(random_() >> Below(64));
    SetSession(request);
    request.set_seq(1 + (random_() >> (1 + Below(60))));
    request.set_first_incomplete(Below(request.seq() + 1));
    request.set_step(random_());
    request.set_routed_since(random_() >> Below(64));
    if (Chance(30)) request.set_traceparent(Traceparent());
    request.set_wire_dtype(static_cast<v1::WireDType>(Below(5)));
    if (Chance(20)) {
      AddContribution(request);
    } else {
      for (std::uint64_t parts = Below(6); parts > 0; --parts) AddPart(request);
    }
    return request;
  }

  v1::StreamRequest Stream() {
    v1::StreamRequest request;
    request.set_sequence(random_() >> Below(64));
    request.set_deadline_ms(static_cast<std::uint32_t>(random_() >> (32 + Below(32))));
    if (Chance(50)) {
      *request.mutable_lookup() = Lookup();
      if (request.lookup().parts().empty() && Chance(50)) {
        request.set_reserve_bytes(1 + Below(1 << 16));
        request.set_reserve_ids(Below(1 << 12));
      }
    } else {
      *request.mutable_update() = Update();
    }
    return request;
  }

  template <typename Request>
  void SetSession(Request& request) {
    request.set_session(1 + (random_() >> (1 + Below(60))));
    if (Chance(70)) request.set_session_proof("p" + Bytes(15));
  }

  std::string Traceparent() {
    return TraceContext{1 + Below(9), random_(), 1 + Below(9), Chance(50)}.ToString();
  }

  grpc::ByteBuffer Cut(const std::string& bytes) {
    std::vector<grpc::Slice> slices;
    for (std::size_t begin = 0; begin < bytes.size();) {
      const std::size_t size = std::min(bytes.size() - begin, std::size_t{1} + Below(200));
      slices.emplace_back(bytes.data() + begin, size);
      begin += size;
    }
    return grpc::ByteBuffer(slices.data(), slices.size());
  }

  // Damages `bytes` as a broken or hostile peer might: flips, cuts, doubles, overwrites.
  void Mutate(std::string& bytes) {
    for (std::uint64_t edits = 1 + Below(4); edits > 0; --edits) {
      if (bytes.empty()) bytes = Bytes(1 + Below(20));
      const std::size_t at = Below(bytes.size());
      const std::size_t size = std::min(bytes.size() - at, std::size_t{1} + Below(16));
      switch (Below(6)) {
        case 0:
          bytes[at] = static_cast<char>(random_());
          break;
        case 1:
          bytes[at] ^= static_cast<char>(1 << Below(8));
          break;
        case 2:
          bytes.resize(at);
          break;
        case 3:
          bytes.insert(at, bytes.substr(at, size));
          break;
        case 4:
          bytes.erase(at, size);
          break;
        default:
          bytes.replace(at, size, size, static_cast<char>(0xff));
          break;
      }
    }
  }

 private:
  template <typename Part>
  void SetShape(Part& part) {
    part.set_table_id(static_cast<std::uint32_t>(1 + Below(1000)));
    if (Chance(20)) part.set_replica_group(static_cast<std::uint32_t>(Below(4)));
    part.set_column_begin(static_cast<std::uint32_t>(Below(8)));
    part.set_column_end(static_cast<std::uint32_t>(part.column_begin() + 1 + Below(16)));
    part.set_ids_count(static_cast<std::uint32_t>(Chance(20) ? 0 : Below(40)));
  }

  // Cuts the part's ids into bags, some of them empty.
  template <typename Part>
  void AddBags(Part& part, std::string& lengths) {
    std::uint32_t left = part.ids_count();
    std::uint32_t bags = 0;
    while (left > 0 || Chance(30)) {
      const auto length = static_cast<std::uint32_t>(Below(std::min(left, 7u) + 1));
      lengths.append(reinterpret_cast<const char*>(&length), sizeof(length));
      left -= length;
      ++bags;
    }
    part.set_bags_count(bags);
  }

  void AddImages(v1::UpdatePart& part, v1::UpdateRequest& request) {
    part.set_form(v1::GRADIENT_FORM_IMAGES);
    part.set_clipped(false);
    part.set_state_floats(static_cast<std::uint32_t>(Below(20)));
    part.set_state_only(part.state_floats() != 0 && Chance(30));
    const std::size_t columns = part.state_only() ? 0 : part.column_end() - part.column_begin();
    request.mutable_ids()->append(Bytes(8 * part.ids_count()));
    request.mutable_gradients()->append(
        Bytes(4 * part.ids_count() * (columns + part.state_floats())));
  }

  void AddPart(v1::UpdateRequest& request) {
    v1::UpdatePart& part = *request.add_parts();
    SetShape(part);
    part.set_clipped(Chance(50));
    if (Chance(20)) part.set_ttl_steps(static_cast<std::uint32_t>(1 + Below(100)));
    std::size_t rows = part.ids_count();
    const bool is_fp32 = request.wire_dtype() <= v1::WIRE_DTYPE_FP32;
    if (is_fp32 && Chance(20)) return AddImages(part, request);
    if (Chance(20)) part.set_learning_rate(static_cast<float>(Below(100)) / 8);
    if (Chance(50)) {
      part.set_form(v1::GRADIENT_FORM_ROWS);
      part.set_has_row_sum_squares(Chance(50));
    } else {
      part.set_form(v1::GRADIENT_FORM_BAGS);
      part.set_pooling(Chance(50) ? v1::POOLING_SUM : v1::POOLING_MEAN);
      AddBags(part, *request.mutable_lengths());
      part.set_weighted(part.pooling() == v1::POOLING_SUM && Chance(50));
      rows = part.bags_count();
    }
    AppendArrays(part, rows, request);
  }

  // A rank's share of a synchronous step. Its runs of units are apart, as an encoder has them.
  void AddContribution(v1::UpdateRequest& request) {
    v1::StepClaim& claim = *request.mutable_claim();
    claim.set_table_id(static_cast<std::uint32_t>(1 + Below(1000)));
    claim.set_rank(static_cast<std::uint32_t>(Below(64)));
    claim.set_resumes(Chance(30));
    for (std::uint32_t column = 0; column < 3; ++column) {
      std::uint32_t granule = 0;
      for (std::uint64_t runs = Below(3) + (column == 0 ? 1 : 0); runs > 0; --runs) {
        v1::UnitRun& run = *claim.add_units();
        run.set_column_granule(column);
        run.set_granule_begin(static_cast<std::uint32_t>(granule + Below(1000)));
        run.set_granule_end(static_cast<std::uint32_t>(run.granule_begin() + 1 + Below(1000)));
        granule = run.granule_end() + 1;
      }
    }
    for (std::uint64_t parts = Below(4); parts > 0; --parts) {
      v1::UpdatePart& part = *request.add_parts();
      SetShape(part);
      part.set_table_id(claim.table_id());
      part.set_form(v1::GRADIENT_FORM_ROWS);
      part.set_clipped(true);
      AppendArrays(part, part.ids_count(), request);
    }
  }

  void AppendArrays(const v1::UpdatePart& part, std::size_t rows, v1::UpdateRequest& request) {
    request.mutable_ids()->append(Bytes(8 * part.ids_count()));
    if (part.weighted()) request.mutable_weights()->append(Bytes(4 * part.ids_count()));
    if (part.has_row_sum_squares()) {
      request.mutable_row_sum_squares()->append(Bytes(4 * part.ids_count()));
    }
    const DType dtype = request.wire_dtype() == v1::WIRE_DTYPE_UNSPECIFIED
                            ? DType::kFloat32
                            : static_cast<DType>(request.wire_dtype());
    request.mutable_gradients()->append(
        Bytes(rows * RowBytes(dtype, part.column_end() - part.column_begin())));
  }

  std::mt19937_64 random_;
};

inline std::string Flatten(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  (void)bytes.Dump(&slices);
  std::string flat;
  for (const grpc::Slice& slice : slices) {
    flat.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return flat;
}

}  // namespace embla::wire
