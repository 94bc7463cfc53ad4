// Layer normalization (Ba et al., 2016) of rows of cols elements. Results and their gradients have
// type T: float, or u16 for bfloat16. A thread processes N adjacent elements at a time.
#include "values.h"

// One row per warp; sum is the sum of this thread's elements. y may be x.
template <u32 N, class T> DEVICE void normalize(T *y, float *mean, float *rstd, const float *x, float sum, const float *w, const float *b, u32 row, u32 cols) {
  u32 first = thread_x() % 32 * N;
  float m = warp_sum(sum) / float(cols), squares = 0, v[N];
  for (u32 j = first; j < cols; j += 32 * N) {
    load(v, x + j);
#pragma unroll
    for (u32 i = 0; i < N; i++) {
      float d = v[i] - m;
      squares += d * d;
    }
  }
  float r = 1 / sqrt_f32(warp_sum(squares) / float(cols) + 1e-5f);
  for (u32 j = first; j < cols; j += 32 * N) {
    float gain[N], shift[N];
    load(v, x + j);
    load(gain, w + j);
    load(shift, b + j);
#pragma unroll
    for (u32 i = 0; i < N; i++) v[i] = (v[i] - m) * r * gain[i] + shift[i];
    store(y + j, v);
  }
  if (first == 0) {
    mean[row] = m;
    rstd[row] = r;
  }
}

// A row of up to keptColumns elements per warp, in registers: eight adjacent elements of this thread
// for each of `groups` iterations. The sums have the same order as in normalize.
constexpr u32 groups = 4, keptColumns = groups * 32 * 8;

// each_group calls f(g, first column) for the groups of this thread.
template <class F> DEVICE void each_group(u32 cols, F f) {
#pragma unroll
  for (u32 g = 0; g < groups; g++) {
    u32 j = (g * 32 + thread_x() % 32) * 8;
    if (j < cols) f(g, j);
  }
}

template <class T> DEVICE void normalize_kept(T *y, float *mean, float *rstd, float (&x)[groups][8], const float *w, const float *b, u32 row, u32 cols) {
  float sum = 0, squares = 0;
  each_group(cols, [&](u32 g, u32) {
#pragma unroll
    for (u32 i = 0; i < 8; i++) sum += x[g][i];
  });
  float m = warp_sum(sum) / float(cols);
  each_group(cols, [&](u32 g, u32) {
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
      float d = x[g][i] - m;
      squares += d * d;
    }
  });
  float r = 1 / sqrt_f32(warp_sum(squares) / float(cols) + 1e-5f);
  each_group(cols, [&](u32 g, u32 j) {
    float gain[8], shift[8];
    load(gain, w + j);
    load(shift, b + j);
#pragma unroll
    for (u32 i = 0; i < 8; i++) gain[i] = (x[g][i] - m) * r * gain[i] + shift[i];
    store(y + j, gain);
  });
  if (thread_x() % 32 == 0) {
    mean[row] = m;
    rstd[row] = r;
  }
}

// layer_norm_of and add_layer_norm_of for such rows.
template <class T> DEVICE void layer_norm_kept(T *y, float *mean, float *rstd, const float *x, const float *w, const float *b, u32 rows, u32 cols) {
  u32 row = block_x() * 8 + thread_x() / 32;
  if (row >= rows) return;
  float v[groups][8];
  each_group(cols, [&](u32 g, u32 j) { load(v[g], x + u64(row) * cols + j); });
  normalize_kept(y + u64(row) * cols, mean, rstd, v, w, b, row, cols);
}
template <class T> DEVICE void add_layer_norm_kept(T *y, float *x, float *mean, float *rstd, const float *left, const T *right, const float *w, const float *b, u32 rows, u32 cols) {
  u32 row = block_x() * 8 + thread_x() / 32;
  if (row >= rows) return;
  u64 at = u64(row) * cols;
  float v[groups][8], more[groups][8];
  each_group(cols, [&](u32 g, u32 j) {
    load(v[g], left + at + j);
    load(more[g], right + at + j);
  });
  each_group(cols, [&](u32 g, u32 j) {
#pragma unroll
    for (u32 i = 0; i < 8; i++) v[g][i] += more[g][i];
    store(x + at + j, v[g]);
  });
  normalize_kept(y + at, mean, rstd, v, w, b, row, cols);
}

// One row per warp, 8 rows per block of 256 threads. y may be x.
template <u32 N, class T> DEVICE void layer_norm_of(T *y, float *mean, float *rstd, const float *x, const float *w, const float *b, u32 rows, u32 cols) {
  u32 row = block_x() * 8 + thread_x() / 32;
  if (row >= rows) return;
  x += u64(row) * cols;
  float sum = 0, v[N];
  for (u32 j = thread_x() % 32 * N; j < cols; j += 32 * N) {
    load(v, x + j);
#pragma unroll
    for (u32 i = 0; i < N; i++) sum += v[i];
  }
  normalize<N>(y + u64(row) * cols, mean, rstd, x, sum, w, b, row, cols);
}
KERNEL(layer_norm, 256, float *y, float *mean, float *rstd, const float *x, const float *w, const float *b, u32 rows, u32 cols) {
  layer_norm_of<1>(y, mean, rstd, x, w, b, rows, cols);
}
KERNEL(layer_norm_bf16, 256, u16 *y, float *mean, float *rstd, const float *x, const float *w, const float *b, u32 rows, u32 cols) {
  if (by_eight(cols, y, x, w, b) && cols <= keptColumns) layer_norm_kept(y, mean, rstd, x, w, b, rows, cols);
  else if (by_eight(cols, y, x, w, b)) layer_norm_of<8>(y, mean, rstd, x, w, b, rows, cols);
  else layer_norm_of<1>(y, mean, rstd, x, w, b, rows, cols);
}

// layer_norm_of for x = left + right, which is stored. y may be left or right.
template <u32 N, class T> DEVICE void add_layer_norm_of(T *y, float *x, float *mean, float *rstd, const float *left, const T *right, const float *w, const float *b, u32 rows, u32 cols) {
  u32 row = block_x() * 8 + thread_x() / 32;
  if (row >= rows) return;
  x += u64(row) * cols;
  left += u64(row) * cols;
  right += u64(row) * cols;
  float sum = 0, v[N], more[N];
  for (u32 j = thread_x() % 32 * N; j < cols; j += 32 * N) {
    load(v, left + j);
    load(more, right + j);
#pragma unroll
    for (u32 i = 0; i < N; i++) {
      v[i] += more[i];
      sum += v[i];
    }
    store(x + j, v);
  }
  normalize<N>(y + u64(row) * cols, mean, rstd, x, sum, w, b, row, cols);
}
KERNEL(add_layer_norm, 256, float *y, float *x, float *mean, float *rstd, const float *left, const float *right, const float *w, const float *b, u32 rows, u32 cols) {
  add_layer_norm_of<1>(y, x, mean, rstd, left, right, w, b, rows, cols);
}
KERNEL(add_layer_norm_bf16, 256, u16 *y, float *x, float *mean, float *rstd, const float *left, const u16 *right, const float *w, const float *b, u32 rows, u32 cols) {
  if (by_eight(cols, y, x, left, right, w, b) && cols <= keptColumns) add_layer_norm_kept(y, x, mean, rstd, left, right, w, b, rows, cols);
  else if (by_eight(cols, y, x, left, right, w, b)) add_layer_norm_of<8>(y, x, mean, rstd, left, right, w, b, rows, cols);
  else add_layer_norm_of<1>(y, x, mean, rstd, left, right, w, b, rows, cols);
}

// One row per warp, 8 rows per block of 256 threads. dx may be dy unless accumulate is set.
template <u32 N, class T> DEVICE void layer_norm_grad_of(float *dx, const T *dy, const float *x, const float *w, const float *mean, const float *rstd, u32 rows, u32 cols, u32 accumulate) {
  u32 row = block_x() * 8 + thread_x() / 32, first = thread_x() % 32 * N;
  if (row >= rows) return;
  dx += u64(row) * cols;
  dy += u64(row) * cols;
  x += u64(row) * cols;
  float m = mean[row], r = rstd[row], plain = 0, along = 0, d[N], gain[N], v[N], before[N];
  for (u32 j = first; j < cols; j += 32 * N) {
    load(d, dy + j);
    load(gain, w + j);
    load(v, x + j);
#pragma unroll
    for (u32 i = 0; i < N; i++) {
      d[i] = d[i] * gain[i];
      plain += d[i];
      along += d[i] * ((v[i] - m) * r);
    }
  }
  plain = warp_sum(plain) / float(cols);
  along = warp_sum(along) / float(cols);
  for (u32 j = first; j < cols; j += 32 * N) {
    load(d, dy + j);
    load(gain, w + j);
    load(v, x + j);
    if (accumulate) load(before, dx + j);
#pragma unroll
    for (u32 i = 0; i < N; i++) {
      d[i] = (d[i] * gain[i] - plain - (v[i] - m) * r * along) * r;
      if (accumulate) d[i] = before[i] + d[i];
    }
    store(dx + j, d);
  }
}
KERNEL(layer_norm_grad, 256, float *dx, const float *dy, const float *x, const float *w, const float *mean, const float *rstd, u32 rows, u32 cols, u32 accumulate) {
  layer_norm_grad_of<1>(dx, dy, x, w, mean, rstd, rows, cols, accumulate);
}
KERNEL(layer_norm_grad_bf16, 256, float *dx, const u16 *dy, const float *x, const float *w, const float *mean, const float *rstd, u32 rows, u32 cols, u32 accumulate) {
  if (by_eight(cols, dx, dy, x, w)) layer_norm_grad_of<8>(dx, dy, x, w, mean, rstd, rows, cols, accumulate);
  else layer_norm_grad_of<1>(dx, dy, x, w, mean, rstd, rows, cols, accumulate);
}

// store_sums adds the sums of the warps, in order, and stores the result for run block_x. Column
// (g * 32 + lane) * 8 + i is element [g][i] of a thread.
DEVICE void store_sums(float *sums, float (*scratch)[256], const float (&of_thread)[groups][8], u32 cols) {
  u32 lane = thread_x() % 32, warp = thread_x() / 32;
#pragma unroll
  for (u32 g = 0; g < groups; g++) {
    if (g * 256 >= cols) break;
#pragma unroll
    for (u32 i = 0; i < 8; i++) scratch[warp][i * 32 + lane] = of_thread[g][i];
    sync_threads();
    float total = 0;
    for (u32 w = 0; w < 8; w++) total += scratch[w][thread_x()];
    u32 col = (g * 32 + lane) * 8 + warp;
    if (col < cols) sums[u64(block_x()) * cols + col] = total;
    sync_threads();
  }
}

// layer_norm_grad and layer_norm_param_grad (columns.cu), with the same order of each sum, for rows of
// up to keptColumns elements. Each block has a run of rows, and each of its warps every 8th row. copy,
// unless it is null, receives dx in bfloat16.
KERNEL(layer_norm_backward_bf16, 256, float *dx, u16 *copy, float *gains, float *biases, const u16 *dy, const float *x, const float *w, const float *mean, const float *rstd, u32 rows, u32 cols, u32 run, u32 accumulate) {
  SHARED float scratch[8][256];
  float gain_sums[groups][8] = {}, bias_sums[groups][8] = {};
  u32 first = block_x() * run, end = rows < first + run ? rows : first + run;
  for (u32 row = first + thread_x() / 32; row < end; row += 8) {
    u64 at = u64(row) * cols;
    float m = mean[row], r = rstd[row], plain = 0, along = 0, d[groups][8], v[groups][8], before[groups][8];
    each_group(cols, [&](u32 g, u32 j) {
      load(d[g], dy + at + j);
      load(v[g], x + at + j);
      if (accumulate) load(before[g], dx + at + j);
    });
    each_group(cols, [&](u32 g, u32 j) {
      float gain[8];
      load(gain, w + j);
#pragma unroll
      for (u32 i = 0; i < 8; i++) {
        v[g][i] = (v[g][i] - m) * r;
        gain_sums[g][i] += d[g][i] * v[g][i];
        bias_sums[g][i] += d[g][i];
        d[g][i] = d[g][i] * gain[i];
        plain += d[g][i];
        along += d[g][i] * v[g][i];
      }
    });
    plain = warp_sum(plain) / float(cols);
    along = warp_sum(along) / float(cols);
    each_group(cols, [&](u32 g, u32 j) {
#pragma unroll
      for (u32 i = 0; i < 8; i++) {
        d[g][i] = (d[g][i] - plain - v[g][i] * along) * r;
        if (accumulate) d[g][i] = before[g][i] + d[g][i];
      }
      store(dx + at + j, d[g]);
      if (copy) store(copy + at + j, d[g]);
    });
  }
  store_sums(gains, scratch, gain_sums, cols);
  store_sums(biases, scratch, bias_sums, cols);
}
