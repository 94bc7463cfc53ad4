// Matrix multiplication in bfloat16 by a Hopper warpgroup: 128 threads, starting at a multiple of
// 128, which all execute it together (PTX ISA 9.7.15, "Asynchronous Warpgroup Level Matrix
// Multiply-Accumulate Instructions"). The instructions exist only on compute capability 9.0, in PTX
// for sm_90a.
//
// An operand in shared memory has contiguous rows of 64 elements, 128 bytes, with the 128-byte
// swizzle: 16-byte chunk c of row r is stored at chunk c ^ r % 8. The operand is aligned to 1024
// bytes. So eight rows are a layout atom of 9.7.15.5.1.2, both if k counts the elements of a row
// (K-major) and if it counts rows (MN-major).
#pragma once

#include "../gpu.h"

// swizzled returns the index of element c of row r in such an operand.
DEVICE u32 swizzled(u32 r, u32 c) { return r * 64 + ((c / 8 ^ r % 8) * 8 | c % 8); }

// The distance of the next 16 elements along k in units of 16 bytes, as in a matrix descriptor: 32
// bytes within a row, 2048 bytes across rows.
enum : u64 { NEXT_IN_ROWS = 32 >> 4, NEXT_ROWS = 2048 >> 4 };

#ifndef __CUDA__
#include "wgmma_host.h"
#else

// fence_async makes this thread's writes to shared memory visible to multiplications (9.7.15.4,
// "Async Proxy"). All threads that wrote call it before a barrier.
DEVICE void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Accumulator registers by number, and registers as operands.
#define NAMES_32 \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}"
#define NAMES_64 \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"
#define SUMS_4(d, n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define SUMS_16(d, n) SUMS_4(d, n), SUMS_4(d, n + 1), SUMS_4(d, n + 2), SUMS_4(d, n + 3)
#define SUMS_32(d, n) SUMS_16(d, n), SUMS_16(d, n + 4)
#define LEFT_4(a, k) "r"(a[k][0]), "r"(a[k][1]), "r"(a[k][2]), "r"(a[k][3])
#define LEFT_16(a) LEFT_4(a, 0), LEFT_4(a, 1), LEFT_4(a, 2), LEFT_4(a, 3)

// A multiplication is one asm statement with four steps along k. It begins with the fence that
// orders earlier accesses to its registers (9.7.15.7.1) and ends with the wait for its completion,
// so the compiler cannot insert code that accesses them. Other warpgroups compute in the meantime.
#define BEGIN                                                                          \
  "{\n.reg .pred add;\n.reg .b64 a, b;\nsetp.eq.u32 add, 0, 0;\n" /* to the sums */ \
  "wgmma.fence.sync.aligned;\n"
#define END "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n}"
#define STEP(n, sums, operands) "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 " sums ", " operands ";\n"

// wgmma_smem adds to a 64x64 accumulator the product of 64 rows and 64 other rows, transposed,
// given by their descriptors. A thread has the accumulators of mma_m16n8k16 for each eight
// columns, with 16 rows per warp (Figure 149).
DEVICE void wgmma_smem(float (&d)[8][4], u64 left, u64 right) {
#define NEXT "add.u64 a, a, %34;\nadd.u64 b, b, %34;\n"
#define ROWS STEP(64, NAMES_32, "a, b, add, 1, 1, 0, 0")
  asm volatile(BEGIN "mov.u64 a, %32;\nmov.u64 b, %33;\n" ROWS NEXT ROWS NEXT ROWS NEXT ROWS END
               : SUMS_32(d, 0)
               : "l"(left), "l"(right), "n"(NEXT_IN_ROWS)
               : "memory");
#undef ROWS
#undef NEXT
}

// wgmma_regs adds to a 64xN accumulator the product of a 64x64 matrix in registers and 64
// rows of N elements, given by their descriptor. Each sixteen columns of the registers have the
// layout of mma_m16n8k16 for a warp's rows (Figure 148).
#define COLUMNS(n, sums, i, j, k, l) STEP(n, sums, "{%" #i ",%" #j ",%" #k ",%" #l "}, b, add, 1, 1, 1")
DEVICE void wgmma_regs(float (&d)[8][4], const u32 (&a)[4][4], u64 right) {
#define NEXT "add.u64 b, b, %49;\n"
#define FOUR(i, j, k, l) COLUMNS(64, NAMES_32, i, j, k, l)
  asm volatile(BEGIN "mov.u64 b, %48;\n" FOUR(32, 33, 34, 35) NEXT FOUR(36, 37, 38, 39) NEXT FOUR(40, 41, 42, 43) NEXT FOUR(44, 45, 46, 47) END
               : SUMS_32(d, 0)
               : LEFT_16(a), "l"(right), "n"(NEXT_ROWS)
               : "memory");
#undef FOUR
#undef NEXT
}
DEVICE void wgmma_regs(float (&d)[16][4], const u32 (&a)[4][4], u64 right) {
#define NEXT "add.u64 b, b, %81;\n"
#define FOUR(i, j, k, l) COLUMNS(128, NAMES_64, i, j, k, l)
  asm volatile(BEGIN "mov.u64 b, %80;\n" FOUR(64, 65, 66, 67) NEXT FOUR(68, 69, 70, 71) NEXT FOUR(72, 73, 74, 75) NEXT FOUR(76, 77, 78, 79) END
               : SUMS_32(d, 0), SUMS_32(d, 8)
               : LEFT_16(a), "l"(right), "n"(NEXT_ROWS)
               : "memory");
#undef FOUR
#undef NEXT
}
#endif

// descriptor returns the matrix descriptor of an operand (9.7.15.5.1.2.2). The next eight rows are
// at a distance of 1024 bytes (the stride dimension byte offset); the next 64 columns are at a
// distance of `leading` bytes, which wgmma_smem does not use.
DEVICE u64 descriptor(const u16 *at, u32 leading) {
  const u64 stride = 1024, swizzle_of_128 = 1;
  return u64((shared_address(at) & 0x3ffff) >> 4) | u64(leading >> 4) << 16 | stride >> 4 << 32 | swizzle_of_128 << 62;
}
