// Attention in bfloat16 by the tensor cores of every GPU from the A100 on (mma.sync), for
// heads of up to 64 and of up to 128.
#include "attention_passes.h"

// Mma is a unit of attention_passes.h whose rows in shared memory are D + 8 apart.
template <u32 HEAD> struct Mma {
  static constexpr u32 D = HEAD, OWN = 64, TILE = 32, THREADS = 128, BLOCKS = 0, PITCH = D + 8;

  DEVICE_MEMBER static u16 *memory() {
    DYNAMIC_SHARED(u16, all);
    return all;
  }
  DEVICE_MEMBER static u32 room(u32 rows) { return rows * PITCH; }
  DEVICE_MEMBER static u32 index(u32, u32 r, u32 c) { return r * PITCH + c; }
  DEVICE_MEMBER static void settle() {}

  DEVICE_MEMBER static void between(Piece<TILE> &s, const u16 *own, u32 row, const u16 *tile) {
    clear(s.v);
    #pragma unroll
    for (u32 k = 0; k < D; k += 16) {
      u32 a[4], b[2];
      rows_of(a, own, row, k);
      #pragma unroll
      for (u32 n = 0; n < TILE / 8; n++) {
        across(b, tile, n * 8, k);
        multiply_16x8x16(s.v[n], a, b);
      }
    }
  }

  DEVICE_MEMBER static void mix(float (&sums)[D / 8][4], const Piece<TILE> &s, const u16 *tile) {
    #pragma unroll
    for (u32 k = 0; k < TILE / 16; k++) {
      u32 a[4], b[2];
      s.operand(a, k);
      #pragma unroll
      for (u32 n = 0; n < D / 8; n++) {
        down(b, tile, k * 16, n * 8);
        multiply_16x8x16(sums[n], a, b);
      }
    }
  }

  // rows_of is the left operand of 16 rows and 16 columns of a matrix.
  DEVICE_MEMBER static void rows_of(u32 *a, const u16 *matrix, u32 row, u32 col) {
    Place p = place();
    const u16 *at = matrix + (row + p.g) * PITCH + col + 2 * p.t;
    a[0] = *(const u32 *)at;
    a[1] = *(const u32 *)(at + 8 * PITCH);
    a[2] = *(const u32 *)(at + 8);
    a[3] = *(const u32 *)(at + 8 * PITCH + 8);
  }

  // across is the right operand of 8 rows and 16 columns of a tile, transposed; down is
  // that of 16 rows and 8 columns, as they are.
  DEVICE_MEMBER static void across(u32 *b, const u16 *tile, u32 row, u32 col) {
    Place p = place();
    const u16 *at = tile + (row + p.g) * PITCH + col + 2 * p.t;
    b[0] = *(const u32 *)at;
    b[1] = *(const u32 *)(at + 8);
  }
  DEVICE_MEMBER static void down(u32 *b, const u16 *tile, u32 row, u32 col) {
    Place p = place();
    const u16 *at = tile + (row + 2 * p.t) * PITCH + col + p.g;
    b[0] = u32(at[0]) | u32(at[PITCH]) << 16;
    b[1] = u32(at[8 * PITCH]) | u32(at[9 * PITCH]) << 16;
  }
};

PASSES(64, Mma<64>)
PASSES(128, Mma<128>)
