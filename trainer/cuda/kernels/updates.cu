// Optimizer operations on n elements. Grid: any, one dimension. For the first pass of a reduction,
// the grid size is the number of partial results. If live is not null, the factors are read from
// there, so that a replayed launch may use different ones each time. If idle is set, nothing
// changes. If decays is not set, weight decay is not applied.
#include "gpu.h"

// torch.optim.SGD; f is device.SGDFactors. buffer may be null.
struct SGDFactors { float lr, momentum, decay, grad_scale; u32 nesterov, first, idle; };

KERNEL(sgd, 256, float *value, const float *grad, float *buffer, SGDFactors f, const SGDFactors *live, u32 decays, u64 n) {
  if (live) f = *live;
  if (f.idle) return;
  if (!decays) f.decay = 0;
  for (u64 i = index(); i < n; i += stride()) {
    float w = value[i], d = grad[i] * f.grad_scale + f.decay * w;
    if (buffer) {
      float b = f.first ? d : f.momentum * buffer[i] + d;
      buffer[i] = b;
      d = f.nesterov ? d + f.momentum * b : b;
    }
    value[i] = w - f.lr * d;
  }
}

// torch.optim.Adam and AdamW (Kingma and Ba 2015, Loshchilov and Hutter 2019); f is
// device.AdamFactors.
struct AdamFactors { float beta1, beta2, new1, new2, keep, decay, correction, eps, rate, grad_scale; u32 idle; };

KERNEL(adam, 256, float *value, const float *grad, float *average, float *squares, AdamFactors f, const AdamFactors *live, u32 decays, u64 n) {
  if (live) f = *live;
  if (f.idle) return;
  if (!decays) {
    f.keep = 1;
    f.decay = 0;
  }
  for (u64 i = index(); i < n; i += stride()) {
    float w = value[i], d = grad[i] * f.grad_scale + f.decay * w;
    float m = f.beta1 * average[i] + f.new1 * d;
    float v = f.beta2 * squares[i] + f.new2 * d * d;
    average[i] = m;
    squares[i] = v;
    value[i] = f.keep * w + f.rate * m / (sqrt_f32(v) / f.correction + f.eps);
  }
}

// total stores the sum of the threads' values in a block of 256, added by halves.
DEVICE void total(double *to, double v) {
  SHARED double room[256];
  room[thread_x()] = v;
  sync_threads();
  for (unsigned half = 128; half > 0; half /= 2) {
    if (thread_x() < half) room[thread_x()] += room[thread_x() + half];
    sync_threads();
  }
  if (thread_x() == 0) *to = room[0];
}

// partial[block] = the sum of the squares of the block's elements.
KERNEL(sum_squares, 256, double *partial, const float *x, u64 n) {
  double sum = 0;
  for (u64 i = index(); i < n; i += stride()) sum += double(x[i]) * double(x[i]);
  total(partial + block_x(), sum);
}

// partial[block] = the number of positions where a and b are equal.
KERNEL(count_equal, 256, double *partial, const int *a, const int *b, u64 n) {
  double count = 0;
  for (u64 i = index(); i < n; i += stride()) count += a[i] == b[i];
  total(partial + block_x(), count);
}

// to = the sum of n partial results. One block of 256 threads.
KERNEL(sum_partial, 256, double *to, const double *partial, u64 n) {
  double sum = 0;
  for (u64 i = thread_x(); i < n; i += 256) sum += partial[i];
  total(to, sum);
}

// to = the sum of x, or added to it. One block of 256 threads.
KERNEL(sum, 256, double *to, const float *x, u64 n, u32 accumulate) {
  double sum = accumulate && thread_x() == 0 ? *to : 0;
  for (u64 i = thread_x(); i < n; i += 256) sum += double(x[i]);
  total(to, sum);
}

// AdamRule is device.AdamRule.
struct AdamRule { AdamFactors factors; u32 most; double lr, beta1, beta2; };

// StepDecision is the result of a decision about an update: the number of updates, the values for the
// host, and the factors.
struct StepDecision {
  u64 count;
  float result[2];
  union {
    SGDFactors sgd;
    AdamRule adam;
  };
};

DEVICE bool is_finite(double v) { return v - v == 0; }

// decide returns whether to update. sums contains the sums of the squares of the gradients' parts,
// and after them the sum of the losses. scale becomes the factor that clips the norm to most, as in
// optim.ClipScale.
DEVICE bool decide(StepDecision *v, const double *sums, u32 parts, double most, float *scale) {
  double squares = 0;
  for (u32 i = 0; i < parts; i++) squares += sums[i];
  double norm = sqrt_f64(squares);
  bool well = is_finite(norm) && is_finite(sums[parts]);
  if (well) v->count++;
  v->result[0] = well ? 1 : 0;
  v->result[1] = float(norm);
  float clip = most > 0 ? float(most / (norm + 1e-6)) : 1;
  *scale = clip < 1 ? clip : 1;
  return well;
}

// Decisions, by one thread. r is the rule, or *live if live is not null.
KERNEL(decide_sgd, 32, StepDecision *v, const double *sums, u32 parts, double most, SGDFactors r, const SGDFactors *live) {
  if (thread_x() != 0) return;
  if (live) r = *live;
  r.idle = !decide(v, sums, parts, most, &r.grad_scale);
  r.first = v->count <= 1;
  v->sgd = r;
}

// power returns base^n, computed by squaring like in package optim.
DEVICE double power(double base, u64 n) {
  double out = 1;
  for (; n > 0; n >>= 1) {
    if (n & 1) out *= base;
    base *= base;
  }
  return out;
}

// The rule is stored where the factors will be: a local variable would be in local memory.
KERNEL(decide_adam, 32, StepDecision *v, const double *sums, u32 parts, double most, AdamRule r, const AdamRule *live) {
  if (thread_x() != 0) return;
  if (live) v->adam = *live;
  else v->adam = r;
  AdamFactors *f = &v->adam.factors;
  float scale;
  f->idle = !decide(v, sums, parts, most, &scale);
  f->grad_scale = scale;
  u64 n = v->count < v->adam.most ? v->count : v->adam.most;
  f->correction = float(sqrt_f64(1 - power(v->adam.beta2, n)));
  f->rate = float(-v->adam.lr / (1 - power(v->adam.beta1, n)));
}
