// Operations on n elements, in turns of the grid's size. Grid: any, one dimension.
#include "dropout.h"
#include "maths.h"

KERNEL(add, 256, float *y, const float *a, const float *b, u64 n) {
  for (u64 i = index(); i < n; i += stride()) y[i] = a[i] + b[i];
}

KERNEL(scale, 256, float *y, const float *x, float s, u64 n) {
  for (u64 i = index(); i < n; i += stride()) y[i] = s * x[i];
}

KERNEL(activate, 256, float *y, const float *x, int f, u64 n) {
  for (u64 i = index(); i < n; i += stride()) y[i] = activation(f, x[i]);
}

// from is x for GELU, and y for the others.
KERNEL(activate_grad, 256, float *dx, const float *dy, const float *from, int f, u64 n) {
  for (u64 i = index(); i < n; i += stride()) dx[i] = dy[i] * slope(f, from[i]);
}

// Srivastava et al. 2014.
KERNEL(drop_out, 256, float *y, const float *x, Dropout d, u64 n) {
  for (u64 i = index(); i < n; i += stride()) {
    u64 sample = i / d.per_sample;
    y[i] = kept(d, sample, i - sample * d.per_sample) ? x[i] * d.scale : 0;
  }
}

KERNEL(narrow, 256, u16 *y, const float *x, u64 n) {
  for (u64 i = index(); i < n; i += stride()) y[i] = to_bfloat16(x[i]);
}

KERNEL(widen, 256, float *y, const u16 *x, u64 n) {
  for (u64 i = index(); i < n; i += stride()) y[i] = from_bfloat16(x[i]);
}
