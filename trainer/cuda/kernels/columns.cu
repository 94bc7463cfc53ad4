// Sums over the rows of a matrix, for each column.
//
// Float32 rows are added in ascending order. A block of 256 threads has 32 columns. Its first warp
// adds the rows of a tile in shared memory while all warps load the next tile. The limit is one
// dependent addition per row.
//
// Bfloat16 rows are added in an order that depends on the number of rows: a block adds a run of
// rows, each of its 8 warps every 8th row, and add_runs adds these sums.
#include "values.h"

// The gradients of a layer normalization's w and b, in tiles of 64 rows.
KERNEL(layer_norm_param_grad, 256, float *dw, float *db, const float *dy, const float *x, const float *mean, const float *rstd, u32 rows, u32 cols, u32 accumulate) {
  SHARED float gains[64][33], biases[64][33];
  u32 lane = thread_x() % 32, warp = thread_x() / 32, col = block_x() * 32 + lane;
  bool stores = warp == 0 && col < cols;
  float w = stores && accumulate ? dw[col] : 0, b = stores && accumulate ? db[col] : 0;
  float gain[8], bias[8];
  auto fetch = [&](u32 first) {
    for (u32 i = 0; i < 8; i++) {
      u32 row = first + warp + i * 8;
      bool in = row < rows && col < cols;
      float d = in ? dy[u64(row) * cols + col] : 0;
      bias[i] = d;
      gain[i] = in ? d * ((x[u64(row) * cols + col] - mean[row]) * rstd[row]) : 0;
    }
  };
  fetch(0);
  for (u32 first = 0; first < rows; first += 64) {
    for (u32 i = 0; i < 8; i++) {
      gains[warp + i * 8][lane] = gain[i];
      biases[warp + i * 8][lane] = bias[i];
    }
    sync_threads();
    fetch(first + 64);
    if (stores)
      for (u32 i = 0; i < 64 && first + i < rows; i++) {
        w += gains[i][lane];
        b += biases[i][lane];
      }
    sync_threads();
  }
  if (stores) {
    dw[col] = w;
    db[col] = b;
  }
}

// dst = the sum over the rows of x with pitch row_stride, or added to dst. In tiles of 128 rows.
KERNEL(column_sum, 256, float *dst, const float *x, u64 row_stride, u32 rows, u32 cols, u32 accumulate) {
  SHARED float tile[128][33];
  u32 lane = thread_x() % 32, warp = thread_x() / 32, col = block_x() * 32 + lane;
  bool stores = warp == 0 && col < cols;
  float sum = stores && accumulate ? dst[col] : 0, next[16];
  auto fetch = [&](u32 first) {
    for (u32 i = 0; i < 16; i++) {
      u32 row = first + warp + i * 8;
      next[i] = row < rows && col < cols ? x[row * row_stride + col] : 0;
    }
  };
  fetch(0);
  for (u32 first = 0; first < rows; first += 128) {
    for (u32 i = 0; i < 16; i++) tile[warp + i * 8][lane] = next[i];
    sync_threads();
    fetch(first + 128);
    if (stores)
      for (u32 i = 0; i < 128 && first + i < rows; i++) sum += tile[i][lane];
    sync_threads();
  }
  if (stores) dst[col] = sum;
}

// Run is the rows and columns of a block: run block_y, of as many runs as the grid has, and 256
// columns. A thread has eight of them: adjacent ones if a vector load is possible.
template <u32 N> struct Run {
  u32 first, end, left;
  DEVICE_MEMBER Run(u32 rows, u32 run) : first(block_y() * run), end(rows < first + run ? rows : first + run), left(block_x() * 256) {}
  DEVICE_MEMBER u32 col(u32 i) const { return N == 8 ? left + thread_x() % 32 * 8 + i : left + i * 32 + thread_x() % 32; }

  // each calls f with the index i of the first of N columns, for all rows of this warp.
  template <class F> DEVICE_MEMBER void each(u32 cols, F f) const {
#pragma unroll
    for (u32 i = 0; i < 8; i += N) {
      if (col(i) >= cols) continue;
#pragma unroll 4
      for (u32 row = first + thread_x() / 32; row < end; row += 8) f(row, col(i), i);
    }
  }

  // put adds the sums of the warps, in order, and stores the result in the run's sums.
  DEVICE_MEMBER void put(float *sums, float (*scratch)[256], const float *thread_sums, u32 cols) const {
#pragma unroll
    for (u32 i = 0; i < 8; i++) scratch[thread_x() / 32][i * 32 + thread_x() % 32] = thread_sums[i];
    sync_threads();
    float total = 0;
    for (u32 warp = 0; warp < 8; warp++) total += scratch[warp][thread_x()];
    u32 i = thread_x() / 32;
    if (col(i) < cols) sums[u64(block_y()) * cols + col(i)] = total;
    sync_threads();
  }
};

template <u32 N> DEVICE void param_grad(float (*scratch)[256], float *gains, float *biases, const u16 *dy, const float *x, const float *mean, const float *rstd, u32 rows, u32 cols, u32 run) {
  Run<N> r(rows, run);
  float w[8] = {}, b[8] = {};
  r.each(cols, [&](u32 row, u32 col, u32 i) {
    float d[N], v[N], m = mean[row], s = rstd[row];
    load(d, dy + u64(row) * cols + col);
    load(v, x + u64(row) * cols + col);
#pragma unroll
    for (u32 k = 0; k < N; k++) {
      w[i + k] += d[k] * ((v[k] - m) * s);
      b[i + k] += d[k];
    }
  });
  r.put(gains, scratch, w, cols);
  r.put(biases, scratch, b, cols);
}
// The sums of each run for a layer normalization's w and b: runs x cols of both. Grid: ceil(cols /
// 256) x runs.
KERNEL(layer_norm_param_grad_bf16, 256, float *gains, float *biases, const u16 *dy, const float *x, const float *mean, const float *rstd, u32 rows, u32 cols, u32 run) {
  SHARED float scratch[8][256];
  if (by_eight(cols, dy, x)) param_grad<8>(scratch, gains, biases, dy, x, mean, rstd, rows, cols, run);
  else param_grad<1>(scratch, gains, biases, dy, x, mean, rstd, rows, cols, run);
}

template <u32 N> DEVICE void sum_of(float (*scratch)[256], float *sums, const u16 *x, u64 row_stride, u32 rows, u32 cols, u32 run) {
  Run<N> r(rows, run);
  float thread_sums[8] = {};
  r.each(cols, [&](u32 row, u32 col, u32 i) {
    float v[N];
    load(v, x + row * row_stride + col);
#pragma unroll
    for (u32 k = 0; k < N; k++) thread_sums[i + k] += v[k];
  });
  r.put(sums, scratch, thread_sums, cols);
}
// The sums of each run of x. Grid: ceil(cols / 256) x runs.
KERNEL(column_sum_bf16, 256, float *sums, const u16 *x, u64 row_stride, u32 rows, u32 cols, u32 run) {
  SHARED float scratch[8][256];
  if (by_eight(cols | row_stride, x)) sum_of<8>(scratch, sums, x, row_stride, rows, cols, run);
  else sum_of<1>(scratch, sums, x, row_stride, rows, cols, run);
}

// dst = the sums of all runs, in ascending order, or added to dst. One thread per column.
KERNEL(add_runs, 256, float *dst, const float *sums, u32 runs, u32 cols, u32 accumulate) {
  u32 col = u32(index());
  if (col >= cols) return;
  float total = accumulate ? dst[col] : 0;
#pragma unroll 8
  for (u32 i = 0; i < runs; i++) total += sums[u64(i) * cols + col];
  dst[col] = total;
}
