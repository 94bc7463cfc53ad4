// Losses and metrics. A block of 256 threads per row of cols elements.
#include "maths.h"
#include "values.h"

// losses[row] = -log softmax(row)[label]. If scale is not 0, the row becomes the gradient of the
// loss times scale. Probabilities are not stored. The maximum and the sum are computed in one pass
// (Milakov and Gimelshein 2018).
KERNEL(cross_entropy, 256, float *losses, float *logits, const int *labels, float scale, u32 cols) {
  SHARED float scratch[32];
  float *row = logits + u64(block_x()) * cols, most = -infinity(), sum = 0;
  u32 label = u32(labels[block_x()]);
  float own = row[label];
  for (u32 j = thread_x(); j < cols; j += 256) {
    float v = row[j];
    if (v > most) {
      sum = sum * exp_f32(most - v) + 1;
      most = v;
    } else {
      sum += exp_f32(v - most);
    }
  }
  float top = block_max(most, scratch);
  sum = block_sum(sum == 0 ? 0 : sum * exp_f32(most - top), scratch);
  if (thread_x() == 0) losses[block_x()] = log_f32(sum) + (top - own);
  if (scale == 0) return;
  float factor = scale / sum;
  for (u32 j = thread_x(); j < cols; j += 256) {
    float g = exp_f32(row[j] - top) * factor;
    row[j] = j == label ? g - scale : g;
  }
}

// Softmax is the maximum of a thread's logits and the sum of their exponentials, relative to the
// maximum. It uses ex2.approx, whose relative error is 2^-22, and the logits have a relative
// error of 2^-9.
struct Softmax {
  float most, sum;
  template <u32 N> DEVICE_MEMBER void add(const float (&v)[N]) {
    float top = most;
#pragma unroll
    for (u32 i = 0; i < N; i++) top = max_f32(top, v[i]);
    if (top > most) {
      sum *= exp(most - top);
      most = top;
    }
#pragma unroll
    for (u32 i = 0; i < N; i++) sum += exp(v[i] - top);
  }
  static DEVICE_MEMBER float exp(float v) { return ex2_approx_f32(v * 1.44269504088896341f); }
};

// cross_entropy for bfloat16 logits, N adjacent ones at a time. With keep, N is 8, and the block reads
// the row once and keeps it in shared memory. The order of all sums does not depend on keep.
template <u32 N, bool keep> DEVICE void cross_entropy_of(float *scratch, u16 *kept, float *losses, u16 *row, u32 label, float scale, u32 cols) {
  constexpr u32 step = 256 * N;
  Softmax s = {-infinity(), 0};
  float own = as_float(row + label), v[N];
  u32 j = thread_x() * N;
  if constexpr (keep) {
    for (; j + 3 * step < cols; j += 4 * step) {  // four loads in flight
      U32x4 bits[4];
#pragma unroll
      for (u32 k = 0; k < 4; k++) bits[k] = *(const U32x4 *)(row + j + k * step);
#pragma unroll
      for (u32 k = 0; k < 4; k++) {
        *(U32x4 *)(kept + j + k * step) = bits[k];
        widen_eight(v, bits[k]);
        s.add(v);
      }
    }
  }
  for (; j < cols; j += step) {
    if constexpr (keep) {
      U32x4 bits = *(const U32x4 *)(row + j);
      *(U32x4 *)(kept + j) = bits;
      widen_eight(v, bits);
    } else {
      load(v, row + j);
    }
    s.add(v);
  }
  float top = block_max(s.most, scratch);
  float sum = block_sum(s.sum == 0 ? 0 : s.sum * Softmax::exp(s.most - top), scratch);
  if (thread_x() == 0) losses[block_x()] = log_f32(sum) + (top - own);
  if (scale == 0) return;
  float factor = scale / sum;
  for (j = thread_x() * N; j < cols; j += step) {  // each thread reads what it has written
    if constexpr (keep) load(v, kept + j);
    else load(v, row + j);
#pragma unroll
    for (u32 i = 0; i < N; i++) {
      v[i] = Softmax::exp(v[i] - top) * factor;
      if (j + i == label) v[i] -= scale;
    }
    store(row + j, v);
  }
}
// If keep is set, a row has a multiple of 8 elements at an address that is a multiple of 16 bytes, and
// the launch has shared memory for a row.
KERNEL(cross_entropy_bf16, 256, float *losses, u16 *logits, const int *labels, float scale, u32 cols, u32 keep) {
  SHARED float scratch[32];
  DYNAMIC_SHARED(u16, kept);
  u16 *row = logits + u64(block_x()) * cols;
  u32 label = u32(labels[block_x()]);
  if (keep) cross_entropy_of<8, true>(scratch, kept, losses, row, label, scale, cols);
  else if (by_eight(cols, logits)) cross_entropy_of<8, false>(scratch, nullptr, losses, row, label, scale, cols);
  else cross_entropy_of<1, false>(scratch, nullptr, losses, row, label, scale, cols);
}

// losses[row] = the sum of squared differences of x and targets. If scale is not 0, x becomes the
// gradient of that sum times scale.
KERNEL(squared_error, 256, float *losses, float *x, const float *targets, float scale, u32 cols) {
  SHARED float scratch[32];
  x += u64(block_x()) * cols;
  targets += u64(block_x()) * cols;
  float sum = 0;
  for (u32 j = thread_x(); j < cols; j += 256) {
    float d = x[j] - targets[j];
    sum += d * d;
    if (scale != 0) x[j] = 2 * scale * d;
  }
  sum = block_sum(sum, scratch);
  if (thread_x() == 0) losses[block_x()] = sum;
}

// chosen[row] = the first column with the largest element.
template <class T> DEVICE void largest(float *values, u32 *indices, int *chosen, const T *x, u32 cols) {
  u32 t = thread_x(), at = t < cols ? t : 0;
  x += u64(block_x()) * cols;
  float most = as_float(x + at);
  for (u32 j = t + 256; j < cols; j += 256)
    if (as_float(x + j) > most) {
      most = as_float(x + j);
      at = j;
    }
  values[t] = most;
  indices[t] = at;
  sync_threads();
  for (u32 half = 128; half > 0; half /= 2) {
    if (t < half && (values[t + half] > values[t] || (values[t + half] == values[t] && indices[t + half] < indices[t]))) {
      values[t] = values[t + half];
      indices[t] = indices[t + half];
    }
    sync_threads();
  }
  if (t == 0) chosen[block_x()] = int(indices[0]);
}
KERNEL(arg_max, 256, int *chosen, const float *x, u32 cols) {
  SHARED float values[256];
  SHARED u32 indices[256];
  largest(values, indices, chosen, x, cols);
}
KERNEL(arg_max_bf16, 256, int *chosen, const u16 *x, u32 cols) {
  SHARED float values[256];
  SHARED u32 indices[256];
  largest(values, indices, chosen, x, cols);
}
