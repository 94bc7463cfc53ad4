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

// cross_entropy for bfloat16 logits, N adjacent ones at a time. It uses ex2.approx, whose relative
// error is 2^-22, and the logits have a relative error of 2^-9.
template <u32 N> DEVICE void cross_entropy_of(float *scratch, float *losses, u16 *row, u32 label, float scale, u32 cols) {
  constexpr float log2_e = 1.44269504088896341f;
  float most = -infinity(), sum = 0, own = as_float(row + label), v[N];
  for (u32 j = thread_x() * N; j < cols; j += 256 * N) {
    load(v, row + j);
    float top = most;
#pragma unroll
    for (u32 i = 0; i < N; i++) top = max_f32(top, v[i]);
    if (top > most) {
      sum *= ex2_approx_f32((most - top) * log2_e);
      most = top;
    }
#pragma unroll
    for (u32 i = 0; i < N; i++) sum += ex2_approx_f32((v[i] - top) * log2_e);
  }
  float top = block_max(most, scratch);
  sum = block_sum(sum == 0 ? 0 : sum * ex2_approx_f32((most - top) * log2_e), scratch);
  if (thread_x() == 0) losses[block_x()] = log_f32(sum) + (top - own);
  if (scale == 0) return;
  float factor = scale / sum;
  for (u32 j = thread_x() * N; j < cols; j += 256 * N) {
    load(v, row + j);
#pragma unroll
    for (u32 i = 0; i < N; i++) {
      v[i] = ex2_approx_f32((v[i] - top) * log2_e) * factor;
      if (j + i == label) v[i] -= scale;
    }
    store(row + j, v);
  }
}
KERNEL(cross_entropy_bf16, 256, float *losses, u16 *logits, const int *labels, float scale, u32 cols) {
  SHARED float scratch[32];
  u16 *row = logits + u64(block_x()) * cols;
  u32 label = u32(labels[block_x()]);
  if (by_eight(cols, logits)) cross_entropy_of<8>(scratch, losses, row, label, scale, cols);
  else cross_entropy_of<1>(scratch, losses, row, label, scale, cols);
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
