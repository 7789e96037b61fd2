// The update kernel: one loop over the batch's rows, instantiated for every rule and format.
// A rule is a struct with
//   Prepare(begin, end)     scalars of up to kRowBlock rows, a block before their turn: off the
//                           critical path
//   BeginRow(slot, i)       scalars of the row in hand
//   Apply(d, w, g, state)   the new weights; updates the element state at hand
#include "kernels/optimizer_step.h"

#include <algorithm>
#include <cmath>

#include "kernels/step_scalars.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer_step.cc"
#include "hwy/foreach_target.h"  // NOLINT: must come before highway.h.
#include "hwy/highway.h"
#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/random-inl.h"

HWY_BEFORE_NAMESPACE();
namespace embla::kernels {
namespace HWY_NAMESPACE {

struct StepContext {
  const StepParameters& parameters;
  const StepRows& rows;
  const StepBatch& batch;
  const PrefetchTuning& tuning;
  float keep;  // 1 - lr * decoupled

  const std::byte* WeightRow(std::uint32_t slot) const {
    return static_cast<const std::byte*>(rows.weights.base) + slot * rows.weights.stride_bytes;
  }
  const std::byte* GradientRow(std::size_t i) const {
    const float* const row = batch.gradient_rows == nullptr ? batch.gradients + i * batch.stride
                                                            : batch.gradient_rows[i];
    return reinterpret_cast<const std::byte*>(row);
  }
};

// Row scalars are made for this many rows at once, and a block of rows before its first is stepped.
inline constexpr std::size_t kRowBlock = 16;

template <class D>
HWY_INLINE hn::Vec<D> WithL2(D d, hn::Vec<D> w, hn::Vec<D> g, float l2) {
  return hn::Add(g, hn::Mul(hn::Set(d, l2), w));
}

struct SgdRule {
  const float learning_rate;
  const float keep;
  const float l2;

  explicit SgdRule(const StepContext& context)
      : learning_rate(context.parameters.learning_rate),
        keep(context.keep),
        l2(context.parameters.l2) {}
  void Prepare(std::size_t, std::size_t) {}
  void BeginRow(std::uint32_t, std::size_t) {}
  template <class D>
  HWY_INLINE hn::Vec<D> Apply(D d, hn::Vec<D> w, hn::Vec<D> g, float*) const {
    const auto h = WithL2(d, w, g, l2);
    return hn::Sub(hn::Mul(hn::Set(d, keep), w), hn::Mul(hn::Set(d, learning_rate), h));
  }
};

// g + l2*w of a row whose weights have the given format.
template <class Format>
struct DecayedGradient {
  const std::byte* weights;
  const std::byte* gradients;
  float l2;
  template <class D>
  HWY_INLINE hn::Vec<D> At(D d, std::size_t column) const {
    const auto g = Float32::Load(d, gradients, column);
    return WithL2(d, Format::Load(d, weights, column), g, l2);
  }
};

template <class Format>
struct RowwiseAdagradRule {
  const StepContext& context;
  float mu = 0.0f;
  float kept = 0.0f;
  float mus[2 * kRowBlock] = {};

  explicit RowwiseAdagradRule(const StepContext& step) : context(step) {}
  // Square roots and quotients of a block of rows side by side: alone, each would take as long as a
  // whole row's columns.
  HWY_INLINE void Prepare(std::size_t begin, std::size_t end) {
    const StepParameters& p = context.parameters;
    float* const row_state = context.rows.row_state;
    HWY_ALIGN float squares[kRowBlock] = {};
    HWY_ALIGN float sums[kRowBlock] = {};
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint32_t slot = context.batch.slots[i];
      squares[i - begin] = SumSquaresOf(slot, i);
      sums[i - begin] = row_state[slot];
    }
    float* const block_mus = mus + begin % (2 * kRowBlock);
    const hn::CappedTag<float, kRowBlock> d;
    const auto dim = hn::Set(d, static_cast<float>(context.rows.dim));
    for (std::size_t r = 0; r < kRowBlock; r += hn::Lanes(d)) {
      const auto sum = hn::Add(hn::Load(d, sums + r), hn::Div(hn::Load(d, squares + r), dim));
      const auto root = hn::Add(hn::Sqrt(sum), hn::Set(d, p.eps));
      hn::StoreU(hn::Div(hn::Set(d, p.learning_rate), root), d, block_mus + r);
      hn::Store(sum, d, sums + r);
    }
    for (std::size_t i = begin; i < end; ++i) row_state[context.batch.slots[i]] = sums[i - begin];
  }
  HWY_INLINE void BeginRow(std::uint32_t, std::size_t i) {
    mu = mus[i % (2 * kRowBlock)];
    kept = context.keep - mu * context.parameters.l2;
  }
  HWY_INLINE float SumSquaresOf(std::uint32_t slot, std::size_t i) const {
    const StepBatch& batch = context.batch;
    const float l2 = context.parameters.l2;
    if (batch.row_sum_squares != nullptr && l2 == 0.0f) return batch.row_sum_squares[i];
    const std::byte* const g = context.GradientRow(i);  // Squares of +0 and -0 are equal.
    if (l2 == 0.0f) return SumSquares(context.rows.weights.columns, GradientColumns{g});
    return SumSquares(context.rows.weights.columns,
                      DecayedGradient<Format>{context.WeightRow(slot), g, l2});
  }
  struct GradientColumns {
    const std::byte* gradients;
    template <class D>
    HWY_INLINE hn::Vec<D> At(D d, std::size_t column) const {
      return Float32::Load(d, gradients, column);
    }
  };
  template <class D>
  HWY_INLINE hn::Vec<D> Apply(D d, hn::Vec<D> w, hn::Vec<D> g, float*) const {
    return hn::Sub(hn::Mul(hn::Set(d, kept), w), hn::Mul(hn::Set(d, mu), g));
  }
};

struct AdagradRule {
  const float learning_rate;
  const float keep;
  const float l2;
  const float eps;

  explicit AdagradRule(const StepContext& context)
      : learning_rate(context.parameters.learning_rate),
        keep(context.keep),
        l2(context.parameters.l2),
        eps(context.parameters.eps) {}
  void Prepare(std::size_t, std::size_t) {}
  void BeginRow(std::uint32_t, std::size_t) {}
  template <class D>
  HWY_INLINE hn::Vec<D> Apply(D d, hn::Vec<D> w, hn::Vec<D> g, float* state) const {
    const auto h = WithL2(d, w, g, l2);
    const auto sum = hn::Add(hn::LoadU(d, state), hn::Mul(h, h));
    hn::StoreU(sum, d, state);
    const auto root = hn::Add(hn::Sqrt(sum), hn::Set(d, eps));
    const auto change = hn::Div(hn::Mul(hn::Set(d, learning_rate), h), root);
    return hn::Sub(hn::Mul(hn::Set(d, keep), w), change);
  }
};

struct AdamRule {
  const StepContext& context;
  const float learning_rate;
  const float eps;
  const float beta1;
  const float beta2;
  const float l2;
  const float decoupled;
  const std::size_t columns;
  std::uint64_t t = 0;
  float correction1 = 1.0f;
  float correction2 = 1.0f;

  explicit AdamRule(const StepContext& step)
      : context(step),
        learning_rate(step.parameters.learning_rate),
        eps(step.parameters.eps),
        beta1(step.parameters.beta1),
        beta2(step.parameters.beta2),
        l2(step.parameters.l2),
        decoupled(step.parameters.decoupled),
        columns(step.rows.weights.columns) {}
  void Prepare(std::size_t, std::size_t) {}
  void BeginRow(std::uint32_t slot, std::size_t) {
    const StepParameters& p = context.parameters;
    float& count = context.rows.row_state[slot];
    count = NextStepCount(count);
    const std::uint64_t now =
        p.t_is_step ? HWY_MAX(context.batch.step, 1) : static_cast<std::uint64_t>(count);
    if (now == t) return;
    t = now;
    correction1 = BiasCorrectionOf(p.beta1, t);
    correction2 = BiasCorrectionOf(p.beta2, t);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> Apply(D d, hn::Vec<D> w, hn::Vec<D> g, float* state) const {
    const auto h = WithL2(d, w, g, l2);
    float* const second = state + columns;
    const auto m = hn::Add(hn::Mul(hn::Set(d, beta1), hn::LoadU(d, state)),
                           hn::Mul(hn::Set(d, 1.0f - beta1), h));
    const auto v = hn::Add(hn::Mul(hn::Set(d, beta2), hn::LoadU(d, second)),
                           hn::Mul(hn::Set(d, 1.0f - beta2), hn::Mul(h, h)));
    hn::StoreU(m, d, state);
    hn::StoreU(v, d, second);
    const auto root = hn::Sqrt(hn::Div(v, hn::Set(d, correction2)));
    const auto direction =
        hn::Div(hn::Div(m, hn::Set(d, correction1)), hn::Add(root, hn::Set(d, eps)));
    const auto change = hn::Add(direction, hn::Mul(hn::Set(d, decoupled), w));
    return hn::Sub(w, hn::Mul(hn::Set(d, learning_rate), change));
  }
};

// Stores of new weights: nearest, or stochastic with the row's key.
template <class Format>
struct NearestStore {
  void BeginRow(const StepContext&, std::uint32_t) {}
  template <class D>
  HWY_INLINE void Put(D d, hn::Vec<D> v, std::byte* row, std::size_t column) const {
    Format::Store(d, v, row, column);
  }
};

template <class Stochastic>
struct StochasticStore {
  std::uint64_t batch_key;
  std::uint64_t row_key = 0;
  std::uint32_t column_begin = 0;
  void BeginRow(const StepContext& context, std::uint32_t slot) {
    row_key = RowKey(batch_key, context.rows.first_row + slot);
    column_begin = context.rows.column_begin;
  }
  template <class D>
  HWY_INLINE void Put(D d, hn::Vec<D> v, std::byte* row, std::size_t column) const {
    const auto first = column_begin + static_cast<std::uint32_t>(column);
    Stochastic::Store(d, v, RandomVector(d, row_key, first), row, column);
  }
};

// Gradients in one array, row after row.
struct DenseGradients {
  const std::byte* base;
  std::size_t stride_bytes;
  const std::byte* Row(std::size_t i) const { return base + i * stride_bytes; }
  void Ahead(std::size_t) const {}
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const std::byte* row, std::size_t column) {
    return Float32::Load(d, row, column);
  }
};

// Each where a request has it; StepBatch::gradient_rows says what is read.
struct ScatteredGradients {
  const float* const* rows;
  std::size_t row_bytes;
  std::size_t ahead_end;  // Rows from here on have nothing ahead of them.
  std::size_t ahead;
  const std::byte* Row(std::size_t i) const { return reinterpret_cast<const std::byte*>(rows[i]); }
  void Ahead(std::size_t i) const {
    if (i < ahead_end) PrefetchBytes(rows[i + ahead], row_bytes);
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const std::byte* row, std::size_t column) {
    return hn::Add(hn::Zero(d), Float32::Load(d, row, column));
  }
};

template <class Format, class Rule, class Store, class Gradients>
struct StepColumns {
  const Rule rule;
  const Store store;
  std::byte* weights;
  const std::byte* gradients;
  float* state;
  template <class D>
  HWY_INLINE void operator()(D d, std::size_t column) {
    const auto w = Format::Load(d, weights, column);
    const auto g = Gradients::Load(d, gradients, column);
    float* const at_column = state == nullptr ? nullptr : state + column;
    store.Put(d, rule.Apply(d, w, g, at_column), weights, column);
  }
};

// Prefetches all memory of a row. Its row scalars are touched up to two blocks before its columns.
class StepPrefetcher {
 public:
  StepPrefetcher(const StepContext& context, std::size_t distance)
      : element_state_(context.rows.element_state),
        state_floats_(StateFloats(context)),
        weights_(context.rows.weights.base, context.rows.weights.stride_bytes, WeightBytes(context),
                 context.batch.slots, distance),
        row_state_(
            context.rows.row_state, sizeof(float), sizeof(float), context.batch.slots,
            context.rows.row_state == nullptr || distance == 0 ? 0 : distance + 2 * kRowBlock),
        states_(element_state_, state_floats_ * sizeof(float), state_floats_ * sizeof(float),
                context.batch.slots, state_floats_ == 0 ? 0 : distance) {}

  static std::size_t Distance(const StepContext& context) {
    if (context.tuning.prefetch_rows != PrefetchTuning::kAuto) return context.tuning.prefetch_rows;
    return StepPrefetchRows(WeightBytes(context) + StateFloats(context) * sizeof(float));
  }

  HWY_INLINE void Start() const {
    row_state_.Start();
    weights_.Start();
    states_.Start();
  }
  HWY_INLINE void Ahead(std::size_t i) const {
    row_state_.Ahead(i);
    weights_.Ahead(i);
    states_.Ahead(i);
  }
  float* ElementState(std::uint32_t slot) const {
    return state_floats_ == 0 ? nullptr : element_state_ + slot * state_floats_;
  }

 private:
  static std::size_t WeightBytes(const StepContext& context) {
    return ElementBytes(context.rows.weights.element) * context.rows.weights.columns;
  }
  static std::size_t StateFloats(const StepContext& context) {
    return std::size_t{ElementStateArrays(context.parameters.rule)} * context.rows.weights.columns;
  }

  float* element_state_;
  std::size_t state_floats_;
  RowPrefetcher weights_;
  RowPrefetcher row_state_;
  RowPrefetcher states_;
};

template <class Format, class Rule, class Store, class Gradients>
void StepEach(const StepContext& context, Rule rule, Store store, const Gradients gradients) {
  // Copies: what is behind a reference is read again after every store of a weight.
  const StepBatch batch = context.batch;
  const MutableRows weights = context.rows.weights;
  const StepPrefetcher prefetcher(context, StepPrefetcher::Distance(context));
  const std::size_t rows = batch.slots.size();
  prefetcher.Start();
  rule.Prepare(0, std::min(kRowBlock, rows));
  for (std::size_t i = 0; i < rows; ++i) {
    prefetcher.Ahead(i);
    gradients.Ahead(i);
    const std::uint32_t slot = batch.slots[i];
    rule.BeginRow(slot, i);
    if (i % kRowBlock == 0 && i + kRowBlock < rows) {
      rule.Prepare(i + kRowBlock, std::min(i + 2 * kRowBlock, rows));
    }
    store.BeginRow(context, slot);
    StepColumns<Format, Rule, Store, Gradients> step{
        rule, store, static_cast<std::byte*>(weights.base) + slot * weights.stride_bytes,
        gradients.Row(i), prefetcher.ElementState(slot)};
    ForColumns(weights.columns, step);
  }
}

template <class Format, class Rule, class Store>
void StepAll(const StepContext& context, const Rule& rule, const Store& store) {
  const StepBatch& batch = context.batch;
  if (batch.gradient_rows == nullptr) {
    const DenseGradients dense{reinterpret_cast<const std::byte*>(batch.gradients),
                               batch.stride * sizeof(float)};
    return StepEach<Format>(context, rule, store, dense);
  }
  // Row scalars look at gradients up to two blocks before their columns are stepped.
  const std::size_t distance = StepPrefetcher::Distance(context);
  const std::size_t rows = batch.slots.size();
  const std::size_t ahead = distance == 0 ? rows : std::min(rows, distance + 2 * kRowBlock);
  const ScatteredGradients scattered{
      batch.gradient_rows, context.rows.weights.columns * sizeof(float), rows - ahead, ahead};
  StepEach<Format>(context, rule, store, scattered);
}

template <class Format, class Store>
void StepByRule(const StepContext& context, Store store) {
  switch (context.parameters.rule) {
    case OptimizerKind::kSgd:
      return StepAll<Format>(context, SgdRule(context), store);
    case OptimizerKind::kRowwiseAdagrad:
      return StepAll<Format>(context, RowwiseAdagradRule<Format>(context), store);
    case OptimizerKind::kAdagrad:
      return StepAll<Format>(context, AdagradRule(context), store);
    case OptimizerKind::kAdam:
      return StepAll<Format>(context, AdamRule(context), store);
  }
}

void StepByFormat(const StepParameters& parameters, const StepRows& rows, const StepBatch& batch,
                  const PrefetchTuning& tuning) {
  const StepContext context{parameters, rows, batch, tuning,
                            1.0f - parameters.learning_rate * parameters.decoupled};
  const std::uint64_t batch_key =
      BatchKey(RandomPurpose::kRound, parameters.seed, batch.step, parameters.table_id);
  switch (rows.weights.element) {
    case Element::kFloat16:
      if (!parameters.stochastic) return StepByRule<Float16>(context, NearestStore<Float16>());
      return StepByRule<Float16>(context, StochasticStore<StochasticFloat16>{batch_key});
    case Element::kBFloat16:
      if (!parameters.stochastic) return StepByRule<BFloat16>(context, NearestStore<BFloat16>());
      return StepByRule<BFloat16>(context, StochasticStore<StochasticBFloat16>{batch_key});
    default:
      return StepByRule<Float32>(context, NearestStore<Float32>());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace embla::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace embla::kernels {
HWY_EXPORT(StepByFormat);

void Step(const StepParameters& parameters, const StepRows& rows, const StepBatch& batch,
          const PrefetchTuning& tuning) {
  HWY_DYNAMIC_DISPATCH(StepByFormat)(parameters, rows, batch, tuning);
}

}  // namespace embla::kernels
#endif  // HWY_ONCE
