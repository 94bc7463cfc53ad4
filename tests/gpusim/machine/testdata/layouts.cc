// Holds Descriptor to the layouts of the PTX ISA: the examples of 9.7.15.5.1.2.1.3 (Figures
// 166 to 170), which are swizzled in 32 and 64 bytes or not at all, and two in 128 bytes by
// the same table. Each is written as it stands there, shapes and strides in elements.
#include "../descriptor.h"

#include <cstdio>

// Mode is a nested shape with its strides: coordinate i counts the first part fastest.
struct Mode {
  unsigned shape[3], stride[3];
  unsigned size() const { return shape[0] * shape[1] * shape[2]; }
  unsigned at(unsigned i) const {
    return i % shape[0] * stride[0] + i / shape[0] % shape[1] * stride[1] + i / shape[0] / shape[1] * stride[2];
  }
};

struct Example {
  const char *name;
  bool k_major;
  unsigned element, swizzle, bits;  // bytes; of the descriptor; of Swizzle<bits, 4, 3>
  unsigned leading, stride;         // byte offsets
  Mode rows, k;
};

static const Example examples[] = {
    {"K-major, no swizzle, tf32", true, 4, 0, 0, 64 * 4, 32 * 4, {{8, 2, 1}, {4, 32, 0}}, {{4, 4, 1}, {1, 64, 0}}},
    {"K-major, 32 bytes, tf32", true, 4, 3, 1, 16, 64 * 4, {{8, 2, 1}, {8, 64, 0}}, {{4, 4, 1}, {1, 4, 0}}},
    {"MN-major, no swizzle, bf16", false, 2, 0, 0, 128 * 2, 64 * 2, {{8, 1, 2}, {1, 8, 64}}, {{8, 2, 1}, {8, 128, 0}}},
    {"MN-major, 32 bytes, bf16", false, 2, 3, 1, 128 * 2, 256 * 2, {{8, 2, 2}, {1, 8, 128}}, {{8, 2, 1}, {16, 256, 0}}},
    {"MN-major, 64 bytes, bf16", false, 2, 2, 2, 256 * 2, 512 * 2, {{8, 4, 2}, {1, 8, 256}}, {{8, 2, 1}, {32, 512, 0}}},
    {"K-major, 128 bytes, bf16", true, 2, 1, 3, 16, 512 * 2, {{8, 8, 1}, {64, 512, 0}}, {{8, 2, 1}, {1, 8, 0}}},
    {"MN-major, 128 bytes, bf16", false, 2, 1, 3, 4096 * 2, 512 * 2, {{8, 8, 2}, {1, 8, 4096}}, {{8, 2, 1}, {64, 512, 0}}},
};

int main() {
  int wrong = 0;
  for (const Example &e : examples)
    for (unsigned base = 0; base < (e.swizzle == 1 ? 8u : 1u); base++) {
      unsigned start = 2048 + base * 128;  // where the pattern begins
      gpusim::Descriptor d(start >> 4 | uint64_t(e.leading >> 4) << 16 | uint64_t(e.stride >> 4) << 32 | uint64_t(base) << 49 | uint64_t(e.swizzle) << 62);
      for (unsigned i = 0; i < e.rows.size(); i++)
        for (unsigned k = 0; k < e.k.size() && (!e.k_major || k * e.element < 32); k++) {  // an instruction takes 32 bytes
          unsigned byte = (e.rows.at(i) + e.k.at(k)) * e.element;
          unsigned want = start + (byte ^ (byte >> 7 & ((1u << e.bits) - 1)) << 4);
          unsigned along = (e.k_major ? k : i) * e.element;
          unsigned got = (e.k_major ? d.rows(i, along / 16) : d.columns(along / 16, k)) + along % 16;
          if (got != want && wrong++ < 10) printf("%s, base %u, row %u, k %u: %u, want %u\n", e.name, base, i, k, got, want);
        }
    }
  return wrong != 0;
}
