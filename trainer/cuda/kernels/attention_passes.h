// Both passes of attention in bfloat16 on tensor cores. A unit U has heads of U::D elements and
// implements the matrix multiplications. A block of U::THREADS threads has U::OWN rows of one head,
// 16 per warp, and loops over the other rows in tiles of U::TILE. Scores and their gradients stay
// in registers: the accumulator fragment of one matrix multiplication is the operand fragment of
// the next.
//
// If U::BUFFERS is 2, shared memory has two buffers for tiles: the next tiles are copied while the
// current ones are multiplied.
//
// If U::VARIANTS, a pass is compiled twice: with and without dropout. Its input type A is Attention or
// WithoutDropout.
//
// U::BLOCKS is the minimum number of resident blocks per multiprocessor in the forward pass. A unit
// has these functions; matrices are in shared memory and have elements of two bytes:
//   memory()                   address of the first matrix
//   elements(rows)             number of elements of a matrix with this many rows
//   index(rows, r, c)          index of elements c to c + 7 of row r, which are contiguous, for a c
//                              that is a multiple of 8; their address is a multiple of 16 bytes
//   fence()                    fence before a barrier, after which multiplications read new data
//   gemm_qk(s, own, row, tile) products of the warp's 16 rows of an OWN matrix, from `row`, and the
//                              rows of a tile (Q·Kᵀ)
//   gemm_pv(sums, s, tile)     adds the rows of a tile, weighted by s, to sums of D columns (P·V)
//
// The matrices of the input and of the gradients are bfloat16; softmax and sums are float32. Loops
// over a fragment are unrolled, because an array with a variable index would not be in registers.
#pragma once

#include "attention.h"
#include "values.h"

// Scores are products of unscaled vectors. One factor applies the scale and converts e^v to a power
// of two.
constexpr float LOG2_E = 1.44269504088896341f;
DEVICE float factor_of(const Attention &a) { return a.scale * LOG2_E; }

// FragmentPos is the thread's position in a fragment: row g and column 2t.
struct FragmentPos { u32 g, t; };
DEVICE FragmentPos fragment_pos() { return {thread_x() % 32 / 4, thread_x() % 4}; }

// Fragment holds 16 rows and TILE columns of scores, or of values derived from them: for
// each eight columns, rows g and then g + 8 of columns 2t and 2t + 1.
template <u32 TILE> struct Fragment {
  float v[TILE / 8][4];
  // operand returns columns from 16k as the left operand of a matrix multiplication.
  DEVICE_MEMBER void operand(u32 *a, u32 k) const {
    const float *left = v[2 * k], *right = v[2 * k + 1];
    a[0] = to_bfloat16x2(left[0], left[1]);
    a[1] = to_bfloat16x2(left[2], left[3]);
    a[2] = to_bfloat16x2(right[0], right[1]);
    a[3] = to_bfloat16x2(right[2], right[3]);
  }
};

// row_of and col_of return the position of element i of the n-th eight columns.
DEVICE u32 row_of(u32 i) { return fragment_pos().g + i / 2 * 8; }
DEVICE u32 col_of(u32 n, u32 i) { return n * 8 + 2 * fragment_pos().t + i % 2; }

// apply_causal_mask sets scores to -infinity, and so their weights to 0, unless visible(n, i)
// reports that the query attends to the key. The caller skips it for a tile that has no hidden key
// for the warp.
template <u32 TILE, class F> DEVICE void apply_causal_mask(Fragment<TILE> &s, F visible) {
  #pragma unroll
  for (u32 n = 0; n < TILE / 8; n++)
    #pragma unroll
    for (u32 i = 0; i < 4; i++)
      if (!visible(n, i)) s.v[n][i] = -infinity();
}

// DropoutMask holds the elements of a fragment that dropout keeps: the results of keeps(n, i), which
// is called only if there is dropout.
template <u32 TILE> struct DropoutMask {
  u32 bits = ~0u;
  template <class F> DEVICE_MEMBER DropoutMask(const Attention &a, F keeps) {
    static_assert(TILE <= 64, "elements of a thread");
    if (a.dropout.threshold == 0) return;
    bits = 0;
    #pragma nounroll  // it is long, and bits is in one register anyway
    for (u32 n = 0; n < TILE / 8; n++)
      #pragma unroll
      for (u32 i = 0; i < 4; i++) bits |= u32(keeps(n, i)) << (n * 4 + i);
  }
  DEVICE_MEMBER bool of(u32 n, u32 i) const { return bits >> (n * 4 + i) & 1; }
};

// clear sets N groups of eight columns to zero.
template <u32 N> DEVICE void clear(float (&sums)[N][4]) {
  #pragma unroll
  for (u32 n = 0; n < N; n++)
    #pragma unroll
    for (u32 i = 0; i < 4; i++) sums[n][i] = 0;
}

// Rows are the rows of a matrix for one head.
struct Rows {
  const u16 *from;
  u64 stride;
  u32 size;
  bool vectorized;  // supports vector loads of eight elements
  DEVICE_MEMBER Rows(const void *matrix, const Head &h, u32 per_sample, u64 stride) : from((const u16 *)matrix + h.row(per_sample, 0, stride)), stride(stride), size(h.a.size) { vectorized = by_eight(size | stride, from); }
  // load_eight returns eight elements of a row from column c, a multiple of 8; 0 beyond the head.
  DEVICE_MEMBER U32x4 load_eight(u32 row, u32 c) const {
    const u16 *at = from + row * stride + c;
    U32x4 v = {0, 0, 0, 0};
    if (c >= size) return v;
    if (vectorized) return *(const U32x4 *)at;
    #pragma unroll
    for (u32 i = 0; i < 8; i++)
      if (c + i < size) v[i / 2] |= u32(at[i]) << i % 2 * 16;
    return v;
  }
};

// start_tile starts to copy N rows to shared memory, with zeros beyond the sample and the head. The
// thread must wait for its copies. Rows that do not support vector loads are copied immediately.
template <class U, u32 N> DEVICE void start_tile(u16 *to, const Rows &rows, u32 per_sample, u32 first) {
  constexpr u32 step = U::THREADS / (U::D / 8);  // rows of all threads
  static_assert(N % step == 0);
  u32 r = thread_x() / (U::D / 8), c = thread_x() % (U::D / 8) * 8;
  if (rows.vectorized) {
    #pragma unroll
    for (u32 n = 0; n < N; n += step) {
      bool used = first + n + r < per_sample && c < rows.size;
      copy_async_16(to + U::index(N, n + r, c), used ? rows.from + (first + n + r) * rows.stride + c : rows.from, used);
    }
    return;
  }
  #pragma nounroll  // short code for a rare case
  for (u32 n = 0; n < N; n += step) {
    const u16 *at = rows.from + (first + n + r) * rows.stride + c;
    u32 cols = first + n + r < per_sample && c < rows.size ? rows.size - c : 0;
    U32x4 v = {0, 0, 0, 0};
    #pragma unroll
    for (u32 i = 0; i < 8; i++)
      if (i < cols) v[i / 2] |= u32(at[i]) << i % 2 * 16;
    *(U32x4 *)(to + U::index(N, n + r, c)) = v;
  }
}

// load_tile copies N rows to shared memory, with zeros beyond the sample and the head. If U::BUFFERS is
// 2, it only starts.
template <class U, u32 N> DEVICE void load_tile(u16 *to, const Rows &rows, u32 per_sample, u32 first) {
  if constexpr (U::BUFFERS == 2) return start_tile<U, N>(to, rows, per_sample, first);
  constexpr u32 each = N * (U::D / 8) / U::THREADS;
  static_assert(each * U::THREADS == N * (U::D / 8));
  U32x4 v[each];  // all loads are issued before the first wait
  #pragma unroll
  for (u32 n = 0; n < each; n++) {
    u32 i = n * U::THREADS + thread_x(), r = i / (U::D / 8), c = i % (U::D / 8) * 8;
    v[n] = U32x4{0, 0, 0, 0};
    if (first + r < per_sample) v[n] = rows.load_eight(first + r, c);
  }
  #pragma unroll
  for (u32 n = 0; n < each; n++) {
    u32 i = n * U::THREADS + thread_x(), r = i / (U::D / 8), c = i % (U::D / 8) * 8;
    *(U32x4 *)(to + U::index(N, r, c)) = v[n];
  }
}

// tile_of returns the tile of the first or second matrix in a buffer.
template <class U> DEVICE u16 *tile_of(u16 *tiles, u32 buffer, u32 matrix) { return tiles + (2 * buffer + matrix) * U::elements(U::TILE); }

// load_tiles loads a tile of each of two matrices into a buffer, like load_tile.
template <class U> DEVICE void load_tiles(u16 *tiles, u32 buffer, const Rows &x, const Rows &y, u32 per_sample, u32 first) {
  load_tile<U, U::TILE>(tile_of<U>(tiles, buffer, 0), x, per_sample, first);
  load_tile<U, U::TILE>(tile_of<U>(tiles, buffer, 1), y, per_sample, first);
}

// start_tiles starts to load the first tiles, from row `at`, if U::BUFFERS is 2. load(buffer, at) loads
// tiles. It returns the buffer for next_tiles.
template <class U, class L> DEVICE u32 start_tiles(u32 at, L load) {
  if constexpr (U::BUFFERS == 2) load(0, at);
  return U::BUFFERS - 1;
}

// next_tiles sets buffer to the one that has the tiles from row `at`, which all threads have loaded.
// If U::BUFFERS is 2, it starts to load the next tiles, if there are rows before `end`.
template <class U, class L> DEVICE void next_tiles(u32 &buffer, u32 at, u32 end, L load) {
  if constexpr (U::BUFFERS == 1) {
    sync_threads();
    load(0, at);
    U::fence();
    sync_threads();
  } else {
    buffer ^= 1;
    wait_copies();
    U::fence();
    sync_threads();  // no thread uses the other buffer
    if (at + U::TILE < end) load(buffer ^ 1, at + U::TILE);
  }
}

// store_rows stores sums of D columns, multiplied by one factor for row g and one for row g + 8.
template <u32 N> DEVICE void store_rows(void *matrix, const Head &h, u32 per_sample, u32 first, u64 stride, float (&sums)[N][4], float upper, float lower) {
  u16 *to = (u16 *)matrix + h.row(per_sample, 0, stride);
  bool even = (h.a.size | stride) % 2 == 0 && u64(to) % 4 == 0;  // columns 2t and 2t + 1 are one word
  #pragma unroll
  for (u32 i = 0; i < 4; i += 2) {
    u32 r = first + row_of(i);
    if (r >= per_sample) continue;
    float factor = i == 0 ? upper : lower;
    #pragma unroll
    for (u32 n = 0; n < N; n++) {
      u32 c = col_of(n, 0), pair = to_bfloat16x2(sums[n][i] * factor, sums[n][i + 1] * factor);
      u16 *at = to + r * stride + c;
      if (c >= h.a.size) continue;
      if (even) {
        *(u32 *)at = pair;
        continue;
      }
      at[0] = u16(pair);
      if (c + 1 < h.a.size) at[1] = u16(pair >> 16);
    }
  }
}

// Forward pass. Shared memory: an OWN matrix and two tiles per buffer.
template <class U, class A> DEVICE void forward(u16 *out, u64 out_stride, float *log_sum, const A &a) {
  u16 *q = U::memory(), *tiles = q + U::elements(U::OWN);
  Head h{a, block_z(), block_y()};
  u32 first = block_x() * U::OWN, row = thread_x() / 32 * 16;
  float o[U::D / 8][4], row_max[2] = {-infinity(), -infinity()}, sum[2] = {0, 0};
  clear(o);
  u32 query[2];
  #pragma unroll
  for (u32 i = 0; i < 2; i++) {
    u32 r = first + row + row_of(2 * i);
    query[i] = r < a.queries ? r : a.queries - 1;  // results of rows beyond the last are not stored
  }
  Rows keys(a.k, h, a.keys, a.k_stride), values(a.v, h, a.keys, a.v_stride);
  float factor = factor_of(a);
  load_tile<U, U::OWN>(q, Rows(a.q, h, a.queries, a.q_stride), a.queries, first);
  u32 before = a.keys - a.queries, last = first + U::OWN - 1 < a.queries ? first + U::OWN - 1 : a.queries - 1, end = last + before + 1;
  auto load = [&](u32 buffer, u32 at) INLINE { load_tiles<U>(tiles, buffer, keys, values, a.keys, at); };
  for (u32 at = 0, buffer = start_tiles<U>(at, load); at < end; at += U::TILE) {
    next_tiles<U>(buffer, at, end, load);
    u16 *k = tile_of<U>(tiles, buffer, 0), *v = tile_of<U>(tiles, buffer, 1);
    DropoutMask<U::TILE> keep(a, [&](u32 n, u32 i) { return h.keeps(query[i / 2], at + col_of(n, i)); });
    Fragment<U::TILE> s;
    U::gemm_qk(s, q, row, k);
    if (at + U::TILE > first + row + before + 1) apply_causal_mask(s, [&](u32 n, u32 i) { return h.attends(query[i / 2], at + col_of(n, i)); });
    float top[2] = {row_max[0], row_max[1]}, part[2] = {0, 0}, shrink[2];  // top and row_max are before the factor
    #pragma unroll
    for (u32 n = 0; n < U::TILE / 8; n++)
      #pragma unroll
      for (u32 i = 0; i < 4; i++) top[i / 2] = max_f32(top[i / 2], s.v[n][i]);
    #pragma unroll
    for (u32 i = 0; i < 2; i++) {
      top[i] = quad_max(top[i]);  // finite: every query attends to the first key
      shrink[i] = ex2_approx_f32((row_max[i] - top[i]) * factor);
      row_max[i] = top[i];
    }
    #pragma unroll
    for (u32 n = 0; n < U::TILE / 8; n++)
      #pragma unroll
      for (u32 i = 0; i < 4; i++) {
        float w = ex2_approx_f32(fma_f32(s.v[n][i], factor, -top[i / 2] * factor));
        part[i / 2] += w;
        s.v[n][i] = keep.of(n, i) ? w : 0;
      }
    #pragma unroll
    for (u32 i = 0; i < 2; i++) sum[i] = sum[i] * shrink[i] + quad_sum(part[i]);
    #pragma unroll
    for (u32 n = 0; n < U::D / 8; n++)
      #pragma unroll
      for (u32 i = 0; i < 4; i++) o[n][i] *= shrink[i / 2];
    U::gemm_pv(o, s, v);
  }
  store_rows(out, h, a.queries, first + row, out_stride, o, a.dropout.scale / sum[0], a.dropout.scale / sum[1]);
  #pragma unroll
  for (u32 i = 0; i < 2; i++)
    if (fragment_pos().t == 0 && first + row + row_of(2 * i) < a.queries) log_sum[h.sum(query[i])] = row_max[i] * a.scale + log_f32(sum[i]);
}

// delta_of returns delta, the inner product of a query's output and its gradient, computed by four
// adjacent threads.
DEVICE float delta_of(const Rows &dout, const Rows &out, u32 query) {
  float sum = 0;
  for (u32 c = thread_x() % 4 * 8; c < out.size; c += 32) {
    U32x4 left = dout.load_eight(query, c), right = out.load_eight(query, c);
    #pragma unroll
    for (u32 i = 0; i < 4; i++) {
      sum = fma_f32(bits_float(left[i] << 16), bits_float(right[i] << 16), sum);
      sum = fma_f32(bits_float(left[i] & 0xffff0000u), bits_float(right[i] & 0xffff0000u), sum);
    }
  }
  return quad_sum(sum);
}

// Gradient of queries. Shared memory: two OWN matrices and two tiles per buffer.
template <class U, class A> DEVICE void query_grad(const A &a, const Gradients &g) {
  u16 *q = U::memory(), *dout = q + U::elements(U::OWN), *tiles = dout + U::elements(U::OWN);
  Head h{a, block_z(), block_y()};
  u32 first = block_x() * U::OWN, row = thread_x() / 32 * 16, query[2];
  float dq[U::D / 8][4], delta[2], log_sum[2];
  clear(dq);
  Rows keys(a.k, h, a.keys, a.k_stride), values(a.v, h, a.keys, a.v_stride), douts(g.dout, h, a.queries, g.dout_stride);
  float factor = factor_of(a);
  #pragma unroll
  for (u32 i = 0; i < 2; i++) {
    u32 r = first + row + row_of(2 * i);
    query[i] = r < a.queries ? r : a.queries - 1;
    delta[i] = delta_of(douts, Rows(g.out, h, a.queries, g.out_stride), query[i]);
    log_sum[i] = g.log_sum[h.sum(query[i])] * LOG2_E;
    if (fragment_pos().t == 0 && r < a.queries) g.delta[h.sum(r)] = delta[i];
  }
  load_tile<U, U::OWN>(q, Rows(a.q, h, a.queries, a.q_stride), a.queries, first);
  load_tile<U, U::OWN>(dout, douts, a.queries, first);
  u32 before = a.keys - a.queries, last = first + U::OWN - 1 < a.queries ? first + U::OWN - 1 : a.queries - 1, end = last + before + 1;
  auto load = [&](u32 buffer, u32 at) INLINE { load_tiles<U>(tiles, buffer, keys, values, a.keys, at); };
  for (u32 at = 0, buffer = start_tiles<U>(at, load); at < end; at += U::TILE) {
    next_tiles<U>(buffer, at, end, load);
    u16 *k = tile_of<U>(tiles, buffer, 0), *v = tile_of<U>(tiles, buffer, 1);
    DropoutMask<U::TILE> keep(a, [&](u32 n, u32 i) { return h.keeps(query[i / 2], at + col_of(n, i)); });
    Fragment<U::TILE> s, d;
    U::gemm_qk(s, q, row, k);
    U::gemm_qk(d, dout, row, v);
    if (at + U::TILE > first + row + before + 1) apply_causal_mask(s, [&](u32 n, u32 i) { return h.attends(query[i / 2], at + col_of(n, i)); });
    #pragma unroll
    for (u32 n = 0; n < U::TILE / 8; n++)
      #pragma unroll
      for (u32 i = 0; i < 4; i++) {
        float used;
        s.v[n][i] = score_grad(h, keep.of(n, i), ex2_approx_f32(fma_f32(s.v[n][i], factor, -log_sum[i / 2])), d.v[n][i], delta[i / 2], &used);
      }
    U::gemm_pv(dq, s, k);
  }
  store_rows(g.dq, h, a.queries, first + row, g.dq_stride, dq, a.scale, a.scale);
}

// Gradients of keys and values. Shared memory: two OWN matrices; two tiles per buffer; and 2*TILE
// float32 elements per buffer, delta and log-sum-exp of the queries.
template <class U, class A> DEVICE void key_grad(const A &a, const Gradients &g) {
  u16 *k = U::memory(), *v = k + U::elements(U::OWN), *tiles = v + U::elements(U::OWN);
  float *sums = (float *)tile_of<U>(tiles, U::BUFFERS, 0);
  Head h{a, block_z(), block_y()};
  u32 first = block_x() * U::OWN, row = thread_x() / 32 * 16;
  float dk[U::D / 8][4], dv[U::D / 8][4];
  clear(dk);
  clear(dv);
  Rows queries(a.q, h, a.queries, a.q_stride), douts(g.dout, h, a.queries, g.dout_stride);
  float factor = factor_of(a);
  load_tile<U, U::OWN>(k, Rows(a.k, h, a.keys, a.k_stride), a.keys, first);
  load_tile<U, U::OWN>(v, Rows(a.v, h, a.keys, a.v_stride), a.keys, first);
  u32 before = a.keys - a.queries, begin = first > before ? (first - before) / U::TILE * U::TILE : 0;  // the first query that attends to one of the keys
  auto load = [&](u32 buffer, u32 at) INLINE {
    load_tiles<U>(tiles, buffer, queries, douts, a.queries, at);
    float *delta = sums + buffer * 2 * U::TILE, *log_sums = delta + U::TILE;
    if (u32 r = thread_x(); r < U::TILE) {
      u32 query = at + r < a.queries ? at + r : a.queries - 1;
      if constexpr (U::BUFFERS == 2) {
        copy_async_4(&delta[r], &g.delta[h.sum(query)]);
        copy_async_4(&log_sums[r], &g.log_sum[h.sum(query)]);
      } else {
        delta[r] = g.delta[h.sum(query)];
        log_sums[r] = g.log_sum[h.sum(query)] * LOG2_E;
      }
    }
  };
  constexpr float scale = U::BUFFERS == 2 ? LOG2_E : 1;  // of log_sums
  for (u32 at = begin, buffer = start_tiles<U>(at, load); at < a.queries; at += U::TILE) {
    next_tiles<U>(buffer, at, a.queries, load);
    u16 *q = tile_of<U>(tiles, buffer, 0), *dout = tile_of<U>(tiles, buffer, 1);
    const float *delta = sums + buffer * 2 * U::TILE, *log_sums = delta + U::TILE;
    DropoutMask<U::TILE> keep(a, [&](u32 n, u32 i) { return h.keeps(at + col_of(n, i), first + row + row_of(i)); });
    Fragment<U::TILE> s, d;
    U::gemm_qk(s, k, row, q);
    U::gemm_qk(d, v, row, dout);
    if (first + row + 16 > at + before + 1 || at + U::TILE > a.queries)
      apply_causal_mask(s, [&](u32 n, u32 i) { return at + col_of(n, i) < a.queries && h.attends(at + col_of(n, i), first + row + row_of(i)); });
    #pragma unroll
    for (u32 n = 0; n < U::TILE / 8; n++)
      #pragma unroll
      for (u32 i = 0; i < 4; i++) {
        u32 j = col_of(n, i);
        float used, w = ex2_approx_f32(fma_f32(s.v[n][i], factor, -(log_sums[j] * scale)));
        d.v[n][i] = score_grad(h, keep.of(n, i), w, d.v[n][i], delta[j], &used);
        s.v[n][i] = used;
      }
    U::gemm_pv(dv, s, dout);
    U::gemm_pv(dk, d, q);
  }
  store_rows(g.dk, h, a.keys, first + row, g.dk_stride, dk, a.scale, a.scale);
  store_rows(g.dv, h, a.keys, first + row, g.dv_stride, dv, 1, 1);
}

// WithoutDropout is the input of a pass that is compiled without dropout: these constants remove its
// code from the loop over tiles.
struct WithoutDropout : Attention {
  DEVICE_MEMBER explicit WithoutDropout(const Attention &a) : Attention(a) {
    dropout.threshold = 0;
    dropout.scale = 1;
  }
};

// PASSES defines the kernels of a unit. Grids are ceil(queries or keys / OWN) x heads x samples.
#define PASSES(name, U)                                                                                                                      \
  KERNEL_BLOCKS(attention_forward_##name, U::THREADS, U::BLOCKS, u16 *out, u64 out_stride, float *log_sum, Attention a) {                    \
    if constexpr (U::VARIANTS)                                                                                                               \
      if (a.dropout.threshold == 0) return forward<U>(out, out_stride, log_sum, WithoutDropout(a));                                          \
    forward<U>(out, out_stride, log_sum, a);                                                                                                 \
  }                                                                                                                                          \
  KERNEL(attention_query_grad_##name, U::THREADS, Attention a, Gradients g) {                                                                \
    if constexpr (U::VARIANTS)                                                                                                               \
      if (a.dropout.threshold == 0) return query_grad<U>(WithoutDropout(a), g);                                                              \
    query_grad<U>(a, g);                                                                                                                     \
  }                                                                                                                                          \
  KERNEL(attention_key_grad_##name, U::THREADS, Attention a, Gradients g) {                                                                  \
    if constexpr (U::VARIANTS)                                                                                                               \
      if (a.dropout.threshold == 0) return key_grad<U>(WithoutDropout(a), g);                                                                \
    key_grad<U>(a, g);                                                                                                                       \
  }
