// Definitions for the attention kernels: causal scaled dot-product attention (Vaswani et al., 2017)
// in tiles with an online softmax (Dao et al., 2022; Dao 2023, algorithm 1). The backward pass has
// two kernels, for the gradients of queries and for the gradients of keys and values. One thread
// computes each sum, in one order, without atomic additions.
#pragma once

#include "dropout.h"
#include "maths.h"

// Attention is device.AttentionShape and device.AttentionInput. Rows of a matrix have the given
// stride. A head's part of a row begins at head*size. The element type depends on the kernel:
// float32 or bfloat16.
struct Attention {
  const void *q, *k, *v;
  u64 q_stride, k_stride, v_stride;
  Dropout dropout;
  u32 heads, size, queries, keys;
  float scale;
};

// Head is one head of one sample. Grid: tiles x heads x samples.
struct Head {
  const Attention &a;
  u32 sample, head;
  DEVICE_MEMBER u64 row(u32 perSample, u32 i, u64 stride) const { return (u64(sample) * perSample + i) * stride + u64(head) * a.size; }
  // sum returns the index of a query's log-sum-exp.
  DEVICE_MEMBER u64 sum(u32 query) const { return (u64(sample) * a.heads + head) * a.queries + query; }
  DEVICE_MEMBER bool attends(u32 query, u32 key) const { return key < a.keys && key <= query + a.keys - a.queries; }
  DEVICE_MEMBER bool keeps(u32 query, u32 key) const { return kept(a.dropout, sample, (u64(head) * a.queries + query) * a.keys + key); }
};

// quad_sum and quad_max reduce over four adjacent threads, which share rows.
DEVICE float quad_sum(float v) {
  v += shuffle_xor(v, 1);
  return v + shuffle_xor(v, 2);
}
DEVICE float quad_max(float v) {
  v = max_f32(v, shuffle_xor(v, 1));
  return max_f32(v, shuffle_xor(v, 2));
}

// Gradients contains the additional arguments of the backward kernels: matrices of the same element
// type, and for each query, at index Head.sum, its log-sum-exp and delta, the inner product of its
// output and the output's gradient. The query kernel stores delta, and the key kernel, which runs
// after it, reads it.
struct Gradients {
  void *dq, *dk, *dv;
  const void *dout, *out;
  const float *log_sum;
  float *delta;
  u64 dq_stride, dk_stride, dv_stride, dout_stride, out_stride;
};

// score_grad returns the gradient of a scaled score with weight w. *used becomes the weight after
// dropout. The query attends to the key, or w is 0.
DEVICE float score_grad(const Head &h, bool keep, float w, float dweight, float delta, float *used) {
  *used = keep ? w * h.a.dropout.scale : 0;
  return w * ((keep ? dweight * h.a.dropout.scale : 0) - delta);
}
