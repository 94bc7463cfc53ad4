// Dense layers, for the cases that cuBLASLt does not support.
#include "tiles.h"

// c = a*b + start, with any strides: m x n, m x k, and k x n. start is c if accumulate, the bias
// for each row if there is one, or 0. Grid: see tiles.h.
KERNEL(multiply, 256, float *c, u64 c_row, const float *a, u64 a_row, u64 a_col, const float *b, u64 b_row, u64 b_col, const float *bias, u32 m, u32 n, u32 k, u32 accumulate, u32 round) {
  tiles(
      m, n, k, round, [=](u32 i, u32 l) { return a[i * a_row + l * a_col]; }, [=](u32 l, u32 j) { return b[l * b_row + j * b_col]; },
      [=](u32 i, u32 j) { return accumulate ? c[i * c_row + j] : bias ? bias[j] : 0; }, [=](u32 i, u32 j, float sum) { c[i * c_row + j] = sum; });
}

// c[i*pitch + j] = bias[j]: the start value of a matrix multiplication. Grid: any, one dimension.
template <class T> DEVICE void fill(T *c, u64 pitch, const T *bias, u32 rows, u32 cols) {
  for (u64 at = index(); at < u64(rows) * cols; at += stride()) {
    u64 i = at / cols, j = at - i * cols;
    c[i * pitch + j] = bias[j];
  }
}
KERNEL(fill_rows, 256, float *c, u64 pitch, const float *bias, u32 rows, u32 cols) { fill(c, pitch, bias, rows, cols); }
KERNEL(fill_rows_bf16, 256, u16 *c, u64 pitch, const u16 *bias, u32 rows, u32 cols) { fill(c, pitch, bias, rows, cols); }

// to[i*pitch + j] = x[i*row + j*col], rounded to bfloat16: an operand in a layout that cuBLASLt
// supports. Grid: any, one dimension.
KERNEL(pack, 256, u16 *to, u64 pitch, const float *x, u64 row, u64 col, u32 rows, u32 cols) {
  for (u64 at = index(); at < u64(rows) * cols; at += stride()) {
    u64 i = at / cols, j = at - i * cols;
    to[i * pitch + j] = to_bfloat16(x[i * row + j * col]);
  }
}
