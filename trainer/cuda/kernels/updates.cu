// What an optimiser does with n elements. Grid: any, one dimension; that of the first
// passes of reductions is the number of their partial results. Factors are those at live
// where that is not null, so that a launch that is repeated may have others each time.
#include "gpu.h"

// torch.optim.SGD; f is device.SGDFactors. buffer may be null.
struct SGDFactors { float lr, momentum, decay, grad_scale; u32 nesterov, first; };

KERNEL(sgd, 256, float *value, const float *grad, float *buffer, SGDFactors f, const SGDFactors *live, u64 n) {
  if (live) f = *live;
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
struct AdamFactors { float beta1, beta2, new1, new2, keep, decay, correction, eps, rate, grad_scale; };

KERNEL(adam, 256, float *value, const float *grad, float *average, float *squares, AdamFactors f, const AdamFactors *live, u64 n) {
  if (live) f = *live;
  for (u64 i = index(); i < n; i += stride()) {
    float w = value[i], d = grad[i] * f.grad_scale + f.decay * w;
    float m = f.beta1 * average[i] + f.new1 * d;
    float v = f.beta2 * squares[i] + f.new2 * d * d;
    average[i] = m;
    squares[i] = v;
    value[i] = f.keep * w + f.rate * m / (root(v) / f.correction + f.eps);
  }
}

// total writes the sum of the threads' numbers in a block of 256, added by halves.
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

// partial[block] = the number of places in which a and b agree.
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
