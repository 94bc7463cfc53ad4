// Matrix multiplication by warpgroups: wgmma.mma_async as the PTX ISA describes it (9.7.15), with its
// matrix descriptors and its distribution of matrices over registers. Each warp computes its 16
// rows. wgmma groups are not modeled, because the kernels wait for each multiplication.
//
// Threads write shared memory through the generic proxy; wgmma reads it through the async proxy.
// wgmma reads a copy, made when all threads have reached a fence. The program stops if the memory
// differs from the copy: a fence or a barrier is missing before the multiplication, or a barrier
// after it.

#include "descriptor.h"
#include "warpgroup.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace gpusim {

namespace {

// The start of the dynamic part. Nothing guarantees an alignment of more than 16.
constexpr u32 dynamic_begin = 1024 + 16;

thread_local std::vector<char> visible;  // to matrix multiplications
thread_local unsigned fenced;            // threads that have reached the fence

[[noreturn]] void stop(const char *what) {
  fprintf(stderr, "gpusim: wgmma: %s\n", what);
  abort();
}

// eight are eight elements in shared memory.
void eight(float *to, u32 address) {
  size_t offset = address - dynamic_begin;
  if (address < dynamic_begin || offset + 16 > dynamic_shared_bytes()) stop("a descriptor leads out of shared memory");
  const char *now = static_cast<const char *>(dynamic_shared()) + offset;
  if (offset + 16 > visible.size() || memcmp(now, &visible[offset], 16) != 0)
    stop("shared memory is not what it was at the last fence.proxy.async of all threads");
  u16 numbers[8];
  memcpy(numbers, now, 16);
  for (unsigned i = 0; i < 8; i++) to[i] = bits_float(u32(numbers[i]) << 16);
}

}  // namespace

u32 shared_address(const void *p) { return dynamic_begin + u32(static_cast<const char *>(p) - static_cast<const char *>(dynamic_shared())); }

void fence_async() {
  if (++fenced < threads) return;
  fenced = 0;
  auto *memory = static_cast<const char *>(dynamic_shared());
  visible.assign(memory, memory + dynamic_shared_bytes());
}

void wgmma(unsigned n, float *d, const u32 *a, u64 left, u64 right, bool transposed) {
  constexpr unsigned depth = 16, most = 256;
  struct Part { u32 a[4]; u64 left, right; } mine{{}, left, right};
  if (a) memcpy(mine.a, a, sizeof mine.a);
  if (threads % 128 != 0) stop("the block is not of whole warpgroups");

  // The threads of the warp decode the right matrix together. Two buffers are enough: all threads
  // have read one before any thread writes it again.
  static thread_local float room[2][1024 / 32][most][depth];
  unsigned thread = lane->number % 32, warp = lane->number / 32;
  auto &b = room[lane->turn & 1][warp];
  Descriptor from(right);
  if (from.reserved || Descriptor(left).reserved) stop("reserved bits of a descriptor are set");
  for (unsigned i = thread; i < n * 2; i += 32) {
    if (!transposed) {
      eight(&b[i / 2][i % 2 * 8], from.rows(i / 2, i % 2));
      continue;
    }
    float columns[8];
    eight(columns, from.columns(i / depth, i % depth));
    for (unsigned c = 0; c < 8; c++) b[i / depth * 8 + c][i % depth] = columns[c];
  }
  unsigned turn = show(mine), group = thread / 4, place = thread % 4;
  Part first = seen<Part>(turn, 0);
  if (first.left != left || first.right != right) stop("the threads of a warp have different descriptors");

  // Rows g and g + 8 of the warp.
  float rows[2][depth];
  for (unsigned row = 0; row < 2; row++)
    for (unsigned half = 0; half < 2; half++) {
      if (!a) {
        eight(&rows[row][half * 8], Descriptor(left).rows(warp % 4 * 16 + group + row * 8, half));
        continue;
      }
      for (unsigned t = 0; t < 4; t++) {  // Figure 148
        u32 pair = seen<Part>(turn, group * 4 + t).a[half * 2 + row];
        rows[row][half * 8 + 2 * t] = bits_float(pair << 16);
        rows[row][half * 8 + 2 * t + 1] = bits_float(pair & 0xffff0000u);
      }
    }
  for (unsigned i = 0; i < n / 2; i++) {  // Figure 149
    unsigned row = i % 4 / 2, col = i / 4 * 8 + place * 2 + i % 2;
    for (unsigned k = 0; k < depth; k++) d[i] += rows[row][k] * b[col][k];
  }
}

}  // namespace gpusim
