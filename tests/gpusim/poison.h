// Memory that AddressSanitizer forbids to access, if it is enabled.
#pragma once

#include <cstddef>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GPUSIM_CHECKED 1
#endif
#endif

#ifdef GPUSIM_CHECKED
extern "C" void __asan_poison_memory_region(const volatile void *, size_t);
extern "C" void __asan_unpoison_memory_region(const volatile void *, size_t);
static inline void forbid(const void *p, size_t n) { __asan_poison_memory_region(p, n); }
static inline void allow(const void *p, size_t n) { __asan_unpoison_memory_region(p, n); }
#define UNCHECKED __attribute__((no_sanitize("address")))
#else
static inline void forbid(const void *, size_t) {}
static inline void allow(const void *, size_t) {}
#define UNCHECKED
#endif
