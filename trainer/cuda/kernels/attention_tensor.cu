// Attention in bfloat16 on the tensor cores of every GPU since the A100 (mma.sync), for head sizes
// up to 64 and up to 128.
#include "attention_passes.h"

// Mma is a unit of attention_passes.h with a row pitch of D + 8 in shared memory.
template <u32 HEAD> struct Mma {
  static constexpr u32 D = HEAD, OWN = 64, TILE = 32, THREADS = 128, BLOCKS = 0, BUFFERS = 1, PITCH = D + 8;
  static constexpr bool VARIANTS = false;

  DEVICE_MEMBER static u16 *memory() {
    DYNAMIC_SHARED(u16, all);
    return all;
  }
  DEVICE_MEMBER static u32 elements(u32 rows) { return rows * PITCH; }
  DEVICE_MEMBER static u32 index(u32, u32 r, u32 c) { return r * PITCH + c; }
  DEVICE_MEMBER static void fence() {}

  DEVICE_MEMBER static void gemm_qk(Fragment<TILE> &s, const u16 *own, u32 row, const u16 *tile) {
    clear(s.v);
    #pragma unroll
    for (u32 k = 0; k < D; k += 16) {
      u32 a[4], b[4];
      ldmatrix_x4(a, ldmatrix_row(own, row, k, 1));
      #pragma unroll
      for (u32 n = 0; n < TILE / 8; n += 2) {
        ldmatrix_x4(b, ldmatrix_row(tile, n * 8, k, 2));
        mma_m16n8k16(s.v[n], a, b);
        mma_m16n8k16(s.v[n + 1], a, b + 2);
      }
    }
  }

  DEVICE_MEMBER static void gemm_pv(float (&sums)[D / 8][4], const Fragment<TILE> &s, const u16 *tile) {
    #pragma unroll
    for (u32 k = 0; k < TILE / 16; k++) {
      u32 a[4], b[4];
      s.operand(a, k);
      #pragma unroll
      for (u32 n = 0; n < D / 8; n += 2) {
        ldmatrix_x4_trans(b, ldmatrix_row(tile, k * 16, n * 8, 1));
        mma_m16n8k16(sums[n], a, b);
        mma_m16n8k16(sums[n + 1], a, b + 2);
      }
    }
  }

  // ldmatrix_row returns the row address that this thread passes to ldmatrix for the 8x8 matrices
  // of a 16x16 fragment. With down = 1, vertically adjacent matrices come first: for a left
  // operand, or two right operands by columns. With 2, horizontally adjacent ones come first: for
  // two right operands by rows.
  DEVICE_MEMBER static const u16 *ldmatrix_row(const u16 *matrix, u32 row, u32 col, u32 down) {
    u32 lane = thread_x() % 32, j = lane / 8;
    return matrix + (row + lane % 8 + (j & down ? 8 : 0)) * PITCH + col + (j & (3 - down) ? 8 : 0);
  }
};

PASSES(64, Mma<64>)
PASSES(128, Mma<128>)
