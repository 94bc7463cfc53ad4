// Stored values, float32 or bfloat16, which are read and written one or eight at a time. Eight
// bfloat16 values are 16 bytes, the largest vector load of a thread.
#pragma once

#include "gpu.h"

// U32x4 is 16 bytes.
typedef u32 U32x4 __attribute__((vector_size(16), may_alias));

// by_eight reports whether rows of cols elements at each of these addresses support vector loads of
// eight.
template <class... P> DEVICE bool by_eight(u64 cols, const P *...at) { return (cols % 8 | ((u64(at) % 16) | ...)) == 0; }

DEVICE float as_float(const float *at) { return *at; }
DEVICE float as_float(const u16 *at) { return from_bfloat16(*at); }
DEVICE void store_float(float *at, float v) { *at = v; }
DEVICE void store_float(u16 *at, float v) { *at = to_bfloat16(v); }

// load reads N values and store writes them: 1, or 8 at an address that is a multiple of 16 bytes.
template <class T> DEVICE void load(float (&v)[1], const T *at) { v[0] = as_float(at); }
template <class T> DEVICE void store(T *at, const float (&v)[1]) { store_float(at, v[0]); }

// widen_eight converts eight bfloat16 values.
DEVICE void widen_eight(float (&v)[8], U32x4 b) {
#pragma unroll
  for (u32 i = 0; i < 4; i++) {
    v[2 * i] = bits_float(b[i] << 16);
    v[2 * i + 1] = bits_float(b[i] & 0xffff0000u);
  }
}
DEVICE void load(float (&v)[8], const u16 *at) { widen_eight(v, *(const U32x4 *)at); }
DEVICE void store(u16 *at, const float (&v)[8]) {
  U32x4 b;
#pragma unroll
  for (u32 i = 0; i < 4; i++) b[i] = to_bfloat16x2(v[2 * i], v[2 * i + 1]);
  *(U32x4 *)at = b;
}
DEVICE void load(float (&v)[8], const float *at) {
#pragma unroll
  for (u32 half = 0; half < 2; half++) {
    U32x4 b = ((const U32x4 *)at)[half];
#pragma unroll
    for (u32 i = 0; i < 4; i++) v[4 * half + i] = bits_float(b[i]);
  }
}
DEVICE void store(float *at, const float (&v)[8]) {
#pragma unroll
  for (u32 half = 0; half < 2; half++) {
    U32x4 b;
#pragma unroll
    for (u32 i = 0; i < 4; i++) b[i] = float_bits(v[4 * half + i]);
    ((U32x4 *)at)[half] = b;
  }
}

// each stores f(x[i], i) in y[i] for n elements, in a grid-stride loop. If x and y are the same
// memory, they have the same type.
template <class Y, class X, class F> DEVICE void each(Y *y, const X *x, u64 n, F f) {
  u64 eights = by_eight(0, y, x) ? n / 8 : 0;
  for (u64 at = index(); at < eights; at += stride()) {
    float v[8];
    load(v, x + at * 8);
#pragma unroll
    for (u32 i = 0; i < 8; i++) v[i] = f(v[i], at * 8 + i);
    store(y + at * 8, v);
  }
  for (u64 i = eights * 8 + index(); i < n; i += stride()) store_float(y + i, f(as_float(x + i), i));
}
