// Sums over the rows of a matrix, of each column by itself and in rising order of rows. A
// block of 256 threads has 32 columns. Its first warp adds up the rows of a tile in shared
// memory while all warps have fetched the next one: what bounds it is one dependent
// addition per row.
#include "values.h"

// Cell is the i-th place of a tile that a thread fetches; N neighbours in a row are one
// load, and follow each other.
template <u32 N> struct Cell {
  DEVICE_MEMBER static u32 row(u32 i) { return N == 1 ? thread_x() / 32 + i * 8 : thread_x() / 4 + i / 8 * 64; }
  DEVICE_MEMBER static u32 col(u32 i) { return N == 1 ? thread_x() % 32 : thread_x() % 4 * 8 + i % 8; }
};

typedef float Tile[33];  // a row of 32, and one that keeps columns in different banks

// The gradients of a normalisation's w and b, by tiles of 64 rows.
template <u32 N, class T> DEVICE void param_grad(Tile *gains, Tile *biases, float *dw, float *db, const T *dy, const float *x, const float *mean, const float *rstd, u32 rows, u32 cols, u32 accumulate) {
  u32 lane = thread_x() % 32, left = block_x() * 32, col = left + lane;
  bool mine = thread_x() < 32 && col < cols;
  float w = mine && accumulate ? dw[col] : 0, b = mine && accumulate ? db[col] : 0;
  float gain[8], bias[8];
  auto fetch = [&](u32 first) {
#pragma unroll
    for (u32 i = 0; i < 8; i += N) {
      u32 row = first + Cell<N>::row(i), c = left + Cell<N>::col(i);
      bool in = row < rows && c < cols;
      float d[N], v[N], m = in ? mean[row] : 0, r = in ? rstd[row] : 0;
      if (in) {
        load(d, dy + u64(row) * cols + c);
        load(v, x + u64(row) * cols + c);
      }
#pragma unroll
      for (u32 k = 0; k < N; k++) {
        bias[i + k] = in ? d[k] : 0;
        gain[i + k] = in ? d[k] * ((v[k] - m) * r) : 0;
      }
    }
  };
  fetch(0);
  for (u32 first = 0; first < rows; first += 64) {
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
      gains[Cell<N>::row(i)][Cell<N>::col(i)] = gain[i];
      biases[Cell<N>::row(i)][Cell<N>::col(i)] = bias[i];
    }
    sync_threads();
    fetch(first + 64);
    if (mine)
      for (u32 i = 0; i < 64 && first + i < rows; i++) {
        w += gains[i][lane];
        b += biases[i][lane];
      }
    sync_threads();
  }
  if (mine) {
    dw[col] = w;
    db[col] = b;
  }
}
KERNEL(layer_norm_param_grad, 256, float *dw, float *db, const float *dy, const float *x, const float *mean, const float *rstd, u32 rows, u32 cols, u32 accumulate) {
  SHARED Tile gains[64], biases[64];
  param_grad<1>(gains, biases, dw, db, dy, x, mean, rstd, rows, cols, accumulate);
}
KERNEL(layer_norm_param_grad_bf16, 256, float *dw, float *db, const u16 *dy, const float *x, const float *mean, const float *rstd, u32 rows, u32 cols, u32 accumulate) {
  SHARED Tile gains[64], biases[64];
  if (by_eight(cols, dy, x)) param_grad<8>(gains, biases, dw, db, dy, x, mean, rstd, rows, cols, accumulate);
  else param_grad<1>(gains, biases, dw, db, dy, x, mean, rstd, rows, cols, accumulate);
}

// dst = the sum over rows of x, whose rows are row_stride apart; or added to dst. By tiles
// of 128 rows.
template <u32 N, class T> DEVICE void sum_of(Tile *tile, float *dst, const T *x, u64 row_stride, u32 rows, u32 cols, u32 accumulate) {
  u32 lane = thread_x() % 32, left = block_x() * 32, col = left + lane;
  bool mine = thread_x() < 32 && col < cols;
  float sum = mine && accumulate ? dst[col] : 0, next[16];
  auto fetch = [&](u32 first) {
#pragma unroll
    for (u32 i = 0; i < 16; i += N) {
      u32 row = first + Cell<N>::row(i), c = left + Cell<N>::col(i);
      bool in = row < rows && c < cols;
      float v[N];
      if (in) load(v, x + row * row_stride + c);
#pragma unroll
      for (u32 k = 0; k < N; k++) next[i + k] = in ? v[k] : 0;
    }
  };
  fetch(0);
  for (u32 first = 0; first < rows; first += 128) {
#pragma unroll
    for (u32 i = 0; i < 16; i++) tile[Cell<N>::row(i)][Cell<N>::col(i)] = next[i];
    sync_threads();
    fetch(first + 128);
    if (mine)
      for (u32 i = 0; i < 128 && first + i < rows; i++) sum += tile[i][lane];
    sync_threads();
  }
  if (mine) dst[col] = sum;
}
KERNEL(column_sum, 256, float *dst, const float *x, u64 row_stride, u32 rows, u32 cols, u32 accumulate) {
  SHARED Tile tile[128];
  sum_of<1>(tile, dst, x, row_stride, rows, cols, accumulate);
}
KERNEL(column_sum_bf16, 256, float *dst, const u16 *x, u64 row_stride, u32 rows, u32 cols, u32 accumulate) {
  SHARED Tile tile[128];
  if (by_eight(cols | row_stride, x)) sum_of<8>(tile, dst, x, row_stride, rows, cols, accumulate);
  else sum_of<1>(tile, dst, x, row_stride, rows, cols, accumulate);
}
