// Both passes of attention in bfloat16 on tensor cores, whichever these are: a unit U
// has heads of U::D numbers and does the products. A block of U::THREADS threads has
// U::OWN rows of one head, a warp 16 of them, and goes over the others in tiles of
// U::TILE. Scores and their gradients stay in registers: what a product gives of a
// piece is what the next one takes of it.
//
// A unit has these; matrices are in shared memory, and of numbers of two bytes:
//   memory()                   where the first matrix is
//   room(rows)                 how many numbers one of so many rows takes
//   index(rows, r, c)          where in it number c of row r is; c + 1 is behind an even c
//   settle()                   before a barrier behind which products take what was written
//   between(s, own, row, tile) the products of 16 rows of an OWN matrix from `row`, the
//                              warp's, on, and of the rows of a tile
//   mix(sums, s, tile)         adds the rows of a tile, weighted by s, to sums of D columns
//
// Softmax and sums are of float32. Loops over a piece are unrolled, as what is indexed by
// a variable would not be in registers.
#pragma once

#include "attention.h"

// natural is e^v, for weights that are rounded to bfloat16.
DEVICE float natural(float v) { return power_of_two(v * 1.44269504088896341f); }

// The thread's place in a piece: row g and column 2t.
struct Place { u32 g, t; };
DEVICE Place place() { return {thread_x() % 32 / 4, thread_x() % 4}; }

// Piece is 16 rows and TILE columns of scores, or of what is computed of them: by
// eight columns, rows g and then g + 8 of columns 2t and 2t + 1.
template <u32 TILE> struct Piece {
  float v[TILE / 8][4];
  // operand is columns 16k and on, as the left operand of a product.
  DEVICE_MEMBER void operand(u32 *a, u32 k) const {
    const float *left = v[2 * k], *right = v[2 * k + 1];
    a[0] = pair(left[0], left[1]);
    a[1] = pair(left[2], left[3]);
    a[2] = pair(right[0], right[1]);
    a[3] = pair(right[2], right[3]);
  }
};

// row_of and col_of are the place of element i of the n-th eight columns.
DEVICE u32 row_of(u32 i) { return place().g + i / 2 * 8; }
DEVICE u32 col_of(u32 n, u32 i) { return n * 8 + 2 * place().t + i % 2; }

// clear makes N eights of columns zero.
template <u32 N> DEVICE void clear(float (&sums)[N][4]) {
  #pragma unroll
  for (u32 n = 0; n < N; n++)
    #pragma unroll
    for (u32 i = 0; i < 4; i++) sums[n][i] = 0;
}

// fetch loads rows of a head to shared memory as bfloat16, times factor, with zeros
// beyond the sample and beyond the head.
template <class U> DEVICE void fetch(u16 *to, u32 rows, const float *from, const Head &h, u32 per_sample, u32 first, u64 stride, float factor) {
  for (u32 i = thread_x(); i < rows * (U::D / 2); i += U::THREADS) {
    u32 r = i / (U::D / 2), c = i % (U::D / 2) * 2;
    float low = 0, high = 0;
    if (first + r < per_sample) {
      const float *row = from + h.row(per_sample, first + r, stride);
      if (c < h.a.size) low = row[c];
      if (c + 1 < h.a.size) high = row[c + 1];
    }
    *(u32 *)(to + U::index(rows, r, c)) = pair(low * factor, high * factor);
  }
}

// put writes sums of D columns, times a factor for row g and one for row g + 8.
template <u32 N> DEVICE void put(float *to, const Head &h, u32 per_sample, u32 first, u64 stride, float (&sums)[N][4], float upper, float lower) {
  #pragma unroll
  for (u32 i = 0; i < 4; i++) {
    u32 r = first + row_of(i);
    if (r >= per_sample) continue;
    #pragma unroll
    for (u32 n = 0; n < N; n++) {
      u32 c = col_of(n, i);
      if (c < h.a.size) to[h.row(per_sample, r, stride) + c] = sums[n][i] * (i < 2 ? upper : lower);
    }
  }
}

// Shared: an OWN matrix and two tiles.
template <class U> DEVICE void forward(float *out, u64 out_stride, float *log_sum, const Attention &a) {
  u16 *q = U::memory(), *k = q + U::room(U::OWN), *v = k + U::room(U::TILE);
  Head h{a, block_z(), block_y()};
  u32 first = block_x() * U::OWN, row = thread_x() / 32 * 16;
  float o[U::D / 8][4], most[2] = {-infinity(), -infinity()}, sum[2] = {0, 0};
  clear(o);
  u32 query[2];
  #pragma unroll
  for (u32 i = 0; i < 2; i++) {
    u32 r = first + row + row_of(2 * i);
    query[i] = r < a.queries ? r : a.queries - 1;  // rows beyond the last are computed in vain
  }
  fetch<U>(q, U::OWN, a.q, h, a.queries, first, a.q_stride, a.scale);
  u32 last = first + U::OWN - 1 < a.queries ? first + U::OWN - 1 : a.queries - 1, end = last + a.keys - a.queries + 1;
  for (u32 at = 0; at < end; at += U::TILE) {
    sync_threads();
    fetch<U>(k, U::TILE, a.k, h, a.keys, at, a.k_stride, 1);
    fetch<U>(v, U::TILE, a.v, h, a.keys, at, a.v_stride, 1);
    U::settle();
    sync_threads();
    Piece<U::TILE> s;
    U::between(s, q, row, k);
    float top[2] = {most[0], most[1]}, part[2] = {0, 0}, shrink[2];
    #pragma unroll
    for (u32 n = 0; n < U::TILE / 8; n++)
      #pragma unroll
      for (u32 i = 0; i < 4; i++) {
        if (!h.sees(query[i / 2], at + col_of(n, i))) s.v[n][i] = -infinity();
        top[i / 2] = larger(top[i / 2], s.v[n][i]);
      }
    #pragma unroll
    for (u32 i = 0; i < 2; i++) {
      top[i] = quad_max(top[i]);  // a number: every query sees the first key
      shrink[i] = natural(most[i] - top[i]);
      most[i] = top[i];
    }
    #pragma unroll
    for (u32 n = 0; n < U::TILE / 8; n++)
      #pragma unroll
      for (u32 i = 0; i < 4; i++) {
        float w = natural(s.v[n][i] - top[i / 2]);
        part[i / 2] += w;
        s.v[n][i] = w != 0 && !h.keeps(query[i / 2], at + col_of(n, i)) ? 0 : w;
      }
    #pragma unroll
    for (u32 i = 0; i < 2; i++) sum[i] = sum[i] * shrink[i] + quad_sum(part[i]);
    #pragma unroll
    for (u32 n = 0; n < U::D / 8; n++)
      #pragma unroll
      for (u32 i = 0; i < 4; i++) o[n][i] *= shrink[i / 2];
    U::mix(o, s, v);
  }
  put(out, h, a.queries, first + row, out_stride, o, a.dropout.scale / sum[0], a.dropout.scale / sum[1]);
  #pragma unroll
  for (u32 i = 0; i < 2; i++)
    if (place().t == 0 && first + row + row_of(2 * i) < a.queries) log_sum[h.sum(query[i])] = most[i] + logarithm(sum[i]);
}

// along_of is the product of a query's output and its gradient, by four neighbours.
DEVICE float along_of(const Head &h, const Gradients &g, u32 query) {
  const float *dout = g.dout + h.row(h.a.queries, query, g.dout_stride), *out = g.out + h.row(h.a.queries, query, g.out_stride);
  float sum = 0;
  for (u32 c = thread_x() % 4; c < h.a.size; c += 4) sum += dout[c] * out[c];
  return quad_sum(sum);
}

// Shared: two OWN matrices and two tiles.
template <class U> DEVICE void query_grad(const Attention &a, const Gradients &g) {
  u16 *q = U::memory(), *dout = q + U::room(U::OWN), *k = dout + U::room(U::OWN), *v = k + U::room(U::TILE);
  Head h{a, block_z(), block_y()};
  u32 first = block_x() * U::OWN, row = thread_x() / 32 * 16, query[2];
  float dq[U::D / 8][4], along[2], log_sum[2];
  clear(dq);
  #pragma unroll
  for (u32 i = 0; i < 2; i++) {
    u32 r = first + row + row_of(2 * i);
    query[i] = r < a.queries ? r : a.queries - 1;
    along[i] = along_of(h, g, query[i]);
    log_sum[i] = g.log_sum[h.sum(query[i])];
  }
  fetch<U>(q, U::OWN, a.q, h, a.queries, first, a.q_stride, a.scale);
  fetch<U>(dout, U::OWN, g.dout, h, a.queries, first, g.dout_stride, 1);
  u32 last = first + U::OWN - 1 < a.queries ? first + U::OWN - 1 : a.queries - 1, end = last + a.keys - a.queries + 1;
  for (u32 at = 0; at < end; at += U::TILE) {
    sync_threads();
    fetch<U>(k, U::TILE, a.k, h, a.keys, at, a.k_stride, 1);
    fetch<U>(v, U::TILE, a.v, h, a.keys, at, a.v_stride, 1);
    U::settle();
    sync_threads();
    Piece<U::TILE> s, d;
    U::between(s, q, row, k);
    U::between(d, dout, row, v);
    #pragma unroll
    for (u32 n = 0; n < U::TILE / 8; n++)
      #pragma unroll
      for (u32 i = 0; i < 4; i++) {
        float used;
        s.v[n][i] = score_grad(h, query[i / 2], at + col_of(n, i), natural(s.v[n][i] - log_sum[i / 2]), d.v[n][i], along[i / 2], &used);
      }
    U::mix(dq, s, k);
  }
  put(g.dq, h, a.queries, first + row, g.dq_stride, dq, a.scale, a.scale);
}

// Shared: likewise, and 2*TILE numbers of float32 behind them.
template <class U> DEVICE void key_grad(const Attention &a, const Gradients &g) {
  static_assert(U::TILE * 4 == U::THREADS, "four threads for each query of a tile");
  u16 *k = U::memory(), *v = k + U::room(U::OWN), *q = v + U::room(U::OWN), *dout = q + U::room(U::TILE);
  float *along = (float *)(dout + U::room(U::TILE)), *log_sums = along + U::TILE;
  Head h{a, block_z(), block_y()};
  u32 first = block_x() * U::OWN, row = thread_x() / 32 * 16;
  float dk[U::D / 8][4], dv[U::D / 8][4];
  clear(dk);
  clear(dv);
  fetch<U>(k, U::OWN, a.k, h, a.keys, first, a.k_stride, 1);
  fetch<U>(v, U::OWN, a.v, h, a.keys, first, a.v_stride, 1);
  u32 before = a.keys - a.queries, begin = first > before ? (first - before) / U::TILE * U::TILE : 0;  // the first query that sees one of the keys
  for (u32 at = begin; at < a.queries; at += U::TILE) {
    sync_threads();
    fetch<U>(q, U::TILE, a.q, h, a.queries, at, a.q_stride, a.scale);
    fetch<U>(dout, U::TILE, g.dout, h, a.queries, at, g.dout_stride, 1);
    u32 r = thread_x() / 4, query = at + r < a.queries ? at + r : a.queries - 1;
    float sum = along_of(h, g, query);
    if (thread_x() % 4 == 0) {
      along[r] = sum;
      log_sums[r] = g.log_sum[h.sum(query)];
    }
    U::settle();
    sync_threads();
    Piece<U::TILE> s, d;
    U::between(s, k, row, q);
    U::between(d, v, row, dout);
    #pragma unroll
    for (u32 n = 0; n < U::TILE / 8; n++)
      #pragma unroll
      for (u32 i = 0; i < 4; i++) {
        u32 j = col_of(n, i);
        float used, w = natural(s.v[n][i] - log_sums[j]);
        d.v[n][i] = score_grad(h, at + j, first + row + row_of(i), w, d.v[n][i], along[j], &used);
        s.v[n][i] = used;
      }
    U::mix(dv, s, dout);
    U::mix(dk, d, q);  // q is scaled
  }
  put(g.dk, h, a.keys, first + row, g.dk_stride, dk, 1, 1);
  put(g.dv, h, a.keys, first + row, g.dv_stride, dv, 1, 1);
}

// PASSES is the kernels of a unit. Grids are ceil(queries or keys / OWN) x heads x samples.
#define PASSES(name, U)                                                                                                                      \
  KERNEL(attention_forward_##name, U::THREADS, float *out, u64 out_stride, float *log_sum, Attention a) { forward<U>(out, out_stride, log_sum, a); } \
  KERNEL(attention_query_grad_##name, U::THREADS, Attention a, Gradients g) { query_grad<U>(a, g); }                                         \
  KERNEL(attention_key_grad_##name, U::THREADS, Attention a, Gradients g) { key_grad<U>(a, g); }
