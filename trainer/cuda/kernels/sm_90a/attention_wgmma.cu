// Attention in bfloat16 with Hopper's warpgroups, for head sizes up to 64 and up to 128. Two
// warpgroups share the tiles of a block: while one waits for a matrix multiplication, the other
// computes its softmax.
#include "../attention_passes.h"
#include "wgmma.h"

// Wgmma is a unit of attention_passes.h. A matrix is one or two operands of wgmma.h with 64 columns
// each.
template <u32 HEAD> struct Wgmma {
  // The registers suffice for two blocks with head size 64; with 128, many would spill.
  static constexpr u32 D = HEAD, OWN = 128, TILE = 64, THREADS = 256, BLOCKS = D == 64 ? 2 : 0, BUFFERS = 2;
  static constexpr bool VARIANTS = true;

  // The launch requests 1024 bytes more than the matrices need, to align them to 1024 bytes.
  DEVICE_MEMBER static u16 *memory() {
    DYNAMIC_SHARED(char, all);
    return (u16 *)(all + (0 - shared_address(all)) % 1024);
  }
  DEVICE_MEMBER static u32 elements(u32 rows) { return rows * D; }
  DEVICE_MEMBER static u32 index(u32 rows, u32 r, u32 c) { return c / 64 * rows * 64 + swizzled(r, c % 64); }
  DEVICE_MEMBER static void fence() { fence_async(); }

  // Each warpgroup multiplies the 64 rows of its warps.
  DEVICE_MEMBER static void gemm_qk(Fragment<TILE> &s, const u16 *own, u32 row, const u16 *tile) {
    clear(s.v);
    #pragma unroll
    for (u32 k = 0; k < D; k += 64) wgmma_smem(s.v, descriptor(own + k * OWN + row / 64 * 64 * 64, 16), descriptor(tile + k * TILE, 16));
  }

  DEVICE_MEMBER static void gemm_pv(float (&sums)[D / 8][4], const Fragment<TILE> &s, const u16 *tile) {
    u32 a[TILE / 16][4];
    #pragma unroll
    for (u32 k = 0; k < TILE / 16; k++) s.operand(a[k], k);
    wgmma_regs(sums, a, descriptor(tile, TILE * 64 * sizeof(u16)));
  }
};

PASSES(64_wgmma, Wgmma<64>)
PASSES(128_wgmma, Wgmma<128>)
