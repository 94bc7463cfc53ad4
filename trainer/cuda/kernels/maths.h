// Elementary functions in float32 with an error of a few ulps. The polynomials are from Cephes
// (Moshier, expf.c, logf.c, tanhf.c).
#pragma once

#include "gpu.h"

// exp_f32 returns e^x. Subnormal results are 0.
DEVICE float exp_f32(float x) {
  if (is_nan(x)) return x;
  if (x > 88.72283f) return infinity();
  if (x < -87.33654f) return 0;
  float n = rint_f32(x * 1.44269504088896341f);
  float r = fma_f32(n, -0.693359375f, x);  // n has eight bits and the constant nine: exact
  r = fma_f32(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = fma_f32(p, r, 1.3981999507e-3f);
  p = fma_f32(p, r, 8.3334519073e-3f);
  p = fma_f32(p, r, 4.1665795894e-2f);
  p = fma_f32(p, r, 1.6666665459e-1f);
  p = fma_f32(p, r, 5.0000001201e-1f);
  p = fma_f32(p, r * r, r) + 1;
  int half = int(n) / 2;  // 2^n itself may overflow
  return p * bits_float(u32(half + 127) << 23) * bits_float(u32(int(n) - half + 127) << 23);
}

// log_f32 returns ln x for a positive normal number; infinity and NaN are returned unchanged.
DEVICE float log_f32(float x) {
  u32 b = float_bits(x);
  if (b >= 0x7f800000u) return x;
  int e = int(b >> 23) - 126;
  float m = bits_float((b & 0x7fffffu) | 0x3f000000u);  // from 0.5 to 1
  if (m < 0.707106781186547524f) {
    e--;
    m = m + m;
  }
  m -= 1;
  float z = m * m, p = 7.0376836292e-2f;
  p = fma_f32(p, m, -1.1514610310e-1f);
  p = fma_f32(p, m, 1.1676998740e-1f);
  p = fma_f32(p, m, -1.2420140846e-1f);
  p = fma_f32(p, m, 1.4249322787e-1f);
  p = fma_f32(p, m, -1.6668057665e-1f);
  p = fma_f32(p, m, 2.0000714765e-1f);
  p = fma_f32(p, m, -2.4999993993e-1f);
  p = fma_f32(p, m, 3.3333331174e-1f);
  p = m * z * p;
  float n = float(e);
  p = fma_f32(n, -2.12194440e-4f, p);
  p = fma_f32(z, -0.5f, p);
  return fma_f32(n, 0.693359375f, m + p);
}

// tanh_f32 returns tanh x.
DEVICE float tanh_f32(float x) {
  float size = x < 0 ? -x : x;
  if (size >= 0.625f) {  // also infinity
    float t = 1 - 2 / (exp_f32(size + size) + 1);
    return x < 0 ? -t : t;
  }
  float z = x * x, p = -5.70498872745e-3f;
  p = fma_f32(p, z, 2.06390887954e-2f);
  p = fma_f32(p, z, -5.37397155531e-2f);
  p = fma_f32(p, z, 1.33314422036e-1f);
  p = fma_f32(p, z, -3.33332819422e-1f);
  return fma_f32(p * z, x, x);  // NaN remains NaN
}

// The activations have the numbers of package device.
enum { identity = 0, relu = 1, tanh_ = 2, gelu = 3 };

// gelu_inner returns the argument of tanh in GELU's approximation (Hendrycks and Gimpel, 2016).
DEVICE float gelu_inner(float x) { return 0.7978845608028654f * (x + 0.044715f * (x * x * x)); }

DEVICE float activation(int f, float x) {
  switch (f) {
  case relu: return x > 0 || is_nan(x) ? x : 0;
  case tanh_: return tanh_f32(x);
  case gelu: return 0.5f * x + 0.5f * x * tanh_f32(gelu_inner(x));
  }
  return x;
}

// activation_grad returns f'(x), computed from x for GELU, and from y = f(x) for the others.
DEVICE float activation_grad(int f, float from) {
  switch (f) {
  case relu: return from > 0 ? 1 : 0;
  case tanh_: return 1 - from * from;
  case gelu: {
    float t = tanh_f32(gelu_inner(from)), inner = 0.7978845608028654f * (1 + 0.134145f * (from * from));
    return 0.5f + 0.5f * t + 0.5f * from * (1 - t * t) * inner;
  }
  }
  return 1;
}
