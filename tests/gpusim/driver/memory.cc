// Memory of the simulated devices: host memory between guard pages, filled with NaN to expose
// unwritten elements. Under AddressSanitizer, the memory around an allocation is forbidden to the
// byte. For the interpreter of PTX, which checks each address, shadow bytes follow an allocation. They
// hold whether each byte was written.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "../poison.h"
#include "sim.h"

namespace gpusim {

static size_t pages(size_t n) {
  size_t page = size_t(sysconf(_SC_PAGESIZE));
  return (n + page - 1) / page * page;
}

// reserve returns n bytes that end at a guard page, except for alignment to 256.
static uintptr_t reserve(size_t n) {
  size_t guard = pages(1), body = pages(n), all = interprets() ? 2 * body : body;
  char *p = static_cast<char *>(mmap(nullptr, guard + all + guard, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (p == MAP_FAILED) return 0;
  mprotect(p + guard, all, PROT_READ | PROT_WRITE);
  memset(p + guard, 0xff, body);
  size_t before = (body - n) / 256 * 256;
  forbid(p + guard, before);
  forbid(p + guard + before + n, body - before - n);
  return uintptr_t(p + guard + before);
}

static void give_back(uintptr_t p, size_t n) {
  size_t guard = pages(1), body = pages(n);
  uintptr_t start = p / guard * guard - guard;  // p is in the first page: less than a page remains
  allow(reinterpret_cast<void *>(start + guard), body);  // for the next user of the memory
  munmap(reinterpret_cast<void *>(start), guard + (interprets() ? 2 * body : body) + guard);
}

// shadow returns the shadow byte of the first byte of an allocation.
static unsigned char *shadow(uintptr_t p, size_t n) { return reinterpret_cast<unsigned char *>(p + pages(n)); }

std::shared_ptr<const std::vector<Memory>> memory_of(Device *d) {
  std::lock_guard<std::mutex> hold(d->mutex);
  if (!d->memory) {
    auto all = std::make_shared<std::vector<Memory>>();
    for (auto &piece : d->pieces) all->push_back({piece.first, piece.second, shadow(piece.first, piece.second)});
    d->memory = std::move(all);
  }
  return d->memory;
}

// shadow_at returns the shadow byte of a byte on a device, or nullptr.
static unsigned char *shadow_at(const void *at) {
  for (auto &d : devices()) {
    std::lock_guard<std::mutex> hold(d->mutex);
    auto it = d->pieces.upper_bound(uintptr_t(at));
    if (it == d->pieces.begin()) continue;
    --it;
    if (uintptr_t(at) - it->first < it->second) return shadow(it->first, it->second) + (uintptr_t(at) - it->first);
  }
  return nullptr;
}

// note_written records that a fill or a copy has written bytes on a device. A copy from a device also
// copies the shadow bytes.
static void note_written(void *dst, const void *src, size_t n) {
  unsigned char *to = interprets() && n ? shadow_at(dst) : nullptr, *from = to && src ? shadow_at(src) : nullptr;
  if (from) memmove(to, from, n);
  else if (to) memset(to, 1, n);
}

static bool inside(const std::map<uintptr_t, size_t> &pieces, uintptr_t p, size_t n) {
  auto it = pieces.upper_bound(p);
  if (it == pieces.begin()) return false;
  --it;
  return p - it->first <= it->second && n <= it->second - (p - it->first);
}

bool on_device(uintptr_t p, size_t n) {
  for (auto &d : devices()) {
    std::lock_guard<std::mutex> hold(d->mutex);
    if (inside(d->pieces, p, n)) return true;
  }
  return false;
}

static std::mutex host_mutex;
static std::map<uintptr_t, size_t> host_pieces;

bool pinned(const void *p, size_t n) {
  std::lock_guard<std::mutex> hold(host_mutex);
  return inside(host_pieces, uintptr_t(p), n);
}

// Copies to the host since the last query, for tests.
static std::mutex downloads_mutex;
static uint64_t downloads[3];  // count, bytes, bytes of the largest

static void note_download(size_t n) {
  std::lock_guard<std::mutex> hold(downloads_mutex);
  downloads[0]++;
  downloads[1] += n;
  downloads[2] = std::max(downloads[2], uint64_t(n));
}

// copy enqueues a copy. As in the driver, the call reads unpinned host memory before it returns,
// and writes it before it returns.
static Result copy(void *dst, const void *src, size_t n, bool to_device, bool from_device, void *stream) {
  Stream *s;
  if (Result r = ready(nullptr)) return r;
  if (Result r = stream_of(stream, &s)) return r;
  if (to_device && !on_device(uintptr_t(dst), n)) return InvalidValue;
  if (from_device && !on_device(uintptr_t(src), n)) return InvalidValue;
  if (n == 0) return Success;
  if (!to_device) note_download(n);
  if (!from_device && !pinned(src, n)) {
    if (s->capture) return CaptureUnsupported;
    auto kept = std::make_shared<std::vector<char>>(static_cast<const char *>(src), static_cast<const char *>(src) + n);
    s->push({[=] { memcpy(dst, kept->data(), n), note_written(dst, nullptr, n); }});
    return Success;
  }
  if (!to_device && !pinned(dst, n)) {
    if (s->capture) return CaptureUnsupported;
    s->push({[=] { memcpy(dst, src, n); }});
    s->drain();
    return Result(s->context->failed.load());
  }
  s->push({[=] { memmove(dst, src, n), note_written(dst, src, n); }});
  return Success;
}

// waited runs a call that returns when its work on the null stream is complete.
static Result waited(Result r) {
  if (r) return r;
  Context *c;
  if ((r = ready(&c))) return r;
  c->none->drain();
  return Result(c->failed.load());
}

}  // namespace gpusim

using namespace gpusim;

// gpusim_fence is for tests: under AddressSanitizer it forbids device memory, or allows it again.
API void gpusim_fence(const void *p, size_t n, int forbidden) { forbidden ? forbid(p, n) : allow(p, n); }

// gpusim_downloads returns the copies to the host since the last query.
API void gpusim_downloads(uint64_t *figures) {
  std::lock_guard<std::mutex> hold(downloads_mutex);
  std::copy_n(downloads, 3, figures);
  std::fill_n(downloads, 3, 0);
}

typedef unsigned long long Address;
static void *ptr(Address a) { return reinterpret_cast<void *>(uintptr_t(a)); }

API int cuMemGetInfo_v2(size_t *avail, size_t *total) {
  Context *c;
  if (Result r = ready(&c)) return r;
  Device &d = *devices()[size_t(c->device)];
  std::lock_guard<std::mutex> hold(d.mutex);
  *avail = d.capacity - d.used;
  *total = d.capacity;
  return Success;
}
API int cuMemAlloc_v2(Address *p, size_t n) {
  Context *c;
  if (Result r = ready(&c)) return r;
  if (!n) return InvalidValue;
  Device &d = *devices()[size_t(c->device)];
  std::lock_guard<std::mutex> hold(d.mutex);
  size_t rounded = (n + 511) / 512 * 512;
  if (allocation_fails() || rounded > d.capacity - d.used) return OutOfMemory;
  uintptr_t a = reserve(n);
  if (!a) return OutOfMemory;
  d.used += rounded;
  d.pieces[a] = n;
  d.memory = nullptr;
  *p = a;
  return Success;
}
API int cuMemFree_v2(Address p) {
  Context *c;
  if (Result r = ready(&c)) return r;
  if (!p) return Success;
  for (auto &d : devices()) {
    std::unique_lock<std::mutex> hold(d->mutex);
    auto it = d->pieces.find(uintptr_t(p));
    if (it == d->pieces.end()) continue;
    size_t n = it->second;
    hold.unlock();
    // cuMemFree waits for all work that may use the memory.
    std::vector<Stream *> all;
    {
      std::lock_guard<std::mutex> lock(streams.mutex);
      for (auto &s : streams.all) all.push_back(s.second.get());
    }
    for (Stream *s : all)
      if (s->context == &d->primary) s->drain();
    d->primary.none->drain();
    hold.lock();
    d->pieces.erase(uintptr_t(p));
    d->memory = nullptr;
    d->used -= (n + 511) / 512 * 512;
    give_back(uintptr_t(p), n);
    return Success;
  }
  return InvalidValue;
}
API int cuMemHostAlloc(void **p, size_t n, unsigned) {
  if (Result r = ready(nullptr)) return r;
  if (!n) return InvalidValue;
  if (pinning_fails(n)) return OutOfMemory;
  *p = malloc(n);
  if (!*p) return OutOfMemory;
  std::lock_guard<std::mutex> hold(host_mutex);
  host_pieces[uintptr_t(*p)] = n;
  return Success;
}
API int cuMemFreeHost(void *p) {
  std::lock_guard<std::mutex> hold(host_mutex);
  if (!host_pieces.erase(uintptr_t(p))) return InvalidValue;
  free(p);
  return Success;
}
API int cuMemHostRegister_v2(void *p, size_t n, unsigned) {
  if (Result r = ready(nullptr)) return r;
  std::lock_guard<std::mutex> hold(host_mutex);
  host_pieces[uintptr_t(p)] = n;
  return Success;
}
API int cuMemHostUnregister(void *p) {
  std::lock_guard<std::mutex> hold(host_mutex);
  return host_pieces.erase(uintptr_t(p)) ? Success : InvalidValue;
}

API int cuMemcpyHtoDAsync_v2(Address d, const void *s, size_t n, void *stream) { return copy(ptr(d), s, n, true, false, stream); }
API int cuMemcpyDtoHAsync_v2(void *d, Address s, size_t n, void *stream) { return copy(d, ptr(s), n, false, true, stream); }
API int cuMemcpyDtoDAsync_v2(Address d, Address s, size_t n, void *stream) { return copy(ptr(d), ptr(s), n, true, true, stream); }
API int cuMemcpyPeerAsync(Address d, Context *, Address s, Context *, size_t n, void *stream) { return copy(ptr(d), ptr(s), n, true, true, stream); }
API int cuMemcpyAsync(Address d, Address s, size_t n, void *stream) {
  return copy(ptr(d), ptr(s), n, on_device(uintptr_t(d), n), on_device(uintptr_t(s), n), stream);
}
API int cuMemcpyHtoD_v2(Address d, const void *s, size_t n) { return waited(copy(ptr(d), s, n, true, false, nullptr)); }
API int cuMemcpyDtoH_v2(void *d, Address s, size_t n) { return waited(copy(d, ptr(s), n, false, true, nullptr)); }
API int cuMemcpyDtoD_v2(Address d, Address s, size_t n) { return copy(ptr(d), ptr(s), n, true, true, nullptr); }

API int cuMemsetD8Async(Address d, unsigned char v, size_t n, void *stream) {
  Stream *s;
  if (Result r = ready(nullptr)) return r;
  if (Result r = stream_of(stream, &s)) return r;
  if (!on_device(uintptr_t(d), n)) return InvalidValue;
  s->push({[=] { memset(ptr(d), v, n), note_written(ptr(d), nullptr, n); }});
  return Success;
}
API int cuMemsetD32Async(Address d, unsigned v, size_t n, void *stream) {
  Stream *s;
  if (Result r = ready(nullptr)) return r;
  if (Result r = stream_of(stream, &s)) return r;
  if (d % 4 || !on_device(uintptr_t(d), 4 * n)) return InvalidValue;
  s->push({[=] { std::fill_n(static_cast<unsigned *>(ptr(d)), n, v), note_written(ptr(d), nullptr, 4 * n); }});
  return Success;
}
API int cuMemsetD8_v2(Address d, unsigned char v, size_t n) { return cuMemsetD8Async(d, v, n, nullptr); }
API int cuMemsetD32_v2(Address d, unsigned v, size_t n) { return cuMemsetD32Async(d, v, n, nullptr); }
