// What warpgroups do on the host: see wgmma.cc.
#pragma once

#include "gpu_host.h"

namespace gpusim {

// shared_address is where in shared memory a pointer into the dynamic part leads.
u32 shared_address(const void *p);

// fence_async is fence.proxy.async: what all threads of the block had written when the
// last of them came to it is what products may read.
void fence_async();

// wgmma is one wgmma.mma_async.sync.aligned.m64nNk16.f32.bf16.bf16 that adds to d, with
// the wait for its end. The left matrix is in registers, or if these are null has a
// descriptor, K-major. The right one is MN-major with transposed, which is imm-trans-b.
void wgmma(unsigned n, float *d, const u32 *a, u64 left, u64 right, bool transposed);

}  // namespace gpusim
