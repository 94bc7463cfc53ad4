// Execution of PTX. The 32 lanes of a warp run together: the lanes with the lowest position in the
// program go first. A warp runs until all of its lanes wait for the block or have ended, and then the
// next warp runs, in ascending order in even blocks and in descending order in odd blocks.
//
// A kernel ends with a Fault, which names the kernel, the line, and the thread, if
//   - an access is not aligned to its size, or is not within one allocation, the shared memory of the
//     launch, or the parameters;
//   - an address, a condition, an operand of a matrix multiplication, or a result that it stores
//     depends on a register or on memory that nothing has written. It may copy such memory, and
//     compute what it does not use, which the compiler does where a variable is not set;
//   - two threads access the same shared memory without a barrier between them, and one writes;
//   - a thread accesses the destination of a cp.async before the thread that copies waits for it. The
//     copy is a write at the time of the wait;
//   - lanes of a warp wait at different instructions that the whole warp must execute, such as
//     bar.sync, or have ended while others wait. A warp whose lanes have all ended is not waited for;
//   - wgmma reads shared memory that changed after the last fence.proxy.async of all threads.
//
// New shared memory and registers are full of ones, NaN. Global memory was not written if its shadow
// bytes are zero and it still contains ones: cuBLASLt and NCCL write no shadow bytes.
#include "ptx.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <type_traits>

#include "../machine/descriptor.h"

namespace gpusim::ptx {

namespace {

constexpr unsigned lanes = 32;

float bits_float(u32 b) { float v; memcpy(&v, &b, 4); return v; }
u32 float_bits(float v) { u32 b; memcpy(&b, &v, 4); return b; }
u16 to_bfloat16(float v) {
  u32 b = float_bits(v);
  return v != v ? 0x7fff : u16((b + 0x7fff + (b >> 16 & 1)) >> 16);
}
float low_half(u32 pair) { return bits_float(pair << 16); }
float high_half(u32 pair) { return bits_float(pair & 0xffff0000u); }

template <class T> T get(u64 r) { T v; memcpy(&v, &r, sizeof v); return v; }
template <class T> u64 put(T v) { u64 r = 0; memcpy(&r, &v, sizeof v); return r; }

// Word is the last access to two bytes of shared memory. The thread is -1 if there were several.
struct Word {
  u32 written = 0, read = 0;  // epoch of the access
  int16_t writer = -1, reader = -1;
  int16_t copier = -1;  // thread that has not waited for its copy to these bytes
};

// Copy is a cp.async whose thread has not waited for it. Its group is the number of groups that the
// thread had committed before.
struct Copy {
  u32 group, to;
  unsigned size;
  char bytes[16];
  unsigned char written[16];
};

// Origin is the load of a value that nothing has written.
struct Origin {
  unsigned line;  // 0: none
  u64 address;
};

// Known holds the lanes of a register that have no defined value. The value of the computed lanes is
// a result, not a copy.
struct Known {
  u32 undefined = 0, computed = 0;
  Origin origin{};
};

struct Warp {
  std::vector<u64> r;      // registers, 32 values each
  std::vector<Known> known;
  int pc[lanes];
  u32 all;                   // lanes at the beginning: fewer than 32 in the last warp of some blocks
  u32 alive, held, blocked;  // held: at a barrier of the block. blocked: at an instruction of the whole warp
  std::vector<Copy> copies[lanes];
  u32 groups[lanes];         // that the lane has committed
};

struct Block {
  const Kernel *k;
  const char *params;
  unsigned grid[3], at[3], threads;
  u32 shared_end;
  std::vector<char> shared;  // from shared_begin
  std::vector<Word> words;
  std::vector<char> visible;  // to wgmma
  std::vector<unsigned char> written;  // of the bytes of shared memory
  const Memory *memory;       // sorted by address
  size_t allocations;
  std::vector<const Memory *> last;  // that an instruction accessed
  u64 steps;                  // instructions of warps that remain; 0: no limit
  u32 epoch;                  // barriers and blocks until now, so that each block finds old words only
  unsigned fenced;            // threads that reached the fence
  std::vector<Warp> warps;
  // the instruction that runs
  Warp *w;
  unsigned warp;
  int here;

  // stop ends the kernel. The lane is -1 if the error is one of the whole warp.
  [[noreturn]] void stop(const std::string &why, int lane = -1, Result result = LaunchFailed) {
    const Instruction &i = k->code[size_t(here)];
    std::string who = lane < 0 ? "warp " + std::to_string(warp) : "thread " + std::to_string(warp * lanes + unsigned(lane));
    throw Fault{result, "kernel " + k->name + ", block " + std::to_string(at[0]) + "," + std::to_string(at[1]) + "," + std::to_string(at[2]) + ", " + who +
                            ", line " + std::to_string(i.line) + " (" + k->text[size_t(here)] + "): " + why};
  }
  static std::string hex(u64 v) {
    char s[32];
    snprintf(s, sizeof s, "0x%llx", static_cast<unsigned long long>(v));
    return s;
  }

  // need_defined stops the kernel if a register of one of these lanes has no defined value.
  void need_defined(int r, u32 mask) {
    if (u32 bad = w->known[size_t(r)].undefined & mask) stop_undefined(r, bad);
  }
  [[noreturn]] void stop_undefined(int r, u32 bad) {
    const Origin &o = w->known[size_t(r)].origin;
    std::string name = k->names[size_t(r)];
    if (!o.line) stop("uninitialized register " + name, __builtin_ctz(bad));
    stop("register " + name + " depends on uninitialized memory, which line " + std::to_string(o.line) + " read at address " + hex(o.address), __builtin_ctz(bad));
  }
  // define replaces the state of these lanes of a register.
  void define(int r, u32 mask, const Known &from) {
    Known &to = w->known[size_t(r)];
    to.undefined = (to.undefined & ~mask) | (from.undefined & mask);
    to.computed = (to.computed & ~mask) | (from.computed & mask);
    if (from.undefined & mask) to.origin = from.origin;
  }
  // track runs before an instruction and determines whether its results are defined. It stops the
  // kernel at an undefined address, condition, or matrix. Loads define their results themselves.
  void track(const Instruction &i, u32 mask) {
    switch (i.op) {
    case Op::ld: case Op::st: case Op::ldmatrix:
      return need_defined(i.in[0], mask);
    case Op::copy:
      for (int r : i.in) need_defined(r, mask);
      return;
    case Op::mma: case Op::wgmma:
      for (int r : i.in) need_defined(r, mask);
      for (int r : i.to)
        if (i.op == Op::wgmma) need_defined(r, mask);
        else define(r, mask, {});
      return;
    case Op::shfl: {
      Known from = w->known[size_t(i.in[0])], to{0, 0, from.origin};
      u32 x = u32(reg(i.in[1])[0]);
      if (from.undefined)
        for (unsigned l = 0; l < lanes; l++) {
          to.undefined |= (from.undefined >> (l ^ x) % lanes & 1) << l;
          to.computed |= (from.computed >> (l ^ x) % lanes & 1) << l;
        }
      return define(i.to[0], mask, to);
    }
    case Op::selp: {
      need_defined(i.in[2], mask);
      const Known a = w->known[size_t(i.in[0])], b = w->known[size_t(i.in[1])];
      u32 first = 0;
      if ((a.undefined | b.undefined) & mask) each(mask, [&](unsigned l) { first |= u32(reg(i.in[2])[l] != 0) << l; });
      define(i.to[0], mask & first, a);
      return define(i.to[0], mask & ~first, b);
    }
    default: break;
    }
    Known all{};
    for (int r : i.in) {
      const Known &one = w->known[size_t(r)];
      if (!(one.undefined & mask)) continue;
      all.undefined |= one.undefined, all.computed |= one.computed, all.origin = one.origin;
    }
    bool copies = i.op == Op::mov || i.op == Op::pack || i.op == Op::unpack || i.op == Op::and_ || i.op == Op::or_ || i.op == Op::shl || i.op == Op::shr ||
                  (i.op == Op::cvt && !is_float(i.type) && !is_float(i.from));
    if (!copies) all.computed = all.undefined;
    for (int r : i.to) define(r, mask, all);
  }

  void check_alignment(u64 a, unsigned size, unsigned lane) {
    if (a % size) stop("misaligned address " + hex(a) + " of " + std::to_string(size) + " bytes", int(lane), MisalignedAddress);
  }
  // global returns the allocation of an access to global memory.
  const Memory *global(u64 a, unsigned size, unsigned lane) {
    const Memory *&m = last[size_t(here)];
    if (m && a - m->address < m->bytes && size <= m->bytes - (a - m->address)) return m;
    const Memory *end = memory + allocations, *next = std::upper_bound(memory, end, a, [](u64 v, const Memory &x) { return v < x.address; });
    std::string what = "access to " + std::to_string(size) + " bytes at address " + hex(a);
    if (next == memory) stop(what + ": it is in no allocation", int(lane), IllegalAddress);
    m = next - 1;
    u64 in = a - m->address;
    if (in < m->bytes && size <= m->bytes - in) return m;
    std::string bytes = std::to_string(m->bytes) + " bytes at " + hex(m->address);
    m = nullptr;
    if (in < next[-1].bytes) stop(what + ": it crosses the end of an allocation of " + bytes, int(lane), IllegalAddress);
    stop(what + ": it is in no allocation, and " + std::to_string(in - next[-1].bytes) + " bytes behind one of " + bytes, int(lane), IllegalAddress);
  }
  // unwritten reports whether an element includes bytes that nothing has written.
  template <class T> static bool unwritten(const char *p, const unsigned char *shadow) {
    T written, all;
    memcpy(&written, shadow, sizeof written);
    memset(&all, is_written, sizeof all);
    if (written == all) return false;
    bool missing = false;
    for (unsigned b = 0; b < sizeof(T); b++) {
      if (shadow[b] == copied_nothing) return true;
      if (shadow[b] == is_written) continue;
      if (p[b] != char(0xff)) return false;
      missing = true;
    }
    return missing;
  }

  u64 *reg(int r) { return &w->r[size_t(r) * lanes]; }

  template <class F> void each(u32 mask, F f) {
    if (mask == ~u32(0)) {
      for (unsigned l = 0; l < lanes; l++) f(l);
    } else {
      for (u32 m = mask; m; m &= m - 1) f(unsigned(__builtin_ctz(m)));
    }
  }
  template <class T, class F> void unary(const Instruction &i, u32 mask, F f) {
    u64 *d = reg(i.to[0]);
    const u64 *a = reg(i.in[0]);
    each(mask, [&](unsigned l) { d[l] = put<T>(f(get<T>(a[l]))); });
  }
  template <class T, class F> void binary(const Instruction &i, u32 mask, F f) {
    u64 *d = reg(i.to[0]);
    const u64 *a = reg(i.in[0]), *b = reg(i.in[1]);
    each(mask, [&](unsigned l) { d[l] = put<T>(f(get<T>(a[l]), get<T>(b[l]))); });
  }

  // access records an access of a thread to shared memory and checks it.
  void access(u32 address, unsigned size, unsigned thread, bool write) {
    int lane = int(thread % lanes);
    if (address % size) stop("misaligned shared address " + std::to_string(address), lane, MisalignedAddress);
    if (address < shared_begin || u64(address) + size > shared_end || (u64(address) + size > k->static_end && address < k->dynamic))
      stop("address " + std::to_string(address) + " is outside of shared memory: " + std::to_string(k->static_end - shared_begin) + " bytes at " + std::to_string(shared_begin) +
               " are declared, and " + std::to_string(shared_end - k->dynamic) + " at " + std::to_string(k->dynamic) + " are dynamic",
           lane, IllegalAddress);
    for (u32 a = (address - shared_begin) / 2; a < (address - shared_begin + size + 1) / 2; a++) {
      Word &x = words[a];
      if (x.copier >= 0) stop_copied(x, shared_begin + 2 * a, lane);
      bool raced = x.written == epoch && x.writer != int(thread);
      if (write) raced = raced || (x.read == epoch && x.reader != int(thread));
      if (raced) stop("race of thread " + std::to_string(thread) + " in shared memory at " + std::to_string(shared_begin + 2 * a), lane);
      if (write) {
        x.written = epoch, x.writer = int16_t(thread);
      } else {
        x.reader = x.read == epoch && x.reader != int(thread) ? int16_t(-1) : int16_t(thread);
        x.read = epoch;
      }
    }
  }
  [[noreturn]] void stop_copied(const Word &x, u32 address, int lane) {
    stop("thread " + std::to_string(x.copier) + " has not waited for its copy to shared memory at " + std::to_string(address), lane);
  }
  char *shared_at(u32 address) { return &shared[address - shared_begin]; }

  // start_copies begins copies to shared memory. It reads the source immediately. The destination is
  // undefined until the thread waits.
  void start_copies(const Instruction &i, u32 mask) {
    const u64 *to = reg(i.in[0]), *from = reg(i.in[1]), *used = i.in.size() > 2 ? reg(i.in[2]) : nullptr;
    each(mask, [&](unsigned l) {
      u64 a = from[l] + u64(i.source_offset);
      unsigned thread = warp * lanes + l, n = used ? u32(used[l]) : i.vector;
      Copy c{w->groups[l], u32(to[l] + u64(i.offset)), i.vector, {}, {}};
      if (n > c.size) stop("a copy of " + std::to_string(n) + " of " + std::to_string(c.size) + " bytes", int(l));
      access(c.to, c.size, thread, true);
      check_alignment(a, c.size, l);
      memset(c.written, is_written, c.size);  // zeros
      if (n) {
        const Memory *m = global(a, n, l);
        memcpy(c.bytes, reinterpret_cast<const char *>(a), n);
        for (unsigned b = 0; b < n; b++)
          if (unwritten<unsigned char>(&c.bytes[b], m->written + (a - m->address) + b)) c.written[b] = copied_nothing;
      }
      memset(shared_at(c.to), 0xff, c.size);
      for (u32 b = 0; b < c.size; b += 2) words[(c.to - shared_begin + b) / 2].copier = int16_t(thread);
      w->copies[l].push_back(c);
    });
  }
  // wait_for_copies completes the copies of each lane, except copies of its last i.vector groups or of
  // no group.
  void wait_for_copies(const Instruction &i, u32 mask) {
    each(mask, [&](unsigned l) {
      auto &all = w->copies[l];
      auto end = all.begin();
      for (; end != all.end() && (i.vector == wait_all || end->group + i.vector < w->groups[l]); ++end) {
        memcpy(shared_at(end->to), end->bytes, end->size);
        memcpy(&written[end->to - shared_begin], end->written, end->size);
        for (u32 b = 0; b < end->size; b += 2) {
          Word &x = words[(end->to - shared_begin + b) / 2];
          x.copier = -1, x.written = epoch, x.writer = int16_t(warp * lanes + l);
        }
      }
      all.erase(all.begin(), end);
    });
  }

  void load(const Instruction &i, u32 mask) {
    switch (i.type) {
    case Type::s8: return load<int8_t>(i, mask);
    case Type::s16: return load<int16_t>(i, mask);
    default: break;
    }
    switch (size_of(i.type)) {
    case 1: return load<unsigned char>(i, mask);
    case 2: return load<u16>(i, mask);
    case 4: return load<u32>(i, mask);
    default: return load<u64>(i, mask);
    }
  }
  template <class T> void load(const Instruction &i, u32 mask) {
    const u64 *base = reg(i.in[0]);
    constexpr unsigned size = sizeof(T);
    const unsigned all = size * i.vector;
    u32 bad[4] = {};
    Origin origin{};
    u64 addresses[lanes];  // a result may overwrite the base
    each(mask, [&](unsigned l) { addresses[l] = base[l] + u64(i.offset); });
    each(mask, [&](unsigned l) {
      u64 a = addresses[l];
      const char *from;
      const unsigned char *shadow = nullptr;
      switch (i.space) {
      case Space::param:
        if (a % all || a > k->param_bytes || all > k->param_bytes - a) stop("address " + std::to_string(a) + " is not in the parameters", int(l), IllegalAddress);
        from = params + a;
        break;
      case Space::shared:
        a = u32(a);
        access(u32(a), all, warp * lanes + l, false);
        from = shared_at(u32(a));
        shadow = &written[a - shared_begin];
        break;
      default:
        check_alignment(a, all, l);
        const Memory *m = global(a, all, l);
        shadow = m->written + (a - m->address);
        from = reinterpret_cast<const char *>(a);
      }
      for (unsigned v = 0; v < i.vector; v++) {
        if (shadow && unwritten<T>(from + v * size, shadow + v * size)) {
          bad[v] |= u32(1) << l;
          if (!origin.line) origin = {i.line, a + v * size};
        }
        T value;
        memcpy(&value, from + v * size, size);
        reg(i.to[v])[l] = std::is_signed_v<T> ? u32(int32_t(value)) : u64(value);
      }
    });
    for (unsigned v = 0; v < i.vector; v++) define(i.to[v], mask, {bad[v], 0, origin});
  }
  void store(const Instruction &i, u32 mask) {
    const u64 *base = reg(i.in[0]);
    unsigned size = size_of(i.type), all = size * i.vector;
    each(mask, [&](unsigned l) {
      u64 a = base[l] + u64(i.offset);
      char *to;
      unsigned char *shadow;
      if (i.space == Space::shared) {
        a = u32(a);
        access(u32(a), all, warp * lanes + l, true);
        to = shared_at(u32(a));
        shadow = &written[a - shared_begin];
      } else {
        check_alignment(a, all, l);
        const Memory *m = global(a, all, l);
        shadow = m->written + (a - m->address);
        to = reinterpret_cast<char *>(a);
      }
      for (unsigned v = 0; v < i.vector; v++) {
        int r = i.in[1 + v];
        const Known &known = w->known[size_t(r)];
        if (known.computed >> l & 1) stop_undefined(r, u32(1) << l);
        memset(shadow + v * size, known.undefined >> l & 1 ? copied_nothing : is_written, size);
        memcpy(to + v * size, &reg(r)[l], size);
      }
    });
  }

  template <class T> bool holds(Compare c, T a, T b) {
    bool nan = a != a || b != b;
    switch (c) {
    case Compare::eq: return a == b;
    case Compare::ne: return a != b && !nan;
    case Compare::lt: return a < b;
    case Compare::le: return a <= b;
    case Compare::gt: return a > b;
    case Compare::ge: return a >= b;
    case Compare::equ: return a == b || nan;
    case Compare::neu: return a != b;
    case Compare::ltu: return a < b || nan;
    case Compare::leu: return a <= b || nan;
    case Compare::gtu: return a > b || nan;
    case Compare::geu: return a >= b || nan;
    default: return nan;
    }
  }
  template <class T> void compare(const Instruction &i, u32 mask) {
    u64 *d = reg(i.to[0]);
    const u64 *a = reg(i.in[0]), *b = reg(i.in[1]);
    each(mask, [&](unsigned l) { d[l] = holds(i.compare, get<T>(a[l]), get<T>(b[l])); });
  }

  template <class T> void floating(const Instruction &i, u32 mask) {
    switch (i.op) {
    case Op::add: binary<T>(i, mask, [](T a, T b) { return a + b; }); break;
    case Op::sub: binary<T>(i, mask, [](T a, T b) { return a - b; }); break;
    case Op::mul: binary<T>(i, mask, [](T a, T b) { return a * b; }); break;
    case Op::div: binary<T>(i, mask, [](T a, T b) { return a / b; }); break;
    case Op::min: binary<T>(i, mask, [](T a, T b) { return std::fmin(a, b); }); break;
    case Op::max: binary<T>(i, mask, [](T a, T b) { return std::fmax(a, b); }); break;
    case Op::neg: unary<T>(i, mask, [](T a) { return -a; }); break;
    case Op::sqrt: unary<T>(i, mask, [](T a) { return std::sqrt(a); }); break;
    default: stop("no such operation in floating point", -1, Unsupported);
    }
  }
  // U is unsigned. T is the type, for division, order, and shifts.
  template <class T, class U> void integer(const Instruction &i, u32 mask) {
    switch (i.op) {
    case Op::add: binary<U>(i, mask, [](U a, U b) { return U(a + b); }); break;
    case Op::sub: binary<U>(i, mask, [](U a, U b) { return U(a - b); }); break;
    case Op::mul: binary<U>(i, mask, [](U a, U b) { return U(a * b); }); break;
    case Op::neg: unary<U>(i, mask, [](U a) { return U(0 - a); }); break;
    case Op::min: binary<T>(i, mask, [](T a, T b) { return std::min(a, b); }); break;
    case Op::max: binary<T>(i, mask, [](T a, T b) { return std::max(a, b); }); break;
    // This CPU cannot divide the smallest integer by -1.
    case Op::div: binary<T>(i, mask, [&](T a, T b) { if (!b) stop("division by zero"); return is_signed(i.type) && b == T(-1) ? T(U(0 - U(a))) : T(a / b); }); break;
    case Op::rem: binary<T>(i, mask, [&](T a, T b) { if (!b) stop("division by zero"); return is_signed(i.type) && b == T(-1) ? T(0) : T(a % b); }); break;
    case Op::mad: {
      u64 *d = reg(i.to[0]);
      const u64 *a = reg(i.in[0]), *b = reg(i.in[1]), *c = reg(i.in[2]);
      each(mask, [&](unsigned l) { d[l] = put<U>(U(get<U>(a[l]) * get<U>(b[l]) + get<U>(c[l]))); });
      break;
    }
    case Op::and_: binary<U>(i, mask, [](U a, U b) { return U(a & b); }); break;
    case Op::or_: binary<U>(i, mask, [](U a, U b) { return U(a | b); }); break;
    case Op::xor_: binary<U>(i, mask, [](U a, U b) { return U(a ^ b); }); break;
    case Op::not_: unary<U>(i, mask, [](U a) { return U(~a); }); break;
    case Op::shl: case Op::shr: {
      constexpr u32 bits = 8 * sizeof(U);
      u64 *d = reg(i.to[0]);
      const u64 *a = reg(i.in[0]), *b = reg(i.in[1]);
      each(mask, [&](unsigned l) {
        u32 n = u32(b[l]);  // the PTX ISA limits it to the width
        U v = get<U>(a[l]);
        if (i.op == Op::shl) v = n < bits ? U(v << n) : 0;
        else if (is_signed(i.type)) v = U(get<T>(a[l]) >> std::min(n, bits - 1));
        else v = n < bits ? U(v >> n) : 0;
        d[l] = put<U>(v);
      });
      break;
    }
    case Op::bfe: {
      u64 *d = reg(i.to[0]);
      const u64 *a = reg(i.in[0]), *b = reg(i.in[1]), *c = reg(i.in[2]);
      each(mask, [&](unsigned l) {
        u32 at = u32(b[l]) & 255, n = u32(c[l]) & 255;
        U v = at < 8 * sizeof(U) ? U(get<U>(a[l]) >> at) : 0;
        d[l] = put<U>(n < 8 * sizeof(U) ? U(v & ((U(1) << n) - 1)) : v);
      });
      break;
    }
    default: stop("no such operation on integers", -1, Unsupported);
    }
  }

  void arithmetic(const Instruction &i, u32 mask) {
    switch (i.type) {
    case Type::f32: return floating<float>(i, mask);
    case Type::f64: return floating<double>(i, mask);
    case Type::b16: case Type::u16: return integer<u16, u16>(i, mask);
    case Type::s16: return integer<int16_t, u16>(i, mask);
    case Type::b32: case Type::u32: return integer<u32, u32>(i, mask);
    case Type::s32: return integer<int32_t, u32>(i, mask);
    case Type::b64: case Type::u64: return integer<u64, u64>(i, mask);
    case Type::s64: return integer<i64, u64>(i, mask);
    case Type::pred:
      if (i.op == Op::not_) return unary<u64>(i, mask, [](u64 a) { return a ^ 1; });
      return integer<u64, u64>(i, mask);
    default: stop("unknown type", -1, Unsupported);
    }
  }
  void compare(const Instruction &i, u32 mask) {
    switch (i.type) {
    case Type::f32: return compare<float>(i, mask);
    case Type::f64: return compare<double>(i, mask);
    case Type::b16: case Type::u16: return compare<u16>(i, mask);
    case Type::s16: return compare<int16_t>(i, mask);
    case Type::b32: case Type::u32: return compare<u32>(i, mask);
    case Type::s32: return compare<int32_t>(i, mask);
    case Type::b64: case Type::u64: return compare<u64>(i, mask);
    case Type::s64: return compare<i64>(i, mask);
    default: stop("unknown type", -1, Unsupported);
    }
  }

  void convert(const Instruction &i, u32 mask) {
    u64 *d = reg(i.to[0]);
    const u64 *a = reg(i.in[0]);
    each(mask, [&](unsigned l) {
      u64 v = a[l];
      if (!is_float(i.from)) {  // integers: widen by the source type
        unsigned bits = 8 * size_of(i.from);
        if (bits < 64) {
          v &= (u64(1) << bits) - 1;
          if (is_signed(i.from) && v >> (bits - 1)) v |= ~((u64(1) << bits) - 1);
        }
        if (i.type == Type::f32) d[l] = is_signed(i.from) ? put(float(i64(v))) : put(float(v));
        else if (i.type == Type::f64) d[l] = is_signed(i.from) ? put(double(i64(v))) : put(double(v));
        else d[l] = size_of(i.type) < 8 ? v & ((u64(1) << 8 * size_of(i.type)) - 1) : v;
        return;
      }
      double x = i.from == Type::f32 ? double(get<float>(v)) : get<double>(v);
      if (i.type == Type::f32) d[l] = put(float(x));
      else if (i.type == Type::f64) d[l] = put(x);
      else d[l] = put(x != x ? int32_t(0) : x >= 2147483647.0 ? INT32_MAX : x <= -2147483648.0 ? INT32_MIN : int32_t(x));  // rzi.s32
    });
  }

  void load_matrices(const Instruction &i) {
    const u64 *base = reg(i.in[0]);
    u32 rows[lanes];
    for (unsigned l = 0; l < lanes; l++) {
      rows[l] = u32(base[l] + u64(i.offset));
      access(rows[l], 16, warp * lanes + l, false);
    }
    auto missing = [&](unsigned row, unsigned col) {
      const char *p = shared_at(rows[row]) + 2 * col;
      return unwritten<u16>(p, &written[rows[row] - shared_begin + 2 * col]);
    };
    auto element = [&](unsigned row, unsigned col) { u16 v; memcpy(&v, shared_at(rows[row]) + 2 * col, 2); return u32(v); };
    for (unsigned j = 0; j < 4; j++)
      for (unsigned l = 0; l < lanes; l++) {
        unsigned g = l / 4, t = l % 4;
        bool bad = i.transposed ? missing(8 * j + 2 * t, g) || missing(8 * j + 2 * t + 1, g) : missing(8 * j + g, 2 * t) || missing(8 * j + g, 2 * t + 1);
        define(i.to[j], u32(1) << l, {u32(bad) << l, 0, {i.line, rows[8 * j + g]}});
        reg(i.to[j])[l] = i.transposed ? element(8 * j + 2 * t, g) | element(8 * j + 2 * t + 1, g) << 16 : element(8 * j + g, 2 * t) | element(8 * j + g, 2 * t + 1) << 16;
      }
  }

  // The sums are in float32 in ascending order, as in machine/gpu_host.h.
  void multiply(const Instruction &i) {
    float a[16][16], b[16][8], sums[16][8];
    for (unsigned l = 0; l < lanes; l++) {
      unsigned g = l / 4, t = l % 4;
      for (unsigned half = 0; half < 2; half++) {
        for (unsigned row = 0; row < 2; row++) {
          u32 pair = u32(reg(i.in[half * 2 + row])[l]);
          a[g + 8 * row][half * 8 + 2 * t] = low_half(pair), a[g + 8 * row][half * 8 + 2 * t + 1] = high_half(pair);
        }
        u32 pair = u32(reg(i.in[4 + half])[l]);
        b[half * 8 + 2 * t][g] = low_half(pair), b[half * 8 + 2 * t + 1][g] = high_half(pair);
      }
      for (unsigned n = 0; n < 4; n++) sums[g + 8 * (n / 2)][2 * t + n % 2] = get<float>(reg(i.in[6 + n])[l]);
    }
    for (unsigned row = 0; row < 16; row++)
      for (unsigned m = 0; m < 16; m++)
        for (unsigned col = 0; col < 8; col++) sums[row][col] += a[row][m] * b[m][col];
    for (unsigned n = 0; n < 4; n++)
      for (unsigned l = 0; l < lanes; l++) reg(i.to[n])[l] = put(sums[l / 4 + 8 * (n / 2)][l % 4 * 2 + n % 2]);
  }

  // eight reads eight elements through the async proxy.
  void eight(float *to, u32 address) {
    if (address < k->dynamic || u64(address) + 16 > shared_end) stop("a descriptor leads to address " + std::to_string(address) + ", out of shared memory", -1, IllegalAddress);
    const char *now = shared_at(address);
    size_t at = address - shared_begin;
    for (unsigned n = 0; n < 8; n++)
      if (const Word &x = words[at / 2 + n]; x.copier >= 0) stop_copied(x, address + 2 * n, -1);
    if (at + 16 > visible.size() || memcmp(now, &visible[at], 16) != 0) stop("shared memory is not what it was at the last fence.proxy.async of all threads");
    for (unsigned n = 0; n < 8; n++) {
      Word &x = words[at / 2 + n];
      if (unwritten<u16>(now + 2 * n, &written[at + 2 * n])) stop("wgmma reads uninitialized shared memory at address " + std::to_string(address + 2 * n));
      if (x.written == epoch) stop("wgmma reads shared memory that was written after the last barrier");
      x.read = epoch, x.reader = -1;
      u16 v;
      memcpy(&v, now + 2 * n, 2);
      to[n] = bits_float(u32(v) << 16);
    }
  }
  u64 uniform(int r) {
    u64 v = reg(r)[0];
    for (unsigned l = 1; l < lanes; l++)
      if (reg(r)[l] != v) stop("the threads of a warp have different descriptors");
    return v;
  }
  void multiply_group(const Instruction &i) {
    constexpr unsigned depth = 16;
    if (threads % 128) stop("the block is not of whole warpgroups");
    size_t first = i.from_registers ? 4 : 1;
    if (uniform(i.in[first + 1]) != 1) stop("scale-d is not 1");
    Descriptor right(uniform(i.in[first]));
    static thread_local float b[depth][256], sums[16][256];
    float a[16][depth];
    if (right.reserved) stop("reserved bits of a descriptor are set");
    if (i.transposed) {
      for (unsigned col = 0; col < i.vector; col += 8)
        for (unsigned m = 0; m < depth; m++) eight(&b[m][col], right.columns(col / 8, m));
    } else {
      for (unsigned col = 0; col < i.vector; col++)
        for (unsigned half = 0; half < 2; half++) {
          float part[8];
          eight(part, right.rows(col, half));
          for (unsigned m = 0; m < 8; m++) b[half * 8 + m][col] = part[m];
        }
    }
    if (i.from_registers) {
      for (unsigned l = 0; l < lanes; l++)
        for (unsigned part = 0; part < 4; part++) {
          u32 pair = u32(reg(i.in[part])[l]);
          unsigned row = l / 4 + part % 2 * 8, col = part / 2 * 8 + l % 4 * 2;
          a[row][col] = low_half(pair), a[row][col + 1] = high_half(pair);
        }
    } else {
      Descriptor left(uniform(i.in[0]));
      if (left.reserved) stop("reserved bits of a descriptor are set");
      for (unsigned row = 0; row < 16; row++)
        for (unsigned half = 0; half < 2; half++) eight(&a[row][half * 8], left.rows(warp % 4 * 16 + row, half));
    }
    auto sum = [&](unsigned n, unsigned l) -> float & { return sums[l / 4 + n % 4 / 2 * 8][n / 4 * 8 + l % 4 * 2 + n % 2]; };
    for (unsigned n = 0; n < i.vector / 2; n++)
      for (unsigned l = 0; l < lanes; l++) sum(n, l) = get<float>(reg(i.to[n])[l]);
    for (unsigned row = 0; row < 16; row++)
      for (unsigned m = 0; m < depth; m++)
        for (unsigned col = 0; col < i.vector; col++) sums[row][col] += a[row][m] * b[m][col];
    for (unsigned n = 0; n < i.vector / 2; n++)
      for (unsigned l = 0; l < lanes; l++) reg(i.to[n])[l] = put(sum(n, l));
  }

  // step executes an instruction that does not change the order of execution.
  void step(const Instruction &i, u32 mask) {
    switch (i.op) {
    case Op::mov: {
      u64 *d = reg(i.to[0]);
      const u64 *a = reg(i.in[0]);
      each(mask, [&](unsigned l) { d[l] = a[l]; });
      break;
    }
    case Op::pack: {
      unsigned half = 4 * size_of(i.type);
      u64 low = (u64(1) << half) - 1;
      each(mask, [&](unsigned l) { reg(i.to[0])[l] = (reg(i.in[0])[l] & low) | (reg(i.in[1])[l] & low) << half; });
      break;
    }
    case Op::unpack: {
      unsigned half = 4 * size_of(i.type);
      u64 low = (u64(1) << half) - 1;
      each(mask, [&](unsigned l) {
        u64 v = reg(i.in[0])[l];
        reg(i.to[0])[l] = v & low, reg(i.to[1])[l] = v >> half & low;
      });
      break;
    }
    case Op::mul_wide: each(mask, [&](unsigned l) { reg(i.to[0])[l] = u64(u32(reg(i.in[0])[l])) * u32(reg(i.in[1])[l]); }); break;
    case Op::fma: {
      u64 *d = reg(i.to[0]);
      const u64 *a = reg(i.in[0]), *b = reg(i.in[1]), *c = reg(i.in[2]);
      each(mask, [&](unsigned l) { d[l] = put(__builtin_fmaf(get<float>(a[l]), get<float>(b[l]), get<float>(c[l]))); });
      break;
    }
    case Op::selp: {
      u64 *d = reg(i.to[0]);
      const u64 *a = reg(i.in[0]), *b = reg(i.in[1]), *c = reg(i.in[2]);
      each(mask, [&](unsigned l) { d[l] = c[l] ? a[l] : b[l]; });
      break;
    }
    case Op::setp: compare(i, mask); break;
    case Op::cvt: convert(i, mask); break;
    case Op::bf16: each(mask, [&](unsigned l) { reg(i.to[0])[l] = to_bfloat16(get<float>(reg(i.in[0])[l])); }); break;
    case Op::bf16x2: each(mask, [&](unsigned l) { reg(i.to[0])[l] = u32(to_bfloat16(get<float>(reg(i.in[0])[l]))) << 16 | to_bfloat16(get<float>(reg(i.in[1])[l])); }); break;
    case Op::rint: unary<float>(i, mask, [](float a) { return rintf(a); }); break;
    case Op::ex2: unary<float>(i, mask, [](float a) { return a < -126 ? 0 : exp2f(a); }); break;
    case Op::rcp:
      if (i.type == Type::f64) unary<double>(i, mask, [](double a) { return 1 / a; });
      else unary<float>(i, mask, [](float a) { return 1 / a; });
      break;
    case Op::ld: load(i, mask); break;
    case Op::st: store(i, mask); break;
    case Op::copy: start_copies(i, mask); break;
    case Op::copy_commit: each(mask, [&](unsigned l) { w->groups[l]++; }); break;
    case Op::copy_wait: wait_for_copies(i, mask); break;
    case Op::shfl: {
      u64 from[lanes];
      memcpy(from, reg(i.in[0]), sizeof from);
      u32 x = u32(reg(i.in[1])[0]);
      for (unsigned l = 0; l < lanes; l++) reg(i.to[0])[l] = from[(l ^ x) % lanes];
      break;
    }
    case Op::ldmatrix: load_matrices(i); break;
    case Op::mma: multiply(i); break;
    case Op::wgmma: multiply_group(i); break;
    case Op::wgmma_group: break;  // each multiplication completes immediately
    case Op::fence:
      fenced += unsigned(__builtin_popcount(mask));
      if (fenced < threads) break;
      fenced = 0;
      visible = shared;
      break;
    default: arithmetic(i, mask);
    }
  }

  static bool needs_warp(Op op) { return op == Op::shfl || op == Op::ldmatrix || op == Op::mma || op == Op::wgmma || op == Op::wgmma_group; }

  // run_warp runs a warp until all of its lanes wait for the block or have ended.
  void run_warp() {
    for (;;) {
      u32 ready = w->alive & ~w->held & ~w->blocked;
      bool forced = false;
      if (!ready) {
        if (!w->blocked) return;
        // An instruction of the whole warp: all lanes must have come to it.
        here = w->pc[__builtin_ctz(w->blocked)];
        bool same = w->blocked == w->alive;
        for (u32 m = w->blocked; m; m &= m - 1) same = same && w->pc[__builtin_ctz(m)] == here;
        bool barrier = k->code[size_t(here)].op == Op::bar;
        if (!same || w->alive != (barrier ? w->all : ~u32(0))) stop("it is not executed by all threads of the warp");
        ready = w->blocked, w->blocked = 0;
        if (barrier) {
          each(ready, [&](unsigned l) { w->pc[l] = here + 1; });
          w->held = ready;
          return;
        }
        forced = true;
      }
      // The lanes at the lowest position run until they meet others, diverge, or wait.
      int pc = INT32_MAX, limit = INT32_MAX;
      for (u32 m = ready; m; m &= m - 1) pc = std::min(pc, w->pc[__builtin_ctz(m)]);
      u32 mask = 0;
      for (u32 m = ready; m; m &= m - 1) {
        unsigned l = unsigned(__builtin_ctz(m));
        if (w->pc[l] == pc) mask |= 1u << l;
        else limit = std::min(limit, w->pc[l]);
      }
      auto set = [&](u32 m, int to) { each(m, [&](unsigned l) { w->pc[l] = to; }); };
      for (;;) {
        if (size_t(pc) >= k->code.size()) {  // behind the last instruction
          w->alive &= ~mask;
          break;
        }
        const Instruction &i = k->code[size_t(pc)];
        here = pc;
        u32 run = mask;
        if (steps && !--steps) stop("too many instructions", -1, LaunchTimeout);
        if (i.predicate >= 0) {
          need_defined(i.predicate, mask);
          const u64 *p = reg(i.predicate);
          run = 0;
          each(mask, [&](unsigned l) { run |= u32((p[l] & 1) != i.negated) << l; });
        }
        if (i.op == Op::bra) {
          u32 stay = mask & ~run;
          if (!stay) {
            pc = i.target;
          } else if (!run) {
            pc++;
          } else {
            set(run, i.target), set(stay, pc + 1);
            break;
          }
        } else if (i.op == Op::ret) {
          w->alive &= ~run;
          set(mask & ~run, pc + 1);
          break;
        } else if (i.op == Op::bar) {
          // bar.sync is barrier.sync.aligned: all threads of a warp must execute the same one.
          if (run != mask) stop("a predicate at a barrier");
          set(mask, pc);
          w->blocked |= mask;
          break;
        } else if (needs_warp(i.op) && run != ~u32(0)) {
          if (run != mask || forced) stop("a predicate at an instruction of the whole warp");
          set(mask, pc);
          w->blocked |= mask;
          break;
        } else {
          if (run) track(i, run), step(i, run);
          pc++;
        }
        forced = false;
        if (pc >= limit) {
          set(mask, pc);
          break;
        }
      }
    }
  }

  void run(bool falling) {
    std::fill(shared.begin(), shared.end(), char(0xff));
    std::fill(written.begin(), written.end(), 0);
    visible.clear();
    epoch++, fenced = 0;
    unsigned n = (threads + lanes - 1) / lanes;
    warps.resize(n);
    for (warp = 0; warp < n; warp++) {
      w = &warps[warp];
      w->r.assign(size_t(k->registers) * lanes, ~u64(0));
      w->known.assign(size_t(k->registers), Known{~u32(0), 0, {}});
      auto special = [&](int r) { if (r >= 0) w->known[size_t(r)] = {}; };
      for (const Preset &p : k->presets) std::fill_n(reg(p.reg), lanes, p.value), special(p.reg);
      special(k->tid), special(k->ntid);
      for (int a = 0; a < 3; a++) special(k->ctaid[a]), special(k->nctaid[a]);
      for (unsigned l = 0; l < lanes; l++) {
        if (k->tid >= 0) reg(k->tid)[l] = warp * lanes + l;
        if (k->ntid >= 0) reg(k->ntid)[l] = threads;
        for (int a = 0; a < 3; a++) {
          if (k->ctaid[a] >= 0) reg(k->ctaid[a])[l] = at[a];
          if (k->nctaid[a] >= 0) reg(k->nctaid[a])[l] = grid[a];
        }
        w->pc[l] = 0;
        for (const Copy &c : w->copies[l])  // that the previous block did not wait for
          for (u32 b = 0; b < c.size; b += 2) words[(c.to - shared_begin + b) / 2].copier = -1;
        w->copies[l].clear();
        w->groups[l] = 0;
      }
      unsigned left = std::min(lanes, threads - warp * lanes);
      w->alive = w->all = left == lanes ? ~u32(0) : (u32(1) << left) - 1;
      w->held = w->blocked = 0;
    }
    for (;;) {
      bool any = false;
      for (unsigned j = 0; j < n; j++) {
        warp = falling ? n - 1 - j : j;
        w = &warps[warp];
        run_warp();
        any = any || w->held;
      }
      if (!any) return;
      epoch++;  // every thread that has not ended is at the barrier
      for (Warp &x : warps) x.held = 0;
    }
  }
};

}  // namespace

void check(const Kernel &k) {
  Block b{};
  Warp w{};
  b.k = &k;
  b.w = &w;
  b.threads = lanes;
  w.r.resize(size_t(k.registers) * lanes);
  w.known.resize(size_t(k.registers));
  for (const Instruction &i : k.code) {
    b.here = int(&i - k.code.data());
    bool decoded = Block::needs_warp(i.op) || i.op == Op::bra || i.op == Op::ret || i.op == Op::bar || i.op == Op::ld || i.op == Op::st;
    if (!decoded) b.step(i, 0);  // for no thread
  }
}

// Launch is a launch of a kernel, without its arguments.
struct Launch {
  unsigned grid[3], block[3];
  size_t shared;
  const Memory *memory;  // sorted by address
  size_t allocations;
  u64 steps;             // most instructions of the warps of a block; 0: no limit
};

static Result run(const Kernel *k, const char *const *args, const Launch &launch, std::string *why) {
  const unsigned *grid = launch.grid, *size = launch.block;
  if (size[1] != 1 || size[2] != 1) {
    *why = "blocks have one dimension here";
    return Unsupported;
  }
  std::vector<char> params(k->param_bytes);
  for (size_t i = 0; i < k->sizes.size(); i++) memcpy(&params[k->offsets[i]], args[i], k->sizes[i]);
  u64 total = u64(grid[0]) * grid[1] * grid[2];
  std::atomic<u64> next{0};
  std::mutex mutex;
  Result result = Success;
  auto work = [&] {
    Block b{};
    b.k = k;
    b.params = params.data();
    b.threads = size[0];
    b.shared_end = k->dynamic + u32(launch.shared);
    b.shared.resize(b.shared_end - shared_begin);
    b.words.resize(b.shared.size() / 2 + 1);
    b.written.resize(b.shared.size());
    b.memory = launch.memory, b.allocations = launch.allocations;
    b.last.resize(k->code.size());
    std::copy(grid, grid + 3, b.grid);
    for (u64 i; (i = next.fetch_add(1)) < total;) {
      b.at[0] = unsigned(i % grid[0]), b.at[1] = unsigned(i / grid[0] % grid[1]), b.at[2] = unsigned(i / grid[0] / grid[1]);
      b.steps = launch.steps;
      try {
        b.run(i & 1);
      } catch (Fault &f) {
        std::lock_guard<std::mutex> hold(mutex);
        next = total;
        if (result == Success) result = f.result, *why = f.message;
      }
    }
  };
  static const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> others;
  if (total > 1 && total * size[0] > 2048)
    for (unsigned i = 1; i < std::min(cores, 4u); i++) others.emplace_back(work);
  work();
  for (auto &t : others) t.join();
  return result;
}

}  // namespace gpusim::ptx

// gpusim_ptx_load returns a module, which is never freed, or NULL and the reason.
extern "C" __attribute__((visibility("default"))) void *gpusim_ptx_load(const char *text, char *why, size_t n) {
  std::string reason;
  auto m = gpusim::ptx::parse(text, &reason);
  if (!m) snprintf(why, n, "%s", reason.c_str());
  return m.release();
}

// gpusim_ptx_free frees a module.
extern "C" __attribute__((visibility("default"))) void gpusim_ptx_free(void *module) { delete static_cast<gpusim::ptx::Module *>(module); }

// gpusim_ptx_try runs one block of each kernel of a module, for a limited number of instructions. The
// parameters point to 64 KiB that contain zeros. It returns Success if the kernels end or have an
// error of their own, and a Result that says that the interpreter cannot run them otherwise.
extern "C" __attribute__((visibility("default"))) int gpusim_ptx_try(const void *module, gpusim::ptx::u64 steps, char *why, size_t n) {
  using namespace gpusim::ptx;
  std::vector<char> bytes(64 << 10);
  std::vector<unsigned char> written(bytes.size(), 1);
  Memory memory{uintptr_t(bytes.data()), bytes.size(), written.data()};
  for (auto &k : static_cast<const Module *>(module)->kernels) {
    std::fill(bytes.begin(), bytes.end(), 0);
    std::vector<u64> arg(most_params / 8, (memory.address + 255) / 256 * 256);
    std::vector<const char *> args(k.second->sizes.size(), reinterpret_cast<const char *>(arg.data()));
    std::string reason;
    Result r = run(k.second.get(), args.data(), {{1, 1, 1}, {128, 1, 1}, 32 << 10, &memory, 1, steps}, &reason);
    if (r == Success || r == IllegalAddress || r == MisalignedAddress || r == LaunchFailed || r == LaunchTimeout) continue;
    snprintf(why, n, "%s", reason.c_str());
    return r;
  }
  return Success;
}

// gpusim_ptx_kernel returns a kernel, or NULL.
extern "C" __attribute__((visibility("default"))) const void *gpusim_ptx_kernel(const void *module, const char *name) {
  auto &all = static_cast<const gpusim::ptx::Module *>(module)->kernels;
  auto it = all.find(name);
  return it == all.end() ? nullptr : it->second.get();
}

// gpusim_ptx_run runs all blocks of a launch, which may access memory that is sorted by address. It
// prints an error and returns the result.
extern "C" __attribute__((visibility("default"))) int gpusim_ptx_run(const void *kernel, void **args, const unsigned *grid, const unsigned *size, size_t shared, const gpusim::ptx::Memory *memory, size_t n) {
  gpusim::ptx::Launch launch{{grid[0], grid[1], grid[2]}, {size[0], size[1], size[2]}, shared, memory, n, 0};
  std::string why;
  int r = gpusim::ptx::run(static_cast<const gpusim::ptx::Kernel *>(kernel), const_cast<const char *const *>(reinterpret_cast<char **>(args)), launch, &why);
  if (r) fprintf(stderr, "gpusim: ptx: %s\n", why.c_str());
  return r;
}
