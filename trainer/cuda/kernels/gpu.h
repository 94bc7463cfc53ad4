// GPU primitives for kernels. The source of a kernel is compiled twice: by clang for NVIDIA GPUs,
// to PTX (make kernels), with the definitions below; and as C++ for the host, where the simulator's
// gpu_host.h defines the same names with the same meaning.
//
// The CUDA toolkit is not used, including libdevice: mathematical functions are in maths.h.
// Contraction to FMA is off in both builds; use fma_f32 for an explicit FMA.
#pragma once

#ifndef __CUDA__
#include "gpu_host.h"
#else

typedef unsigned long u64;
typedef long i64;
typedef unsigned int u32;
typedef unsigned short u16;

// DEVICE is a function for use in kernels, always inlined, because variables whose address is
// passed would otherwise not be in registers. DEVICE_MEMBER is a member function. KERNEL(name,
// most, parameters...) is a kernel for one-dimensional blocks of at most `most` threads.
// KERNEL_BLOCKS(name, most, blocks, parameters...) also limits its registers so that the given
// number of blocks can be resident on a multiprocessor; 0 means no limit. INLINE follows the
// parameters of a lambda that captures variables, for the same reason as DEVICE.
#define DEVICE static inline __attribute__((device, always_inline))
#define DEVICE_MEMBER inline __attribute__((device, always_inline))
#define INLINE __attribute__((always_inline))
#define KERNEL(name, most, ...) KERNEL_BLOCKS(name, most, 0, __VA_ARGS__)
#define KERNEL_BLOCKS(name, most, blocks, ...) \
  extern "C" __attribute__((global)) __attribute__((launch_bounds(most, blocks))) void name(__VA_ARGS__)

// SHARED is a shared variable of the block. DYNAMIC_SHARED is the dynamic shared memory of the
// launch, aligned to 16 bytes.
#define SHARED static __attribute__((shared))
#define DYNAMIC_SHARED(type, name) type *name = (type *)dynamic_shared
extern __attribute__((shared)) __attribute__((aligned(16))) char dynamic_shared[];

DEVICE unsigned thread_x() { return __nvvm_read_ptx_sreg_tid_x(); }
DEVICE unsigned threads_x() { return __nvvm_read_ptx_sreg_ntid_x(); }
DEVICE unsigned block_x() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEVICE unsigned block_y() { return __nvvm_read_ptx_sreg_ctaid_y(); }
DEVICE unsigned block_z() { return __nvvm_read_ptx_sreg_ctaid_z(); }
DEVICE unsigned blocks_x() { return __nvvm_read_ptx_sreg_nctaid_x(); }

// sync_threads waits for all threads of the block.
DEVICE void sync_threads() { __syncthreads(); }

// shuffle_xor returns v of the thread of the warp whose index differs by mask. All 32 threads take
// part.
DEVICE float shuffle_xor(float v, unsigned mask) { return __nvvm_shfl_sync_bfly_f32(0xffffffffu, v, int(mask), 31); }

DEVICE u32 float_bits(float v) { return __builtin_bit_cast(u32, v); }
DEVICE float bits_float(u32 v) { return __builtin_bit_cast(float, v); }
DEVICE float fma_f32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE float sqrt_f32(float v) { return __nvvm_sqrt_rn_f(v); }
DEVICE double sqrt_f64(double v) { return __nvvm_sqrt_rn_d(v); }
DEVICE float rint_f32(float v) { return __builtin_rintf(v); }

// ex2_approx_f32 returns 2^v with a relative error of 2^-22. Subnormal results are 0.
DEVICE float ex2_approx_f32(float v) { return __nvvm_ex2_approx_ftz_f(v); }

// to_bfloat16 rounds to nearest even; NaN becomes 0x7fff. to_bfloat16x2 rounds two values.
DEVICE u16 to_bfloat16(float v) {
  u16 b;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(b) : "f"(v));
  return b;
}
DEVICE u32 to_bfloat16x2(float low, float high) {
  u32 b;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(b) : "f"(high), "f"(low));
  return b;
}

// shared_address and global_address return the address of a pointer in shared or global memory.
DEVICE u32 shared_address(const void *p) { return u32(u64((__attribute__((address_space(3))) const void *)p)); }
DEVICE u64 global_address(const void *p) { return u64((__attribute__((address_space(1))) const void *)p); }

// copy_async_16 starts a copy of 16 bytes from global to shared memory, or of zeros if `used` is
// false. copy_async_4 starts a copy of 4 bytes. Addresses are multiples of the size. The destination
// is undefined until wait_copies, which waits for the copies of this thread; other threads can read
// it after a barrier.
DEVICE void copy_async_16(void *to, const void *from, bool used) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(shared_address(to)), "l"(global_address(from)), "r"(used ? 16 : 0) : "memory");
}
DEVICE void copy_async_4(void *to, const void *from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" : : "r"(shared_address(to)), "l"(global_address(from)) : "memory");
}
DEVICE void wait_copies() { asm volatile("cp.async.wait_all;" : : : "memory"); }

// ldmatrix_x4 reads four 8x8 matrices of 16-bit elements from shared memory (ldmatrix in the PTX
// ISA). Thread 8j+r of a warp passes the address of row r of matrix j. Thread 4g+t gets elements 2t
// and 2t+1 of row g in m[j]; with ldmatrix_x4_trans, it gets elements of column g.
DEVICE void ldmatrix_x4(u32 *m, const u16 *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3]) : "r"(shared_address(row)) : "memory");
}
DEVICE void ldmatrix_x4_trans(u32 *m, const u16 *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3]) : "r"(shared_address(row)) : "memory");
}

// mma_m16n8k16 adds the product of a 16x16 and a 16x8 matrix of bfloat16 to one of float32, on
// tensor cores. Thread 4g+t of a warp holds: in a, rows g and g+8 of columns 2t, 2t+1, and then of
// 2t+8, 2t+9; in b, rows 2t, 2t+1, and then 2t+8, 2t+9 of column g; in c, rows g and then g+8 of
// columns 2t, 2t+1 (PTX ISA, "Matrix Fragments for mma.m16n8k16").
DEVICE void mma_m16n8k16(float *c, const u32 *a, const u32 *b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

// index is the first element of this thread in a grid-stride loop, and stride the step.
DEVICE u64 index() { return u64(block_x()) * threads_x() + thread_x(); }
DEVICE u64 stride() { return u64(blocks_x()) * threads_x(); }

DEVICE float infinity() { return bits_float(0x7f800000u); }
DEVICE bool is_nan(float v) { return v != v; }
DEVICE float max_f32(float a, float b) { return a > b ? a : b; }

// warp_sum and warp_max reduce over the 32 threads of a warp. All threads get the same bits.
DEVICE float warp_sum(float v) {
  for (unsigned m = 16; m > 0; m /= 2) v += shuffle_xor(v, m);
  return v;
}
DEVICE float warp_max(float v) {
  for (unsigned m = 16; m > 0; m /= 2) v = max_f32(v, shuffle_xor(v, m));
  return v;
}

// block_sum and block_max reduce over all threads of a block of full warps. All threads get the
// same bits. scratch has 32 elements and may be reused when they return.
DEVICE float block_sum(float v, float *scratch) {
  v = warp_sum(v);
  if (thread_x() % 32 == 0) scratch[thread_x() / 32] = v;
  sync_threads();
  float total = 0;
  for (unsigned w = 0; w < threads_x() / 32; w++) total += scratch[w];
  sync_threads();
  return total;
}
DEVICE float block_max(float v, float *scratch) {
  v = warp_max(v);
  if (thread_x() % 32 == 0) scratch[thread_x() / 32] = v;
  sync_threads();
  float most = scratch[0];
  for (unsigned w = 1; w < threads_x() / 32; w++) most = max_f32(most, scratch[w]);
  sync_threads();
  return most;
}

DEVICE float from_bfloat16(u16 v) { return bits_float(u32(v) << 16); }
DEVICE float rounded(float v) { return from_bfloat16(to_bfloat16(v)); }
