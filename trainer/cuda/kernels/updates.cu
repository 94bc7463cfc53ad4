// Optimizer operations on n elements. Grid: any, one dimension. For the first pass of a reduction,
// the grid size in x is the number of partial results.
#include "gpu.h"

// Factors is device.Factors. If idle is set, nothing changes.
struct Factors { float rate, beta1, beta2, new1, new2, keep, decay, correction, eps, grad_scale; u32 nesterov, first, idle; };

// UPDATE_RULE(name) is the kernel of a device.Rule. State that a rule does not use may be null.
// rounded, unless it is null, receives the new values in bfloat16. If live is not null, the factors
// are read from there, so that a replayed launch may use different ones each time.
#define UPDATE_RULE(name) \
  KERNEL(name, 256, float *value, const float *grad, float *state0, float *state1, u16 *rounded, Factors f, const Factors *live, u64 n)

// put stores element i of value and rounded.
DEVICE void put(float *value, u16 *rounded, u64 i, float v) {
  value[i] = v;
  if (rounded) rounded[i] = to_bfloat16(v);
}

// torch.optim.SGD. state0 is the momentum buffer and may be null.
UPDATE_RULE(sgd) {
  (void)state1;
  if (live) f = *live;
  if (f.idle) return;
  for (u64 i = index(); i < n; i += stride()) {
    float w = value[i], d = grad[i] * f.grad_scale + f.decay * w;
    if (state0) {
      float b = f.first ? d : f.beta1 * state0[i] + d;
      state0[i] = b;
      d = f.nesterov ? d + f.beta1 * b : b;
    }
    put(value, rounded, i, w + f.rate * d);
  }
}

// torch.optim.Adam and AdamW (Kingma and Ba 2015, Loshchilov and Hutter 2019). state0 and state1 are
// the averages of gradients and of their squares.
UPDATE_RULE(adam) {
  if (live) f = *live;
  if (f.idle) return;
  for (u64 i = index(); i < n; i += stride()) {
    float w = value[i], d = grad[i] * f.grad_scale + f.decay * w;
    float m = f.beta1 * state0[i] + f.new1 * d;
    float v = f.beta2 * state1[i] + f.new2 * d * d;
    state0[i] = m;
    state1[i] = v;
    put(value, rounded, i, f.keep * w + f.rate * m / (sqrt_f32(v) / f.correction + f.eps));
  }
}

// Lion (Chen et al. 2023). state0 is the average of gradients.
UPDATE_RULE(lion) {
  (void)state1;
  if (live) f = *live;
  if (f.idle) return;
  for (u64 i = index(); i < n; i += stride()) {
    float d = grad[i] * f.grad_scale, m = state0[i];
    float c = f.beta1 * m + f.new1 * d;
    float sign = c > 0 ? 1.0f : c < 0 ? -1.0f : 0.0f;
    put(value, rounded, i, f.keep * value[i] + f.rate * sign);
    state0[i] = f.beta2 * m + f.new2 * d;
  }
}

// Muon (Jordan et al. 2024) before the orthogonalization: value becomes Nesterov's momentum of the
// gradients, whose average is state0.
UPDATE_RULE(muon_momentum) {
  (void)state1;
  if (live) f = *live;
  if (f.idle) return;
  for (u64 i = index(); i < n; i += stride()) {
    float d = f.new1 * (grad[i] * f.grad_scale);
    float b = f.beta1 * state0[i] + d;
    state0[i] = b;
    put(value, rounded, i, d + f.beta1 * b);
  }
}

// Muon after the orthogonalization, whose result is grad.
UPDATE_RULE(muon_step) {
  (void)state0;
  (void)state1;
  if (live) f = *live;
  if (f.idle) return;
  for (u64 i = index(); i < n; i += stride()) put(value, rounded, i, f.keep * value[i] + f.rate * grad[i]);
}

// y = x divided by its norm, which is at least eps. squares is the sum of the squares of x.
KERNEL(normalize, 256, float *y, const float *x, const double *squares, float eps, u64 n) {
  double norm = sqrt_f64(*squares), least = double(eps);
  float scale = float(1 / (norm < least ? least : norm));
  for (u64 i = index(); i < n; i += stride()) y[i] = x[i] * scale;
}

// total returns the sum of the threads' values in a block of 256, added by halves, to thread 0.
DEVICE double total(double v) {
  SHARED double sums[256];
  sums[thread_x()] = v;
  sync_threads();
  for (unsigned half = 128; half > 0; half /= 2) {
    if (thread_x() < half) sums[thread_x()] += sums[thread_x() + half];
    sync_threads();
  }
  return sums[0];
}

// The sums of the squares of the elements of chunks of n elements. partial[block] of each chunk is
// the sum of the block's elements. Grid: x is the number of blocks per chunk, y the number of chunks.
KERNEL(sum_squares, 256, double *partial, const float *x, u64 n) {
  x += block_y() * n;
  double sum = 0;
  u64 i = index(), step = stride();
  for (; i + 7 * step < n; i += 8 * step) {  // eight loads in flight
    float v[8];
#pragma unroll
    for (u32 k = 0; k < 8; k++) v[k] = x[i + k * step];
#pragma unroll
    for (u32 k = 0; k < 8; k++) sum += double(v[k]) * double(v[k]);
  }
  for (; i < n; i += step) sum += double(x[i]) * double(x[i]);
  sum = total(sum);
  if (thread_x() == 0) partial[block_y() * blocks_x() + block_x()] = sum;
}

// partial[block] = the number of positions where a and b are equal.
KERNEL(count_equal, 256, double *partial, const int *a, const int *b, u64 n) {
  double count = 0;
  for (u64 i = index(); i < n; i += stride()) count += a[i] == b[i];
  count = total(count);
  if (thread_x() == 0) partial[block_x()] = count;
}

// The checksum of n values, as integers: partial[block] is the sum of value i times 2i+1, modulo
// 2^64. It changes if one value changes, or if two different values are exchanged.
KERNEL(checksum, 256, u64 *partial, const u32 *x, u64 n) {
  SHARED u64 sums[256];
  u64 sum = 0;
  for (u64 i = index(); i < n; i += stride()) sum += u64(x[i]) * (2 * i + 1);
  sums[thread_x()] = sum;
  sync_threads();
  for (unsigned half = 128; half > 0; half /= 2) {
    if (thread_x() < half) sums[thread_x()] += sums[thread_x() + half];
    sync_threads();
  }
  if (thread_x() == 0) partial[block_x()] = sums[0];
}

// Block c sets to[c*pitch] to the sum of n partial results of chunk c, or adds it. 256 threads.
KERNEL(sum_partial, 256, double *to, const double *partial, u64 n, u64 pitch, u32 accumulate) {
  partial += block_x() * n;
  to += block_x() * pitch;
  double sum = 0;
  for (u64 i = thread_x(); i < n; i += 256) sum += partial[i];
  sum = total(sum);
  if (thread_x() == 0) *to = accumulate ? *to + sum : sum;
}

// *sum = weight times the mean of x, or added to it: the sum of its n elements divided by parts.
// *loss = *sum in float32. One block of 256 threads.
KERNEL(add_loss, 256, double *sum, float *loss, const float *x, u64 n, double parts, double weight, u32 accumulate) {
  double rows = 0;
  u64 i = thread_x();
  for (; i + 7 * 256 < n; i += 8 * 256) {  // eight loads in flight
    float v[8];
#pragma unroll
    for (u32 k = 0; k < 8; k++) v[k] = x[i + k * 256];
#pragma unroll
    for (u32 k = 0; k < 8; k++) rows += double(v[k]);
  }
  for (; i < n; i += 256) rows += double(x[i]);
  rows = total(rows);
  if (thread_x() != 0) return;
  double v = weight != 0 ? weight * (rows / parts) : 0; // a batch with weight 0 may have any loss
  *sum = accumulate ? *sum + v : v;
  *loss = float(*sum);
}

// y = x in float64.
KERNEL(widen_f64, 256, double *y, const float *x, u64 n) {
  for (u64 i = index(); i < n; i += stride()) y[i] = double(x[i]);
}

// GroupFactors is device.GroupFactors; most is MaxUpdates, or 0 without bias correction.
struct GroupFactors { Factors factors; u32 most; double lr, beta1, beta2; };

// Groups has device.MaxGroups elements.
struct Groups { GroupFactors group[4]; };

// StepDecision is the result of a decision about an update: the number of updates, the norm of the
// gradients, the values for the host, and the factors. The values for the host are 1 if there is an
// update, else 0; the norm; and the sums of the scalars, of which the first is the loss.
struct StepDecision {
  u64 count;
  double norm;
  float result[18];
  Groups groups;
};

DEVICE bool is_finite(double v) { return v - v == 0; }

// reduce_scalars sums the records of all ranks, in the order of the ranks. A record has `width`
// values: the sum of the squares of gradients, then scalars. One block of 32 threads; width is less.
KERNEL(reduce_scalars, 32, StepDecision *v, const double *records, u64 ranks, u32 width) {
  u32 i = thread_x();
  if (i >= width) return;
  double sum = 0;
  for (u64 r = 0; r < ranks; r++) sum += records[r * width + i];
  if (i == 0) {
    v->norm = sqrt_f64(sum);
    v->result[1] = float(v->norm);
  } else {
    v->result[1 + i] = float(sum);
  }
}

// decide_step returns whether to update: if the norm and the loss are finite. scale becomes the
// factor that clips the norm to most, as in optim.ClipScale.
DEVICE bool decide_step(StepDecision *v, double most, float *scale) {
  bool well = is_finite(v->norm) && is_finite(v->result[2]);
  if (well) v->count++;
  v->result[0] = well ? 1 : 0;
  float clip = most > 0 ? float(most / (v->norm + 1e-6)) : 1;
  *scale = clip < 1 ? clip : 1;
  return well;
}

// power returns base^n, computed like device.Power.
DEVICE double power(double base, u64 n) {
  double out = 1;
  for (; n > 0; n >>= 1) {
    if (n & 1) out *= base;
    base *= base;
  }
  return out;
}

// The decision, by one thread. The factors of count groups are g, or *live if live is not null. They
// are completed in v: a local variable would be in local memory.
KERNEL(decide, 32, StepDecision *v, double most, u32 count, Groups g, const Groups *live) {
  if (thread_x() != 0) return;
  if (live) v->groups = *live;
  else v->groups = g;
  float scale;
  u32 idle = !decide_step(v, most, &scale);
  for (u32 i = 0; i < count; i++) {
    GroupFactors *r = &v->groups.group[i];
    Factors *f = &r->factors;
    f->idle = idle;
    f->first = v->count <= 1;
    f->grad_scale = scale;
    if (r->most) {
      u64 n = v->count < r->most ? v->count : r->most;
      f->correction = float(sqrt_f64(1 - power(r->beta2, n)));
      f->rate = float(-r->lr / (1 - power(r->beta1, n)));
    }
  }
}
