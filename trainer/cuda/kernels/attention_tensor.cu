// Attention in bfloat16 on tensor cores, for heads of up to 64 and of up to 128: D. A
// block of four warps has 64 rows of one head, a warp 16 of them, and goes over the
// others in tiles of 32. Scores and their gradients stay in registers: what
// multiply_16x8x16 gives of a 16x16 piece is what it takes of one.
//
// Softmax and sums are of float32. Loops over a piece are unrolled, as what is indexed by
// a variable would not be in registers.
#include "attention.h"

enum { OWN = 64, TILE = 32 };

// natural is e^v, for weights that are rounded to bfloat16.
DEVICE float natural(float v) { return power_of_two(v * 1.44269504088896341f); }

// fetch loads rows of a head to shared memory as bfloat16, D + 8 apart, times factor,
// with zeros beyond the sample and beyond the head.
template <u32 D> DEVICE void fetch(u16 *to, u32 rows, const float *from, const Head &h, u32 per_sample, u32 first, u64 stride, float factor) {
  for (u32 i = thread_x(); i < rows * (D / 2); i += 128) {
    u32 r = i / (D / 2), c = i % (D / 2) * 2;
    float low = 0, high = 0;
    if (first + r < per_sample) {
      const float *row = from + h.row(per_sample, first + r, stride);
      if (c < h.a.size) low = row[c];
      if (c + 1 < h.a.size) high = row[c + 1];
    }
    *(u32 *)(to + r * (D + 8) + c) = pair(low * factor, high * factor);
  }
}

// The thread's place in a piece: row g and column 2t.
struct Place { u32 g, t; };
DEVICE Place place() { return {thread_x() % 32 / 4, thread_x() % 4}; }

// rows_of is the left operand of 16 rows and 16 columns of a tile.
template <u32 D> DEVICE void rows_of(u32 *a, const u16 *tile, u32 row, u32 col) {
  Place p = place();
  const u16 *at = tile + (row + p.g) * (D + 8) + col + 2 * p.t;
  a[0] = *(const u32 *)at;
  a[1] = *(const u32 *)(at + 8 * (D + 8));
  a[2] = *(const u32 *)(at + 8);
  a[3] = *(const u32 *)(at + 8 * (D + 8) + 8);
}

// across is the right operand of 8 rows and 16 columns of a tile, transposed; down is
// that of 16 rows and 8 columns, as they are.
template <u32 D> DEVICE void across(u32 *b, const u16 *tile, u32 row, u32 col) {
  Place p = place();
  const u16 *at = tile + (row + p.g) * (D + 8) + col + 2 * p.t;
  b[0] = *(const u32 *)at;
  b[1] = *(const u32 *)(at + 8);
}
template <u32 D> DEVICE void down(u32 *b, const u16 *tile, u32 row, u32 col) {
  Place p = place();
  const u16 *at = tile + (row + 2 * p.t) * (D + 8) + col + p.g;
  b[0] = u32(at[0]) | u32(at[D + 8]) << 16;
  b[1] = u32(at[8 * (D + 8)]) | u32(at[9 * (D + 8)]) << 16;
}

// Piece is 16 rows and TILE columns of scores, or of what is computed of them: by
// eight columns, rows g and then g + 8 of columns 2t and 2t + 1.
struct Piece {
  float v[TILE / 8][4];
  // row and col are the place of element i of the n-th eight columns.
  DEVICE_MEMBER static u32 row(u32 i) { return place().g + i / 2 * 8; }
  DEVICE_MEMBER static u32 col(u32 n, u32 i) { return n * 8 + 2 * place().t + i % 2; }
};

// between is the products of 16 rows from `row` on and of the TILE rows of another tile.
template <u32 D> DEVICE void between(Piece &s, const u16 *own, u32 row, const u16 *other) {
  #pragma unroll
  for (u32 n = 0; n < TILE / 8; n++)
    #pragma unroll
    for (u32 i = 0; i < 4; i++) s.v[n][i] = 0;
  #pragma unroll
  for (u32 k = 0; k < D; k += 16) {
    u32 a[4], b[2];
    rows_of<D>(a, own, row, k);
    #pragma unroll
    for (u32 n = 0; n < TILE / 8; n++) {
      across<D>(b, other, n * 8, k);
      multiply_16x8x16(s.v[n], a, b);
    }
  }
}

// mix adds the rows of a tile, weighted by a piece, to sums of D columns.
template <u32 D> DEVICE void mix(float (*sums)[4], const Piece &s, const u16 *tile) {
  #pragma unroll
  for (u32 k = 0; k < TILE / 16; k++) {
    const float *left = s.v[2 * k], *right = s.v[2 * k + 1];
    u32 a[4] = {pair(left[0], left[1]), pair(left[2], left[3]), pair(right[0], right[1]), pair(right[2], right[3])}, b[2];
    #pragma unroll
    for (u32 n = 0; n < D / 8; n++) {
      down<D>(b, tile, k * 16, n * 8);
      multiply_16x8x16(sums[n], a, b);
    }
  }
}

// put writes sums of D columns, times a factor for row g and one for row g + 8.
template <u32 D> DEVICE void put(float *to, const Head &h, u32 per_sample, u32 first, u64 stride, float (*sums)[4], float upper, float lower) {
  #pragma unroll
  for (u32 i = 0; i < 4; i++) {
    u32 r = first + Piece::row(i);
    if (r >= per_sample) continue;
    #pragma unroll
    for (u32 n = 0; n < D / 8; n++) {
      u32 c = Piece::col(n, i);
      if (c < h.a.size) to[h.row(per_sample, r, stride) + c] = sums[n][i] * (i < 2 ? upper : lower);
    }
  }
}

// Shared: (OWN + 2*TILE) * (D + 8) numbers of two bytes.
template <u32 D> DEVICE void forward(float *out, u64 out_stride, float *log_sum, const Attention &a) {
  DYNAMIC_SHARED(u16, q);
  u16 *k = q + OWN * (D + 8), *v = k + TILE * (D + 8);
  Head h{a, block_z(), block_y()};
  u32 first = block_x() * OWN, row = thread_x() / 32 * 16;
  float o[D / 8][4], most[2] = {-infinity(), -infinity()}, sum[2] = {0, 0};
  #pragma unroll
  for (u32 n = 0; n < D / 8; n++)
    #pragma unroll
    for (u32 i = 0; i < 4; i++) o[n][i] = 0;
  u32 query[2];
  #pragma unroll
  for (u32 i = 0; i < 2; i++) {
    u32 r = first + row + Piece::row(2 * i);
    query[i] = r < a.queries ? r : a.queries - 1;  // rows beyond the last are computed in vain
  }
  fetch<D>(q, OWN, a.q, h, a.queries, first, a.q_stride, a.scale);
  u32 last = first + OWN - 1 < a.queries ? first + OWN - 1 : a.queries - 1, end = last + a.keys - a.queries + 1;
  for (u32 at = 0; at < end; at += TILE) {
    sync_threads();
    fetch<D>(k, TILE, a.k, h, a.keys, at, a.k_stride, 1);
    fetch<D>(v, TILE, a.v, h, a.keys, at, a.v_stride, 1);
    sync_threads();
    Piece s;
    between<D>(s, q, row, k);
    float top[2] = {most[0], most[1]}, part[2] = {0, 0}, shrink[2];
    #pragma unroll
    for (u32 n = 0; n < TILE / 8; n++)
      #pragma unroll
      for (u32 i = 0; i < 4; i++) {
        if (!h.sees(query[i / 2], at + Piece::col(n, i))) s.v[n][i] = -infinity();
        top[i / 2] = larger(top[i / 2], s.v[n][i]);
      }
    #pragma unroll
    for (u32 i = 0; i < 2; i++) {
      top[i] = quad_max(top[i]);  // a number: every query sees the first key
      shrink[i] = natural(most[i] - top[i]);
      most[i] = top[i];
    }
    #pragma unroll
    for (u32 n = 0; n < TILE / 8; n++)
      #pragma unroll
      for (u32 i = 0; i < 4; i++) {
        float w = natural(s.v[n][i] - top[i / 2]);
        part[i / 2] += w;
        s.v[n][i] = w != 0 && !h.keeps(query[i / 2], at + Piece::col(n, i)) ? 0 : w;
      }
    #pragma unroll
    for (u32 i = 0; i < 2; i++) sum[i] = sum[i] * shrink[i] + quad_sum(part[i]);
    #pragma unroll
    for (u32 n = 0; n < D / 8; n++)
      #pragma unroll
      for (u32 i = 0; i < 4; i++) o[n][i] *= shrink[i / 2];
    mix<D>(o, s, v);
  }
  put<D>(out, h, a.queries, first + row, out_stride, o, a.dropout.scale / sum[0], a.dropout.scale / sum[1]);
  #pragma unroll
  for (u32 i = 0; i < 2; i++)
    if (place().t == 0 && first + row + Piece::row(2 * i) < a.queries) log_sum[h.sum(query[i])] = most[i] + logarithm(sum[i]);
}

// along_of is the product of a query's output and its gradient, by four neighbours.
DEVICE float along_of(const Head &h, const Gradients &g, u32 query) {
  const float *dout = g.dout + h.row(h.a.queries, query, g.dout_stride), *out = g.out + h.row(h.a.queries, query, g.out_stride);
  float sum = 0;
  for (u32 c = thread_x() % 4; c < h.a.size; c += 4) sum += dout[c] * out[c];
  return quad_sum(sum);
}

// Shared: (2*OWN + 2*TILE) * (D + 8) numbers of two bytes.
template <u32 D> DEVICE void query_grad(const Attention &a, const Gradients &g) {
  DYNAMIC_SHARED(u16, q);
  u16 *dout = q + OWN * (D + 8), *k = dout + OWN * (D + 8), *v = k + TILE * (D + 8);
  Head h{a, block_z(), block_y()};
  u32 first = block_x() * OWN, row = thread_x() / 32 * 16, query[2];
  float dq[D / 8][4], along[2], log_sum[2];
  #pragma unroll
  for (u32 n = 0; n < D / 8; n++)
    #pragma unroll
    for (u32 i = 0; i < 4; i++) dq[n][i] = 0;
  #pragma unroll
  for (u32 i = 0; i < 2; i++) {
    u32 r = first + row + Piece::row(2 * i);
    query[i] = r < a.queries ? r : a.queries - 1;
    along[i] = along_of(h, g, query[i]);
    log_sum[i] = g.log_sum[h.sum(query[i])];
  }
  fetch<D>(q, OWN, a.q, h, a.queries, first, a.q_stride, a.scale);
  fetch<D>(dout, OWN, g.dout, h, a.queries, first, g.dout_stride, 1);
  u32 last = first + OWN - 1 < a.queries ? first + OWN - 1 : a.queries - 1, end = last + a.keys - a.queries + 1;
  for (u32 at = 0; at < end; at += TILE) {
    sync_threads();
    fetch<D>(k, TILE, a.k, h, a.keys, at, a.k_stride, 1);
    fetch<D>(v, TILE, a.v, h, a.keys, at, a.v_stride, 1);
    sync_threads();
    Piece s, d;
    between<D>(s, q, row, k);
    between<D>(d, dout, row, v);
    #pragma unroll
    for (u32 n = 0; n < TILE / 8; n++)
      #pragma unroll
      for (u32 i = 0; i < 4; i++) {
        float used;
        s.v[n][i] = score_grad(h, query[i / 2], at + Piece::col(n, i), natural(s.v[n][i] - log_sum[i / 2]), d.v[n][i], along[i / 2], &used);
      }
    mix<D>(dq, s, k);
  }
  put<D>(g.dq, h, a.queries, first + row, g.dq_stride, dq, a.scale, a.scale);
}

// Shared: likewise, and 2*TILE numbers of float32 before them.
template <u32 D> DEVICE void key_grad(const Attention &a, const Gradients &g) {
  DYNAMIC_SHARED(float, along);
  float *log_sums = along + TILE;
  u16 *k = (u16 *)(log_sums + TILE), *v = k + OWN * (D + 8), *q = v + OWN * (D + 8), *dout = q + TILE * (D + 8);
  Head h{a, block_z(), block_y()};
  u32 first = block_x() * OWN, row = thread_x() / 32 * 16;
  float dk[D / 8][4], dv[D / 8][4];
  #pragma unroll
  for (u32 n = 0; n < D / 8; n++)
    #pragma unroll
    for (u32 i = 0; i < 4; i++) dk[n][i] = dv[n][i] = 0;
  fetch<D>(k, OWN, a.k, h, a.keys, first, a.k_stride, 1);
  fetch<D>(v, OWN, a.v, h, a.keys, first, a.v_stride, 1);
  u32 before = a.keys - a.queries, begin = first > before ? (first - before) / TILE * TILE : 0;  // the first query that sees one of the keys
  for (u32 at = begin; at < a.queries; at += TILE) {
    sync_threads();
    fetch<D>(q, TILE, a.q, h, a.queries, at, a.q_stride, a.scale);
    fetch<D>(dout, TILE, g.dout, h, a.queries, at, g.dout_stride, 1);
    u32 r = thread_x() / 4, query = at + r < a.queries ? at + r : a.queries - 1;
    float sum = along_of(h, g, query);
    if (thread_x() % 4 == 0) {
      along[r] = sum;
      log_sums[r] = g.log_sum[h.sum(query)];
    }
    sync_threads();
    Piece s, d;
    between<D>(s, k, row, q);
    between<D>(d, v, row, dout);
    #pragma unroll
    for (u32 n = 0; n < TILE / 8; n++)
      #pragma unroll
      for (u32 i = 0; i < 4; i++) {
        u32 j = Piece::col(n, i);
        float used, w = natural(s.v[n][i] - log_sums[j]);
        d.v[n][i] = score_grad(h, at + j, first + row + Piece::row(i), w, d.v[n][i], along[j], &used);
        s.v[n][i] = used;
      }
    mix<D>(dv, s, dout);
    mix<D>(dk, d, q);  // q is scaled
  }
  put<D>(g.dk, h, a.keys, first + row, g.dk_stride, dk, 1, 1);
  put<D>(g.dv, h, a.keys, first + row, g.dv_stride, dv, 1, 1);
}

// Grids are ceil(queries or keys / OWN) x heads x samples.
#define TENSOR(D)                                                                                                       \
  KERNEL(attention_forward_##D, 128, float *out, u64 out_stride, float *log_sum, Attention a) { forward<D>(out, out_stride, log_sum, a); } \
  KERNEL(attention_query_grad_##D, 128, Attention a, Gradients g) { query_grad<D>(a, g); }                              \
  KERNEL(attention_key_grad_##D, 128, Attention a, Gradients g) { key_grad<D>(a, g); }
TENSOR(64)
TENSOR(128)
