// Locations of matrix elements in shared memory, from a descriptor: PTX ISA 9.7.15.5.1.2, "Shared
// Memory Matrix Layout".
#pragma once

#include <cstdint>

namespace gpusim {

// Descriptor is a decoded matrix descriptor (9.7.15.5.1.2.2). Addresses and offsets are in bytes.
struct Descriptor {
  uint32_t start, leading, stride, base;
  uint64_t reserved;  // bits that must be 0
  uint32_t width;     // bytes of a row of an atom: 16 without swizzle, otherwise 32, 64, or 128

  explicit Descriptor(uint64_t d)
      : start(uint32_t(d & 0x3fff) << 4), leading(uint32_t(d >> 16 & 0x3fff) << 4), stride(uint32_t(d >> 32 & 0x3fff) << 4), base(uint32_t(d >> 49 & 7)) {
    static const uint32_t widths[] = {16, 128, 64, 32};
    width = widths[d >> 62];
    reserved = d & ~(uint64_t(0x3fff) | uint64_t(0x3fff) << 16 | uint64_t(0x3fff) << 32 | uint64_t(7) << 49 | uint64_t(3) << 62);
  }

  // rows returns the address of eight elements along k, the k-th, in row r of a K-major matrix.
  // columns returns the address of eight columns, the n-th, at k of an MN-major matrix. These are
  // the canonical layouts of 9.7.15.5.1.2.1.3.
  uint32_t rows(uint32_t r, uint32_t k) const {
    return swizzle(start + r % 8 * width + r / 8 * stride + k * (width == 16 ? leading : 16));
  }
  uint32_t columns(uint32_t n, uint32_t k) const {
    uint32_t across = width / 16;
    if (across == 1) return start + n * stride + k % 8 * 16 + k / 8 * leading;
    return swizzle(start + n % across * 16 + n / across * leading + k % 8 * width + k / 8 * stride);
  }

  // swizzle XORs bits from 7 into as many bits from 4 of an address: three bits for 128 bytes,
  // Swizzle<3, 4, 3>. base is for a pattern that does not start where all of these bits are zero.
  uint32_t swizzle(uint32_t address) const { return address ^ ((address >> 7) - base) % (width / 16) << 4; }
};

}  // namespace gpusim
