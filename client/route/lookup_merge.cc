// LookupRoute's way back. See lookup_route.h for the idea.
#include <algorithm>
#include <cstring>

#include "client/route/lookup_route.h"
#include "core/base/check.h"
#include "kernels/convert.h"
#include "kernels/lookup.h"

namespace embla::client {

void LookupRoute::Merge(std::span<const LookupShare* const> shares) {
  std::vector<const LookupShare*> ordered(shares.begin(), shares.end());
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const LookupShare* a, const LookupShare* b) { return a->node < b->node; });
  sources_.assign(inputs_.size(), {});
  GatherAnswers(ordered);
  for (std::size_t f = 0; f < inputs_.size(); ++f) {
    Input& input = inputs_[f];
    MergeFeature(input, sources_[f]);
    if (input.feature.pooling != Pooling::kMean) continue;
    const std::size_t stride = input.feature.stride * sizeof(float);
    kernels::DivideRows({input.rows_out, stride, input.feature.dim}, input.feature.lengths);
  }
}

// The usual case reads the answers where they are. int8 rows have no element to address, and
// answers of a call that was re-split lie in several arenas: both are copied to one array of fp32
// rows.
void LookupRoute::GatherAnswers(std::span<const LookupShare* const> shares) {
  const bool in_place = options_.wire_dtype != DType::kInt8Rowwise && arenas_.size() <= 1;
  element_ = in_place ? options_.wire_dtype : DType::kFloat32;
  std::size_t floats = 0;
  for (const LookupShare* share : shares) {
    for (const LookupItem& item : share->items) floats += RowsOf(item) * item.columns();
  }
  Buffer copy = in_place ? Buffer() : pool_->Take(floats * sizeof(float));
  std::byte* next = copy.data();
  base_ = in_place && !arenas_.empty() ? arenas_.front().data() : copy.data();
  for (const LookupShare* share : shares) {
    if (share->direct) continue;
    for (const LookupItem& item : share->items) {
      const std::byte* rows = share->answer.data() + item.reply_offset;
      if (!in_place) {
        const std::size_t count = RowsOf(item);
        const std::size_t stride = item.columns() * sizeof(float);
        kernels::Convert(
            {rows, RowBytes(options_.wire_dtype, item.columns()), ElementOf(options_.wire_dtype)},
            {next, stride, kernels::Element::kFloat32}, count, item.columns());
        rows = next;
        next += count * stride;
      }
      sources_[item.feature].push_back({&item, rows});
    }
  }
  if (!in_place) arenas_.push_back(std::move(copy));
}

void LookupRoute::MergeFeature(Input& input, std::span<const Source> sources) {
  if (input.feature.ids.empty()) {
    float* row = input.rows_out;
    for (std::size_t r = 0; r < input.feature.rows(); ++r, row += input.feature.stride) {
      std::fill_n(row, input.feature.dim, 0.0f);
    }
    return;
  }
  const bool whole = std::all_of(sources.begin(), sources.end(),
                                 [](const Source& source) { return source.item->all; });
  if (whole && !input.distinct.has_duplicates) {
    for (const Source& source : sources) {
      const std::uint32_t columns = source.item->columns();
      kernels::Convert({source.rows, RowBytes(element_, columns), ElementOf(element_)},
                       {input.rows_out + source.item->column_begin,
                        input.feature.stride * sizeof(float), kernels::Element::kFloat32},
                       RowsOf(*source.item), columns);
    }
    return;
  }
  // Every source covers all columns between two neighbouring borders, or none.
  std::vector<std::uint32_t> borders;
  for (const Source& source : sources) {
    borders.push_back(source.item->column_begin);
    borders.push_back(source.item->column_end);
  }
  std::sort(borders.begin(), borders.end());
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
    MergeColumns(input, sources, borders[i], borders[i + 1]);
  }
}

// A row's number for the kernels: rows start at any element of the array, so the stride is one
// element.
std::uint32_t LookupRoute::SlotOf(const Source& source, std::size_t row,
                                  std::uint32_t column) const {
  const std::size_t element_bytes = ElementBytes(element_);
  const std::size_t offset = static_cast<std::size_t>(source.rows - base_) / element_bytes +
                             row * source.item->columns() + (column - source.item->column_begin);
  EMBLA_CHECK(offset < kernels::kNoSlot);
  return static_cast<std::uint32_t>(offset);
}

void LookupRoute::MergeColumns(Input& input, std::span<const Source> sources,
                               std::uint32_t column_begin, std::uint32_t column_end) {
  std::vector<Source> covering;
  std::copy_if(sources.begin(), sources.end(), std::back_inserter(covering), [&](const Source& s) {
    return s.item->column_begin <= column_begin && s.item->column_end >= column_end;
  });
  const kernels::Rows rows{base_, ElementBytes(element_), column_end - column_begin,
                           ElementOf(element_)};
  const kernels::Output out{input.rows_out + column_begin, input.feature.stride * sizeof(float),
                            kernels::Element::kFloat32};
  if (input.pooled()) {
    PoolPartials(input, covering, rows, out, column_begin);
  } else {
    GatherRows(input, covering, rows, out, column_begin);
  }
}

void LookupRoute::GatherRows(const Input& input, std::span<const Source> sources,
                             const kernels::Rows& rows, const kernels::Output& out,
                             std::uint32_t column) const {
  std::vector<std::uint32_t> slots(input.entries().size(), kernels::kNoSlot);
  for (const Source& source : sources) {
    const std::size_t count = RowsOf(*source.item);
    if (count == 0) continue;
    const std::uint32_t first = SlotOf(source, 0, column);
    SlotOf(source, count - 1, column);  // Checks the last.
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t entry = source.item->all ? i : source.item->entries[i];
      slots[entry] = first + static_cast<std::uint32_t>(i) * source.item->columns();
    }
  }
  if (!input.distinct.has_duplicates) return kernels::Gather(rows, slots, out);
  std::vector<std::uint32_t> by_position(input.feature.ids.size());
  for (std::size_t p = 0; p < by_position.size(); ++p) {
    by_position[p] = slots[input.distinct.entry_of[p]];
  }
  if (input.feature.pooling == Pooling::kNone) return kernels::Gather(rows, by_position, out);
  kernels::Pool(rows, {by_position, input.feature.lengths}, out);  // -0 becomes +0.
}

void LookupRoute::PoolPartials(const Input& input, std::span<const Source> sources,
                               const kernels::Rows& rows, const kernels::Output& out,
                               std::uint32_t column) const {
  const std::size_t bag_count = input.feature.lengths.size();
  const auto bag_of = [](const LookupItem& item, std::size_t i) {
    return item.all ? i : item.bags[i];
  };
  std::vector<std::uint32_t> partials(bag_count);
  for (const Source& source : sources) {
    for (std::size_t i = 0; i < RowsOf(*source.item); ++i) ++partials[bag_of(*source.item, i)];
  }
  std::vector<std::size_t> next(bag_count);
  std::size_t total = 0;
  for (std::size_t b = 0; b < bag_count; ++b) {
    next[b] = total;
    total += partials[b];
  }
  std::vector<std::uint32_t> slots(total);
  for (const Source& source : sources) {
    for (std::size_t i = 0; i < RowsOf(*source.item); ++i) {
      slots[next[bag_of(*source.item, i)]++] = SlotOf(source, i, column);
    }
  }
  kernels::Pool(rows, {slots, partials}, out);
}

}  // namespace embla::client
