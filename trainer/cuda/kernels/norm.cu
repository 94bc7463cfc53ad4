// Layer normalisation (Ba et al. 2016) of rows of cols elements.
#include "gpu.h"

// A row by a warp, where sum is that of this thread's elements. y may be x.
DEVICE void normalise(float *y, float *mean, float *rstd, const float *x, float sum, const float *w, const float *b, u32 row, u32 cols) {
  u32 lane = thread_x() % 32;
  float m = warp_sum(sum) / float(cols), squares = 0;
  for (u32 j = lane; j < cols; j += 32) {
    float d = x[j] - m;
    squares += d * d;
  }
  float r = 1 / root(warp_sum(squares) / float(cols) + 1e-5f);
  for (u32 j = lane; j < cols; j += 32) y[j] = (x[j] - m) * r * w[j] + b[j];
  if (lane == 0) {
    mean[row] = m;
    rstd[row] = r;
  }
}

// A warp to a row, 8 rows to a block of 256 threads. y may be x.
KERNEL(layer_norm, 256, float *y, float *mean, float *rstd, const float *x, const float *w, const float *b, u32 rows, u32 cols) {
  u32 row = block_x() * 8 + thread_x() / 32, lane = thread_x() % 32;
  if (row >= rows) return;
  x += u64(row) * cols;
  float sum = 0;
  for (u32 j = lane; j < cols; j += 32) sum += x[j];
  normalise(y + u64(row) * cols, mean, rstd, x, sum, w, b, row, cols);
}

// Likewise of x = left + right, which is kept. y may be left or right.
KERNEL(add_layer_norm, 256, float *y, float *x, float *mean, float *rstd, const float *left, const float *right, const float *w, const float *b, u32 rows, u32 cols) {
  u32 row = block_x() * 8 + thread_x() / 32, lane = thread_x() % 32;
  if (row >= rows) return;
  x += u64(row) * cols;
  left += u64(row) * cols;
  right += u64(row) * cols;
  float sum = 0;
  for (u32 j = lane; j < cols; j += 32) {
    float v = left[j] + right[j];
    x[j] = v;
    sum += v;
  }
  normalise(y + u64(row) * cols, mean, rstd, x, sum, w, b, row, cols);
}

// Likewise. dx may be dy unless accumulate.
KERNEL(layer_norm_grad, 256, float *dx, const float *dy, const float *x, const float *w, const float *mean, const float *rstd, u32 rows, u32 cols, u32 accumulate) {
  u32 row = block_x() * 8 + thread_x() / 32, lane = thread_x() % 32;
  if (row >= rows) return;
  dx += u64(row) * cols;
  dy += u64(row) * cols;
  x += u64(row) * cols;
  float m = mean[row], r = rstd[row], plain = 0, along = 0;
  for (u32 j = lane; j < cols; j += 32) {
    float d = dy[j] * w[j];
    plain += d;
    along += d * ((x[j] - m) * r);
  }
  plain = warp_sum(plain) / float(cols);
  along = warp_sum(along) / float(cols);
  for (u32 j = lane; j < cols; j += 32) {
    float d = (dy[j] * w[j] - plain - (x[j] - m) * r * along) * r;
    dx[j] = accumulate ? dx[j] + d : d;
  }
}

// The gradients of w and b: of each column a sum over the rows, in rising order. A
// block of 256 threads has 32 columns. Its first warp adds up the rows of a tile of 64
// in shared memory while all warps have fetched the next one: what bounds it is one
// dependent addition per row.
KERNEL(layer_norm_param_grad, 256, float *dw, float *db, const float *dy, const float *x, const float *mean, const float *rstd, u32 rows, u32 cols, u32 accumulate) {
  SHARED float gains[64][33], biases[64][33];
  u32 lane = thread_x() % 32, warp = thread_x() / 32, col = block_x() * 32 + lane;
  bool mine = warp == 0 && col < cols;
  float w = mine && accumulate ? dw[col] : 0, b = mine && accumulate ? db[col] : 0;
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

// dst = the sum over rows of x, whose rows are row_stride apart, in rising order; or
// added to dst. As above, with tiles of 128 rows.
KERNEL(column_sum, 256, float *dst, const float *x, u64 row_stride, u32 rows, u32 cols, u32 accumulate) {
  SHARED float tile[128][33];
  u32 lane = thread_x() % 32, warp = thread_x() / 32, col = block_x() * 32 + lane;
  bool mine = warp == 0 && col < cols;
  float sum = mine && accumulate ? dst[col] : 0, next[16];
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
    if (mine)
      for (u32 i = 0; i < 128 && first + i < rows; i++) sum += tile[i][lane];
    sync_threads();
  }
  if (mine) dst[col] = sum;
}
