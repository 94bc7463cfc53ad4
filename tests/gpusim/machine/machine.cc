// The machine runs the threads of a block as fibers of one thread of this process. A thread runs
// until it waits for its warp or its block. Then the next one runs, in ascending order in even
// blocks and in descending order in odd blocks, so that a missing barrier shows. The blocks of a
// launch are divided among the CPU's cores.
#include "gpu_host.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "../poison.h"

// gpusim_switch saves the callee-saved registers and the stack in *from, and continues with the
// registers and the stack of to.
extern "C" void gpusim_switch(void **from, void *to);
#if defined(__x86_64__)
asm(R"(
.text
.globl gpusim_switch
.hidden gpusim_switch
.type gpusim_switch,@function
gpusim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  retq
.size gpusim_switch,.-gpusim_switch
)");
enum { savedWords = 7, entryWord = 6, skippedWords = 1 };  // skipped: as after a call
#elif defined(__aarch64__)
asm(R"(
.text
.globl gpusim_switch
.hidden gpusim_switch
.type gpusim_switch,@function
gpusim_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size gpusim_switch,.-gpusim_switch
)");
enum { savedWords = 20, entryWord = 11, skippedWords = 0 };
#else
#error "no switch of stacks for this processor"
#endif

namespace gpusim {

thread_local Lane *lane;
thread_local unsigned block[3], blocks[3], threads;

namespace {

constexpr unsigned mostThreads = 1024, mostShared = 232448;
// The odd number of cache lines keeps the tops of stacks out of the same cache set.
#ifdef GPUSIM_CHECKED
constexpr size_t stackBytes = (256 << 10) + 5 * 64;  // an error report runs on one of these stacks
#else
constexpr size_t stackBytes = (64 << 10) + 5 * 64;
#endif
constexpr char canary = 0x5a;

// Block is the block that a thread of this process runs.
struct Block {
  Lane lanes[mostThreads];
  u32 able[mostThreads / 32], waiting[mostThreads / 32];  // for the warp; one bit per lane
  u32 alive[mostThreads / 32], held[mostThreads / 32];    // held: waiting for the block
  unsigned left, arrived;
  bool falling;
  void *home;  // the stack that runs the block
  void (*call)(void **);
  void **args;
  char *stacks, *shared;
  size_t shared_bytes;
};
thread_local Block *now;

// Copy is a copy to shared memory for which its thread has not waited.
struct Copy {
  void *to;
  size_t bytes;
  char data[16];
};
thread_local std::vector<Copy> copies[mostThreads];

// Workspaces that no launch uses. Each takes some megabytes after its first use.
std::mutex roomsMutex;
std::vector<Block *> rooms;

void give_back(Block *b) {
  std::lock_guard<std::mutex> hold(roomsMutex);
  rooms.push_back(b);
}

Block *take() {
  {
    std::lock_guard<std::mutex> hold(roomsMutex);
    if (!rooms.empty()) {
      Block *b = rooms.back();
      rooms.pop_back();
      return b;
    }
  }
  auto *b = static_cast<Block *>(calloc(1, sizeof(Block)));
  size_t size = mostThreads * stackBytes + mostShared + 64;
  b->stacks = static_cast<char *>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (b->stacks == MAP_FAILED) abort();
  b->shared = b->stacks + mostThreads * stackBytes;
  b->shared += -uintptr_t(b->shared) % 16;
  return b;
}

unsigned pick(u32 bits) { return now->falling ? 31 - unsigned(__builtin_clz(bits)) : unsigned(__builtin_ctz(bits)); }

// next returns a lane that can continue, first from this warp, or none if all are done.
Lane *next(unsigned warp) {
  if (now->able[warp]) return &now->lanes[warp * 32 + pick(now->able[warp])];
  unsigned warps = (threads + 31) / 32;
  for (unsigned i = 1; i <= warps; i++) {
    unsigned w = now->falling ? (warp + warps - i) % warps : (warp + i) % warps;
    if (now->able[w]) return &now->lanes[w * 32 + pick(now->able[w])];
  }
  if (now->left) {
    fprintf(stderr, "gpusim: %u threads of a block wait for others that never come: they are not at one barrier\n", now->left);
    abort();
  }
  return nullptr;
}

void leave(void **from, unsigned warp) {
  Lane *to = next(warp);
  if (to == lane) return;
  lane = to;
  gpusim_switch(from, to ? to->stack : now->home);
}

void release_warp(unsigned w) {
  if (now->waiting[w] && now->waiting[w] == now->alive[w]) {
    now->able[w] |= now->waiting[w];
    now->waiting[w] = 0;
  }
}

void release_block() {
  if (!now->arrived || now->arrived != now->left) return;
  now->arrived = 0;
  for (unsigned w = 0; w < (threads + 31) / 32; w++) {
    now->able[w] |= now->held[w];
    now->held[w] = 0;
  }
}

// enter is the entry point of a lane. It does not return, so AddressSanitizer's redzones around its
// variables would stay on the stack.
UNCHECKED void enter() {
  now->call(now->args);
  unsigned w = lane->number / 32;
  u32 bit = 1u << lane->number % 32;
  now->able[w] &= ~bit;
  now->alive[w] &= ~bit;
  now->left--;
  release_warp(w);
  release_block();
  void *gone;
  leave(&gone, w);
  abort();
}

void run_block(Block *b) {
  b->left = threads;
  b->arrived = 0;
  unsigned warps = (threads + 31) / 32;
  for (unsigned w = 0; w < warps; w++) {
    unsigned n = std::min(32u, threads - w * 32);
    b->able[w] = b->alive[w] = n == 32 ? ~0u : (1u << n) - 1;
    b->waiting[w] = b->held[w] = 0;
  }
  for (unsigned i = 0; i < threads; i++) {
    Lane &l = b->lanes[i];
    l.x = l.number = i;
    l.turn = 0;
    copies[i].clear();
    auto *top = reinterpret_cast<void **>(uintptr_t(b->stacks + (i + 1) * stackBytes) & ~uintptr_t(63));
    top -= skippedWords + savedWords;
    top[entryWord] = reinterpret_cast<void *>(&enter);
    l.stack = top;
  }
  now = b;
  lane = nullptr;
  leave(&b->home, b->falling ? warps - 1 : 0);
}

}  // namespace

void sync_warp() {
  unsigned w = lane->number / 32;
  u32 bit = 1u << lane->number % 32;
  now->able[w] &= ~bit;
  now->waiting[w] |= bit;
  release_warp(w);
  leave(&lane->stack, w);
}

void sync_block() {
  unsigned w = lane->number / 32;
  u32 bit = 1u << lane->number % 32;
  now->able[w] &= ~bit;
  now->held[w] |= bit;
  now->arrived++;
  release_block();
  leave(&lane->stack, w);
}

// start_copy reads the source immediately. The destination is NaN until finish_copies.
void start_copy(void *to, const void *from, size_t bytes, size_t used) {
  Copy c{to, bytes, {}};
  if (uintptr_t(to) % bytes || uintptr_t(from) % bytes) {
    fprintf(stderr, "gpusim: a misaligned copy of %zu bytes\n", bytes);
    abort();
  }
  memcpy(c.data, from, used);
  memset(to, 0xff, bytes);
  copies[lane->number].push_back(c);
}

void finish_copies() {
  for (const Copy &c : copies[lane->number]) memcpy(c.to, c.data, c.bytes);
  copies[lane->number].clear();
}

void *dynamic_shared() { return now->shared; }
size_t dynamic_shared_bytes() { return now->shared_bytes; }

#ifdef GPUSIM_CHECKED
// AddressSanitizer reports the memory; this adds the kernel, block, and thread at the end of its
// report.
extern "C" void __sanitizer_set_death_callback(void (*)());

UNCHECKED void tell() {
  Dl_info at;
  if (!lane || !dladdr(reinterpret_cast<void *>(now->call), &at) || !at.dli_sname) return;
  fprintf(stderr, "gpusim: %s, block %u,%u,%u, thread %u\n", at.dli_sname, block[0], block[1], block[2], lane->number);
}

[[maybe_unused]] const bool told = (__sanitizer_set_death_callback(tell), true);
#endif

}  // namespace gpusim

using namespace gpusim;

// gpusim_run runs all blocks of a launch.
extern "C" __attribute__((visibility("default"))) void gpusim_run(void (*call)(void **), void **args, const unsigned *grid, const unsigned *size, size_t shared) {
  if (size[1] != 1 || size[2] != 1) {
    fprintf(stderr, "gpusim: blocks have one dimension here\n");
    abort();
  }
  u64 total = u64(grid[0]) * grid[1] * grid[2];
  std::atomic<u64> at{0};
  auto work = [&] {
    Block *b = take();
    b->call = call;
    b->args = args;
    b->shared_bytes = shared;
    threads = size[0];
    for (int i = 0; i < 3; i++) blocks[i] = grid[i];
    for (u64 first; (first = at.fetch_add(8)) < total;)
      for (u64 i = first; i < std::min(total, first + 8); i++) {
        block[0] = unsigned(i % grid[0]);
        block[1] = unsigned(i / grid[0] % grid[1]);
        block[2] = unsigned(i / grid[0] / grid[1]);
        b->falling = i & 1;
        memset(b->shared, 0xff, shared);  // NaN
        memset(b->shared + shared, canary, 64);
        forbid(b->shared + shared, mostShared + 64 - shared);
        run_block(b);
        allow(b->shared + shared, mostShared + 64 - shared);
        for (int k = 0; k < 64; k++)
          if (b->shared[shared + size_t(k)] != canary) {
            fprintf(stderr, "gpusim: a kernel wrote beyond its %zu bytes of shared memory\n", shared);
            abort();
          }
      }
    give_back(b);
  };
  static const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> others;
  if (total * size[0] > 16384)
    for (unsigned i = 1; i < std::min(cores, 4u); i++) others.emplace_back(work);
  work();
  for (auto &t : others) t.join();
}
