// The host version of gpu.h: the GPU features that kernels use, as calls of the machine that runs
// the threads of a block (machine.cc). A source that includes it is compiled as C++ for this CPU.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

typedef uint64_t u64;
typedef int64_t i64;
typedef uint32_t u32;
typedef uint16_t u16;

namespace gpusim {

// Lane is a thread of a block.
struct Lane {
  void *stack;          // where it stopped
  unsigned x, number;   // in its block
  alignas(16) char slots[2][64];  // values for the other lanes of its warp, used alternately
  unsigned turn;
};

extern thread_local Lane *lane;
extern thread_local unsigned block[3], blocks[3], threads;

void sync_block();
void sync_warp();
void start_copy(void *to, const void *from, size_t bytes, size_t used);
void finish_copies();
void *dynamic_shared();
size_t dynamic_shared_bytes();

// show publishes a value to the other lanes of the warp. seen returns another lane's value, which
// is valid until the second show after it.
template <class T> inline unsigned show(const T &v) {
  static_assert(sizeof(T) <= sizeof lane->slots[0]);
  unsigned turn = lane->turn++ & 1;
  memcpy(lane->slots[turn], &v, sizeof v);
  sync_warp();
  return turn;
}
template <class T> inline T seen(unsigned turn, unsigned other) {
  const Lane *from = lane - lane->number % 32 + other;
  T v;
  memcpy(&v, from->slots[turn], sizeof v);
  return v;
}

template <class... P, size_t... I> inline void call(void (*f)(P...), void **args, std::index_sequence<I...>) {
  f(*static_cast<P *>(args[I])...);
}
template <class... P> inline void call(void (*f)(P...), void **args) { call(f, args, std::index_sequence_for<P...>{}); }

template <class F> struct Sizes;
template <class... P> struct Sizes<void(P...)> { size_t of[sizeof...(P) + 1]{sizeof(P)..., 0}; };

}  // namespace gpusim

#define DEVICE static inline
#define DEVICE_MEMBER inline
#define INLINE
#define SHARED static thread_local
#define DYNAMIC_SHARED(type, name) type *name = static_cast<type *>(gpusim::dynamic_shared())
#define KERNEL(name, most, ...) KERNEL_BLOCKS(name, most, 0, __VA_ARGS__)
#define KERNEL_BLOCKS(name, most, blocks, ...)                                                      \
  static void name(__VA_ARGS__);                                                                    \
  extern "C" __attribute__((visibility("default"))) void gpusim_call_##name(void **args) { gpusim::call(name, args); } \
  extern "C" __attribute__((visibility("default"))) const gpusim::Sizes<decltype(name)> gpusim_sizes_##name; \
  const gpusim::Sizes<decltype(name)> gpusim_sizes_##name{};                                        \
  static void name(__VA_ARGS__)

DEVICE unsigned thread_x() { return gpusim::lane->x; }
DEVICE unsigned threads_x() { return gpusim::threads; }
DEVICE unsigned block_x() { return gpusim::block[0]; }
DEVICE unsigned block_y() { return gpusim::block[1]; }
DEVICE unsigned block_z() { return gpusim::block[2]; }
DEVICE unsigned blocks_x() { return gpusim::blocks[0]; }
DEVICE void sync_threads() { gpusim::sync_block(); }

// copy_async_16 is cp.async.cg.shared.global of 16 bytes, copy_async_4 is cp.async.ca.shared.global of
// 4 bytes, and wait_copies is cp.async.wait_all.
DEVICE void copy_async_16(void *to, const void *from, bool used) { gpusim::start_copy(to, from, 16, used ? 16 : 0); }
DEVICE void copy_async_4(void *to, const void *from) { gpusim::start_copy(to, from, 4, 4); }
DEVICE void wait_copies() { gpusim::finish_copies(); }

DEVICE float shuffle_xor(float v, unsigned mask) {
  unsigned turn = gpusim::show(v);
  return gpusim::seen<float>(turn, (gpusim::lane->number % 32) ^ mask);
}

DEVICE u32 float_bits(float v) { u32 b; memcpy(&b, &v, 4); return b; }
DEVICE float bits_float(u32 b) { float v; memcpy(&v, &b, 4); return v; }
DEVICE float fma_f32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }  // fma.rn.f32
DEVICE float sqrt_f32(float v) { return sqrtf(v); }
DEVICE double sqrt_f64(double v) { return sqrt(v); }
DEVICE float rint_f32(float v) { return rintf(v); }
DEVICE float ex2_approx_f32(float v) { return v < -126 ? 0 : exp2f(v); }

// to_bfloat16 is cvt.rn.bf16.f32. to_bfloat16x2 is cvt.rn.bf16x2.f32.
DEVICE u16 to_bfloat16(float v) {
  u32 b = float_bits(v);
  return v != v ? 0x7fff : u16((b + 0x7fff + (b >> 16 & 1)) >> 16);
}
DEVICE u32 to_bfloat16x2(float low, float high) { return u32(to_bfloat16(low)) | u32(to_bfloat16(high)) << 16; }

// ldmatrix_x4 and ldmatrix_x4_trans are ldmatrix.sync.aligned.m8n8.x4.shared.b16, and .trans.
DEVICE void ldmatrix_x4(u32 *m, const u16 *row) {
  unsigned turn = gpusim::show(row), g = gpusim::lane->number % 32 / 4, t = gpusim::lane->number % 4;
  for (unsigned j = 0; j < 4; j++) memcpy(&m[j], gpusim::seen<const u16 *>(turn, 8 * j + g) + 2 * t, 4);
}
DEVICE void ldmatrix_x4_trans(u32 *m, const u16 *row) {
  unsigned turn = gpusim::show(row), g = gpusim::lane->number % 32 / 4, t = gpusim::lane->number % 4;
  for (unsigned j = 0; j < 4; j++) {
    const u16 *low = gpusim::seen<const u16 *>(turn, 8 * j + 2 * t), *high = gpusim::seen<const u16 *>(turn, 8 * j + 2 * t + 1);
    m[j] = u32(low[g]) | u32(high[g]) << 16;
  }
}

// mma_m16n8k16 is mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32: each thread passes its part
// of A and B and holds four sums, as in the figures of the PTX ISA.
DEVICE void mma_m16n8k16(float *c, const u32 *a, const u32 *b) {
  struct Part { u32 a[4], b[2]; } mine{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  unsigned turn = gpusim::show(mine), group = gpusim::lane->number % 32 / 4, place = gpusim::lane->number % 4;
  float rows[2][16], cols[2][16];
  for (unsigned t = 0; t < 4; t++) {
    Part left = gpusim::seen<Part>(turn, group * 4 + t);
    for (unsigned half = 0; half < 2; half++)
      for (unsigned row = 0; row < 2; row++) {
        u32 pair = left.a[half * 2 + row];
        rows[row][half * 8 + 2 * t] = bits_float(pair << 16);
        rows[row][half * 8 + 2 * t + 1] = bits_float(pair & 0xffff0000u);
      }
    for (unsigned col = 0; col < 2; col++) {
      Part right = gpusim::seen<Part>(turn, (place * 2 + col) * 4 + t);
      for (unsigned half = 0; half < 2; half++) {
        cols[col][half * 8 + 2 * t] = bits_float(right.b[half] << 16);
        cols[col][half * 8 + 2 * t + 1] = bits_float(right.b[half] & 0xffff0000u);
      }
    }
  }
  for (unsigned row = 0; row < 2; row++)
    for (unsigned col = 0; col < 2; col++) {
      float sum = c[row * 2 + col];
      for (unsigned k = 0; k < 16; k++) sum += rows[row][k] * cols[col][k];
      c[row * 2 + col] = sum;
    }
}
