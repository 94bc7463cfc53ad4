// Attention computed in float32, for head sizes up to 256 that attention_tensor.cu does not
// support. The element type T of matrices is float, or u16 for bfloat16. With bfloat16, operands of
// matrix multiplications are rounded. Tiles are 32 queries by 32 keys; four threads of a warp share
// a row of scores.
#include "attention.h"
#include "values.h"

// load_tile loads 32 rows of a head, starting at row `first`, to shared memory, multiplied by
// factor, with zeros beyond `rows`.
template <class T> DEVICE void load_tile(float *to, const T *from, const Head &h, u32 per_sample, u32 first, u64 stride, float factor) {
  u32 size = h.a.size, pitch = size + 1;
  for (u32 i = thread_x(); i < 32 * size; i += 128) {
    u32 r = i / size, c = i - r * size;
    float v = first + r < per_sample ? as_float(from + h.row(per_sample, first + r, stride) + c) * factor : 0;
    to[r * pitch + c] = sizeof(T) == 2 ? rounded(v) : v;
  }
}

// dot returns the inner product of two rows in shared memory.
DEVICE float dot(const float *a, const float *b, u32 n) {
  float sum = 0;
  for (u32 i = 0; i < n; i++) sum = fma_f32(a[i], b[i], sum);
  return sum;
}

// visible_grad is score_grad for any query and key. It returns 0 if the causal mask hides the key.
DEVICE float visible_grad(const Head &h, u32 query, u32 key, float w, float dweight, float delta, float *used) {
  *used = 0;
  if (query >= h.a.queries || !h.attends(query, key)) return 0;
  return score_grad(h, h.keeps(query, key), w, dweight, delta, used);
}

// Forward pass. Blocks of 128 threads for 32 queries; shared memory: 4*32*(size+1) + 32*33
// elements.
template <class T> DEVICE void forward(T *out, u64 out_stride, float *log_sum, const Attention &a) {
  DYNAMIC_SHARED(float, scratch);
  Head h{a, block_z(), block_y()};
  u32 pitch = a.size + 1, first = block_x() * 32, row = thread_x() / 4, part = thread_x() % 4;
  float *q = scratch, *k = q + 32 * pitch, *v = k + 32 * pitch, *o = v + 32 * pitch, *weights = o + 32 * pitch + row * 33;
  u32 query = first + row < a.queries ? first + row : a.queries - 1;  // results of rows beyond the last are not stored
  load_tile(q, (const T *)a.q, h, a.queries, first, a.q_stride, a.scale);
  for (u32 c = part; c < a.size; c += 4) o[row * pitch + c] = 0;
  float row_max = -infinity(), sum = 0;
  u32 last = first + 31 < a.queries ? first + 31 : a.queries - 1, end = last + a.keys - a.queries + 1;
  for (u32 at = 0; at < end; at += 32) {
    sync_threads();
    load_tile(k, (const T *)a.k, h, a.keys, at, a.k_stride, 1);
    load_tile(v, (const T *)a.v, h, a.keys, at, a.v_stride, 1);
    sync_threads();
    float scores[8], top = row_max;
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
      u32 j = part + 4 * i;
      scores[i] = h.attends(query, at + j) ? dot(q + row * pitch, k + j * pitch, a.size) : -infinity();
      top = max_f32(top, scores[i]);
    }
    top = quad_max(top);  // finite: every query attends to the first key
    float shrink = exp_f32(row_max - top), part_sum = 0;
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
      u32 j = part + 4 * i;
      float w = exp_f32(scores[i] - top);
      part_sum += w;
      if (w != 0 && !h.keeps(query, at + j)) w = 0;
      weights[j] = sizeof(T) == 2 ? rounded(w) : w;
    }
    sum = sum * shrink + quad_sum(part_sum);
    row_max = top;
    sync_threads();
    for (u32 c = part; c < a.size; c += 4) {
      float total = o[row * pitch + c] * shrink;
      for (u32 j = 0; j < 32; j++) total = fma_f32(weights[j], v[j * pitch + c], total);
      o[row * pitch + c] = total;
    }
  }
  if (first + row >= a.queries) return;
  float factor = a.dropout.scale / sum;
  for (u32 c = part; c < a.size; c += 4) store_float(out + h.row(a.queries, query, out_stride) + c, o[row * pitch + c] * factor);
  if (part == 0) log_sum[h.sum(query)] = row_max + log_f32(sum);
}

// Gradient of queries. Blocks of 128 threads for 32 queries; shared memory: 5*32*(size+1) + 32*33
// elements.
template <class T> DEVICE void query_grad(const Attention &a, const Gradients &g) {
  DYNAMIC_SHARED(float, scratch);
  Head h{a, block_z(), block_y()};
  u32 pitch = a.size + 1, first = block_x() * 32, row = thread_x() / 4, part = thread_x() % 4;
  float *q = scratch, *dout = q + 32 * pitch, *k = dout + 32 * pitch, *v = k + 32 * pitch, *dq = v + 32 * pitch, *dscores = dq + 32 * pitch + row * 33;
  u32 query = first + row < a.queries ? first + row : a.queries - 1;
  load_tile(q, (const T *)a.q, h, a.queries, first, a.q_stride, a.scale);
  load_tile(dout, (const T *)g.dout, h, a.queries, first, g.dout_stride, 1);
  float delta = 0, log_sum = g.log_sum[h.sum(query)];
  for (u32 c = part; c < a.size; c += 4) {
    delta += as_float((const T *)g.dout + h.row(a.queries, query, g.dout_stride) + c) * as_float((const T *)g.out + h.row(a.queries, query, g.out_stride) + c);
    dq[row * pitch + c] = 0;
  }
  delta = quad_sum(delta);
  if (part == 0 && first + row < a.queries) g.delta[h.sum(query)] = delta;
  u32 last = first + 31 < a.queries ? first + 31 : a.queries - 1, end = last + a.keys - a.queries + 1;
  for (u32 at = 0; at < end; at += 32) {
    sync_threads();
    load_tile(k, (const T *)a.k, h, a.keys, at, a.k_stride, 1);
    load_tile(v, (const T *)a.v, h, a.keys, at, a.v_stride, 1);
    sync_threads();
    for (u32 i = 0; i < 8; i++) {
      u32 j = part + 4 * i;
      float w = exp_f32(dot(q + row * pitch, k + j * pitch, a.size) - log_sum);
      float used, d = visible_grad(h, query, at + j, w, dot(dout + row * pitch, v + j * pitch, a.size), delta, &used);
      dscores[j] = sizeof(T) == 2 ? rounded(d) : d;
    }
    sync_threads();
    for (u32 c = part; c < a.size; c += 4) {
      float total = dq[row * pitch + c];
      for (u32 j = 0; j < 32; j++) total = fma_f32(dscores[j], k[j * pitch + c], total);
      dq[row * pitch + c] = total;
    }
  }
  if (first + row >= a.queries) return;
  for (u32 c = part; c < a.size; c += 4) store_float((T *)g.dq + h.row(a.queries, query, g.dq_stride) + c, dq[row * pitch + c] * a.scale);
}

// Gradients of keys and values. Blocks of 128 threads for 32 keys; shared memory: 6*32*(size+1) +
// 2*32*33 + 64 elements.
template <class T> DEVICE void key_grad(const Attention &a, const Gradients &g) {
  DYNAMIC_SHARED(float, scratch);
  Head h{a, block_z(), block_y()};
  u32 pitch = a.size + 1, first = block_x() * 32, row = thread_x() / 4, part = thread_x() % 4;
  float *k = scratch, *v = k + 32 * pitch, *q = v + 32 * pitch, *dout = q + 32 * pitch, *dk = dout + 32 * pitch, *dv = dk + 32 * pitch;
  float *weights = dv + 32 * pitch + row * 33, *dscores = weights + 32 * 33, *delta = dv + 32 * pitch + 2 * 32 * 33, *log_sums = delta + 32;
  u32 key = first + row;
  load_tile(k, (const T *)a.k, h, a.keys, first, a.k_stride, 1);
  load_tile(v, (const T *)a.v, h, a.keys, first, a.v_stride, 1);
  for (u32 c = part; c < a.size; c += 4) dk[row * pitch + c] = dv[row * pitch + c] = 0;
  u32 before = a.keys - a.queries, begin = first > before ? (first - before) / 32 * 32 : 0;  // the first query that attends to one of the keys
  for (u32 at = begin; at < a.queries; at += 32) {
    sync_threads();
    load_tile(q, (const T *)a.q, h, a.queries, at, a.q_stride, a.scale);
    load_tile(dout, (const T *)g.dout, h, a.queries, at, g.dout_stride, 1);
    if (part == 0) {
      u32 query = at + row < a.queries ? at + row : a.queries - 1;
      delta[row] = g.delta[h.sum(query)];
      log_sums[row] = g.log_sum[h.sum(query)];
    }
    sync_threads();
    for (u32 i = 0; i < 8; i++) {
      u32 j = part + 4 * i;
      float w = exp_f32(dot(q + j * pitch, k + row * pitch, a.size) - log_sums[j]);
      float used, d = visible_grad(h, at + j, key, w, dot(dout + j * pitch, v + row * pitch, a.size), delta[j], &used);
      weights[j] = sizeof(T) == 2 ? rounded(used) : used;
      dscores[j] = sizeof(T) == 2 ? rounded(d) : d;
    }
    sync_threads();
    for (u32 c = part; c < a.size; c += 4) {
      float to_k = dk[row * pitch + c], to_v = dv[row * pitch + c];
      for (u32 j = 0; j < 32; j++) {
        to_k = fma_f32(dscores[j], q[j * pitch + c], to_k);  // q is scaled
        to_v = fma_f32(weights[j], dout[j * pitch + c], to_v);
      }
      dk[row * pitch + c] = to_k;
      dv[row * pitch + c] = to_v;
    }
  }
  if (key >= a.keys) return;
  for (u32 c = part; c < a.size; c += 4) {
    store_float((T *)g.dk + h.row(a.keys, key, g.dk_stride) + c, dk[row * pitch + c]);
    store_float((T *)g.dv + h.row(a.keys, key, g.dv_stride) + c, dv[row * pitch + c]);
  }
}

#define OF(T, suffix)                                                                                                                 \
  KERNEL(attention_forward##suffix, 128, T *out, u64 out_stride, float *log_sum, Attention a) { forward<T>(out, out_stride, log_sum, a); } \
  KERNEL(attention_query_grad##suffix, 128, Attention a, Gradients g) { query_grad<T>(a, g); }                                          \
  KERNEL(attention_key_grad##suffix, 128, Attention a, Gradients g) { key_grad<T>(a, g); }
OF(float, )
OF(u16, _bf16)
