// Matrix multiplication in float32 with 64x64 tiles in blocks of 256 threads. Operands are
// functions of row and column, so that a convolution is also a matrix multiplication whose patch
// matrix is never stored ("implicit GEMM", Chetlur et al., 2014). Each sum runs over k in ascending
// order.
#pragma once

#include "gpu.h"

// Grid: ceil(n/64) x ceil(m/64). With round, operands are first rounded to bfloat16. a(i, l) and
// b(l, j) return the operands, start(i, j) returns the start value of a sum, and store(i, j, sum)
// stores it.
template <class A, class B, class Start, class Store>
DEVICE void tiles(u32 m, u32 n, u32 k, bool round, A a, B b, Start start, Store store) {
  SHARED float left[16][65], right[16][65];
  u32 t = thread_x(), across = t % 16, down = t / 16, row = block_y() * 64, col = block_x() * 64;
  float sums[4][4];
  for (u32 i = 0; i < 4; i++)
    for (u32 j = 0; j < 4; j++) {
      u32 r = row + down + 16 * i, c = col + across + 16 * j;
      sums[i][j] = r < m && c < n ? start(r, c) : 0;
    }
  for (u32 first = 0; first < k; first += 16) {
    for (u32 i = 0; i < 4; i++) {
      u32 l = first + across, r = row + down + 16 * i;
      float v = l < k && r < m ? a(r, l) : 0;
      left[across][down + 16 * i] = round ? rounded(v) : v;
    }
    for (u32 i = 0; i < 4; i++) {
      u32 l = t / 64 + 4 * i, c = col + t % 64;
      float v = first + l < k && c < n ? b(first + l, c) : 0;
      right[l][t % 64] = round ? rounded(v) : v;
    }
    sync_threads();
    for (u32 l = 0; l < 16 && first + l < k; l++)  // beyond k the product may be infinity times 0
      for (u32 i = 0; i < 4; i++)
        for (u32 j = 0; j < 4; j++) sums[i][j] = fma_f32(left[l][down + 16 * i], right[l][across + 16 * j], sums[i][j]);
    sync_threads();
  }
  for (u32 i = 0; i < 4; i++)
    for (u32 j = 0; j < 4; j++) {
      u32 r = row + down + 16 * i, c = col + across + 16 * j;
      if (r < m && c < n) store(r, c, sums[i][j]);
    }
}
