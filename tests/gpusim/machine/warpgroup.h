// Warpgroup operations on the host: see wgmma.cc.
#pragma once

#include "gpu_host.h"

namespace gpusim {

// shared_address returns the address in shared memory of a pointer into the dynamic part.
u32 shared_address(const void *p);

// fence_async is fence.proxy.async. Matrix multiplications may read data that any thread of the
// block wrote before the last thread reached the fence.
void fence_async();

// wgmma is one wgmma.mma_async.sync.aligned.m64nNk16.f32.bf16.bf16 that adds to d and waits for
// completion. The left matrix is in registers or, if these are null, has a K-major descriptor. The
// right matrix is MN-major if transposed (imm-trans-b).
void wgmma(unsigned n, float *d, const u32 *a, u64 left, u64 right, bool transposed);

}  // namespace gpusim
