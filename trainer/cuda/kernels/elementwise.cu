// Operations on n elements, with grid-stride loops. Grid: any, one dimension.
#include "dropout.h"
#include "maths.h"
#include "values.h"

KERNEL(add, 256, float *y, const float *a, const float *b, u64 n) {
  for (u64 i = index(); i < n; i += stride()) y[i] = a[i] + b[i];
}

KERNEL(scale, 256, float *y, const float *x, float s, u64 n) {
  for (u64 i = index(); i < n; i += stride()) y[i] = s * x[i];
}

KERNEL(activate, 256, float *y, const float *x, int f, u64 n) {
  for (u64 i = index(); i < n; i += stride()) y[i] = activation(f, x[i]);
}
KERNEL(activate_bf16, 256, u16 *y, const u16 *x, int f, u64 n) {
  each(y, x, n, [=](float v, u64) { return activation(f, v); });
}

// from is x for GELU, and y for the others.
KERNEL(activate_grad, 256, float *dx, const float *dy, const float *from, int f, u64 n) {
  for (u64 i = index(); i < n; i += stride()) dx[i] = dy[i] * activation_grad(f, from[i]);
}
KERNEL(activate_grad_bf16, 256, u16 *dx, const u16 *dy, const u16 *from, int f, u64 n) {
  each(dx, dy, n, [=](float d, u64 i) { return d * activation_grad(f, as_float(from + i)); });
}

// Dropout (Srivastava et al., 2014).
template <class Y, class X> DEVICE void drop(Y *y, const X *x, const Dropout &d, u64 n) {
  each(y, x, n, [&](float v, u64 i) {
    u64 sample = i / d.per_sample;
    return kept(d, sample, i - sample * d.per_sample) ? v * d.scale : 0;
  });
}
KERNEL(drop_out, 256, float *y, const float *x, Dropout d, u64 n) { drop(y, x, d, n); }
KERNEL(drop_out_bf16, 256, u16 *y, const u16 *x, Dropout d, u64 n) { drop(y, x, d, n); }
KERNEL(drop_out_narrow, 256, u16 *y, const float *x, Dropout d, u64 n) { drop(y, x, d, n); }

KERNEL(narrow, 256, u16 *y, const float *x, u64 n) {
  each(y, x, n, [](float v, u64) { return v; });
}

KERNEL(widen, 256, float *y, const u16 *x, u64 n) {
  each(y, x, n, [](float v, u64) { return v; });
}
