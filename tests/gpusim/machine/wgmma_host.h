// The host version of wgmma.h: a matrix multiplication is the same sequence of wgmma.mma_async, as
// modeled in wgmma.cc. NEXT_IN_ROWS and NEXT_ROWS belong to wgmma.h, which includes this file.
#pragma once

#include "warpgroup.h"

DEVICE u32 shared_address(const void *p) { return gpusim::shared_address(p); }
DEVICE void fence_async() { gpusim::fence_async(); }

DEVICE void wgmma_smem(float (&d)[8][4], u64 left, u64 right) {
  for (unsigned k = 0; k < 4; k++) gpusim::wgmma(64, d[0], nullptr, left + k * NEXT_IN_ROWS, right + k * NEXT_IN_ROWS, false);
}
template <u32 N> DEVICE void wgmma_regs(float (&d)[N][4], const u32 (&a)[4][4], u64 right) {
  for (unsigned k = 0; k < 4; k++) gpusim::wgmma(N * 8, d[0], a[k], 0, right + k * NEXT_ROWS, true);
}
