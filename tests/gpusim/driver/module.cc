// Modules and launches. A module is PTX text. The simulator parses its entries, with the sizes of
// their parameters and their maximum number of threads. It runs the function of the same name in
// the library of kernels compiled for the host, libgpusim_kernels.so, which is next to this
// library. GPUSIM_KERNELS selects the interpreter of PTX, libgpusim_ptx.so:
//   ptx       the interpreter runs all kernels
//   compare   the interpreter runs all kernels, and the host's code runs each launch on a copy of
//             the memory; the results must have the same bits
// GPUSIM_COMPARED is a file to which compare appends the name of each kernel with equal results.
// GPUSIM_MUTATION=PATTERN=>TO replaces matches of a regular expression in the PTX that the interpreter
// runs, to test that errors are found.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <regex>
#include <set>

#include "sim.h"

namespace gpusim {

typedef void (*Run)(void (*call)(void **), void **args, const unsigned *grid, const unsigned *block, size_t shared);

// open loads a library that is next to this one.
static void *open(const char *name) {
  Dl_info self;
  dladdr(reinterpret_cast<void *>(&open), &self);
  std::string path = self.dli_fname;
  path = path.substr(0, path.rfind('/') + 1) + name;
  void *h = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!h) fprintf(stderr, "gpusim: %s\n", dlerror());
  return h;
}

static void *library() {
  static void *handle = open("libgpusim_kernels.so");
  return handle;
}

// Interpreter is the library that runs PTX, if GPUSIM_KERNELS selects it.
struct Interpreter {
  bool compare = false;
  void *(*load)(const char *text, char *why, size_t n) = nullptr;
  const void *(*kernel)(const void *module, const char *name) = nullptr;
  int (*run)(const void *kernel, void **args, const unsigned *grid, const unsigned *block, size_t shared, const Memory *memory, size_t n) = nullptr;
};

static const Interpreter &interpreter() {
  static const Interpreter found = [] {
    Interpreter i;
    const char *v = getenv("GPUSIM_KERNELS");
    if (!v || !*v || !strcmp(v, "host")) return i;
    i.compare = !strcmp(v, "compare");
    void *lib = i.compare || !strcmp(v, "ptx") ? open("libgpusim_ptx.so") : nullptr;
    if (!lib) {
      fprintf(stderr, "gpusim: GPUSIM_KERNELS=%s: must be host, ptx, or compare\n", v);
      abort();
    }
    i.load = reinterpret_cast<decltype(i.load)>(dlsym(lib, "gpusim_ptx_load"));
    i.kernel = reinterpret_cast<decltype(i.kernel)>(dlsym(lib, "gpusim_ptx_kernel"));
    i.run = reinterpret_cast<decltype(i.run)>(dlsym(lib, "gpusim_ptx_run"));
    return i;
  }();
  return found;
}

bool interprets() { return interpreter().load; }

// mutated returns PTX with the replacement of GPUSIM_MUTATION.
static std::string mutated(const std::string &text) {
  const char *v = getenv("GPUSIM_MUTATION");
  std::string mutation = v ? v : "";
  size_t arrow = mutation.find("=>");
  if (arrow == std::string::npos) return text;
  return std::regex_replace(text, std::regex(mutation.substr(0, arrow)), mutation.substr(arrow + 2));
}

// Copies are copies of the allocations to which arguments of a launch point. The arguments then
// point to the copies.
struct Copies {
  struct One { uintptr_t from; size_t bytes; std::vector<char> copy; };
  std::vector<One> all;
  std::vector<std::vector<char>> args;

  Copies(Device *d, std::vector<std::vector<char>> of) : args(std::move(of)) {
    std::lock_guard<std::mutex> hold(d->mutex);
    for (auto &arg : args)
      for (size_t at = 0; at + 8 <= arg.size(); at += 8) {
        uintptr_t p;
        memcpy(&p, &arg[at], 8);
        auto it = d->pieces.upper_bound(p);
        if (it == d->pieces.begin() || p >= (--it)->first + it->second) continue;
        One *one = nullptr;
        for (auto &o : all)
          if (o.from == it->first) one = &o;
        if (!one) {
          all.push_back({it->first, it->second, std::vector<char>(it->second + 256)});
          one = &all.back();
        }
        p = p - it->first + aligned(one->copy);
        memcpy(&arg[at], &p, 8);
      }
    for (auto &o : all) memmove(reinterpret_cast<void *>(aligned(o.copy)), reinterpret_cast<const void *>(o.from), o.bytes);
  }
  static uintptr_t aligned(const std::vector<char> &v) { return (reinterpret_cast<uintptr_t>(v.data()) + 255) & ~uintptr_t(255); }

  // note appends the name of a kernel to the file of GPUSIM_COMPARED, once.
  static void note(const std::string &kernel) {
    static std::mutex mutex;
    static std::set<std::string> noted;
    const char *name = getenv("GPUSIM_COMPARED");
    std::lock_guard<std::mutex> hold(mutex);
    if (!name || !noted.insert(kernel).second) return;
    if (FILE *f = fopen(name, "a")) {
      fprintf(f, "%s\n", kernel.c_str());
      fclose(f);
    }
  }

  // check stops the process if the allocations and their copies differ, except in the bits of NaN.
  void check(const std::string &kernel) const {
    auto nan = [](uint32_t v) { return (v & 0x7fffffff) > 0x7f800000; };
    auto equal = [&](uint32_t a, uint32_t b) {
      if (a == b || (nan(a) && nan(b))) return true;
      for (int half = 0; half < 2; half++, a >>= 16, b >>= 16)
        if ((a & 0xffff) != (b & 0xffff) && !(nan(a << 16) && nan(b << 16))) return false;
      return true;
    };
    for (auto &o : all) {
      auto *real = reinterpret_cast<const char *>(o.from), *copy = reinterpret_cast<const char *>(aligned(o.copy));
      if (!memcmp(real, copy, o.bytes)) continue;
      for (size_t i = 0; i < o.bytes; i += 4) {
        uint32_t a = 0, b = 0;
        memcpy(&a, real + i, std::min<size_t>(4, o.bytes - i));
        memcpy(&b, copy + i, std::min<size_t>(4, o.bytes - i));
        if (equal(a, b)) continue;
        fprintf(stderr, "gpusim: kernel %s: the PTX and the host's code differ: %08x and %08x at byte %zu of an allocation of %zu\n", kernel.c_str(), a, b, i, o.bytes);
        abort();
      }
    }
  }
};

// parse finds the entries of PTX text, in the form that clang and nvcc write.
static bool parse(const std::string &ptx, Module *m, std::string *why) {
  for (size_t at = 0; (at = ptx.find(".entry", at)) != std::string::npos;) {
    size_t open = ptx.find('(', at), close = ptx.find(')', at), body = ptx.find('{', at);
    if (open == std::string::npos || close == std::string::npos || body == std::string::npos) {
      *why = "an entry without a body";
      return false;
    }
    Kernel k;
    k.name = ptx.substr(at + 6, open - at - 6);
    k.name.erase(0, k.name.find_first_not_of(" \t\n"));
    k.name.erase(k.name.find_last_not_of(" \t\n") + 1);
    std::string parameters = ptx.substr(open + 1, close - open - 1), head = ptx.substr(close, body - close);
    static const std::regex parameter(R"(\.param\s+(?:\.align\s+\d+\s+)?\.[busf](\d+)[^,\[]*(?:\[(\d+)\])?)");
    for (std::sregex_iterator it(parameters.begin(), parameters.end(), parameter), end; it != end; ++it)
      k.sizes.push_back(std::stoul((*it)[1]) / 8 * ((*it)[2].matched ? std::stoul((*it)[2]) : 1));
    std::smatch threads;
    if (std::regex_search(head, threads, std::regex(R"(\.maxntid\s+(\d+))"))) k.most_threads = unsigned(std::stoul(threads[1]));
    m->kernels[k.name] = k;
    at = body;
  }
  return true;
}

static Result load(void **out, const char *image, unsigned n, const int *options, void **values) {
  Context *c;
  if (Result r = ready(&c)) return r;
  auto m = std::make_unique<Module>();
  std::string why;
  Result taken;
  try {
    taken = takes(image, &why);
    if (taken == Success && !parse(image, m.get(), &why)) taken = InvalidPtx;
  } catch (std::exception &e) {  // a number that is too large
    why = e.what();
    taken = InvalidPtx;
  }
  if (taken != Success) {
    for (unsigned i = 0; i + 1 < n; i++)
      if (options[i] == 5 && options[i + 1] == 6)  // the error log and its size
        snprintf(static_cast<char *>(values[i]), size_t(values[i + 1]), "gpusim: %s", why.c_str());
    return taken;
  }
  const Interpreter &by = interpreter();
  void *program = nullptr;
  if (by.load) {
    char reason[256] = "";
    if (!(program = by.load(mutated(image).c_str(), reason, sizeof reason))) {
      fprintf(stderr, "gpusim: ptx: %s\n", reason);
      return InvalidPtx;
    }
  }
  for (auto &entry : m->kernels) {
    Kernel &k = entry.second;
    if (program && !(k.ptx = by.kernel(program, k.name.c_str()))) {
      fprintf(stderr, "gpusim: ptx: no kernel %s\n", k.name.c_str());
      return InvalidPtx;
    }
    k.context = c;
    void *lib = library();
    k.call = lib ? reinterpret_cast<void (*)(void **)>(dlsym(lib, ("gpusim_call_" + k.name).c_str())) : nullptr;
    auto *sizes = lib ? static_cast<const size_t *>(dlsym(lib, ("gpusim_sizes_" + k.name).c_str())) : nullptr;
    if (!k.call) continue;  // a lookup fails
    for (size_t i = 0; i <= k.sizes.size(); i++) {
      size_t want = i < k.sizes.size() ? k.sizes[i] : 0;
      if (!sizes || sizes[i] != want) {
        fprintf(stderr, "gpusim: kernel %s: the PTX and the host's code differ in parameter %zu\n", k.name.c_str(), i);
        return InvalidPtx;
      }
    }
  }
  *out = modules.add(std::move(m));
  return Success;
}

static Result launch(Kernel *k, const unsigned *grid, const unsigned *block, unsigned shared, void *h, void **params) {
  Stream *s;
  Context *c;
  if (Result r = ready(&c)) return r;
  if (Result r = stream_of(h, &s)) return r;
  if (k->context != c) return InvalidHandle;
  for (int i = 0; i < 3; i++)
    if (!grid[i] || !block[i] || (i > 0 && grid[i] > 65535)) return InvalidValue;
  if (grid[0] > 0x7fffffff) return InvalidValue;
  unsigned long threads = 1ul * block[0] * block[1] * block[2];
  if (threads > 1024 || int(shared) > k->most_shared) return InvalidValue;
  if (threads > k->most_threads) return LaunchOutOfResources;
  Fate fate = fate_of(k->name);
  if (fate == Fate::Refused) return LaunchOutOfResources;
  struct Call {
    unsigned grid[3], block[3];
    std::vector<std::vector<char>> args;
  };
  auto call = std::make_shared<Call>();
  memcpy(call->grid, grid, sizeof call->grid);
  memcpy(call->block, block, sizeof call->block);
  for (size_t i = 0; i < k->sizes.size(); i++) {
    const char *p = static_cast<const char *>(params[i]);
    call->args.emplace_back(p, p + k->sizes[i]);
  }
  auto run = reinterpret_cast<Run>(dlsym(library(), "gpusim_run"));
  auto body = k->call;
  auto ptx = k->ptx;
  auto name = k->name;
  s->push({[=] {
    switch (fate) {
    case Fate::Hangs:
      for (;;) pause();
    case Fate::Lost: fail(c, EccUncorrectable); return;
    case Fate::Fails: fail(c, LaunchFailed); return;
    default: break;
    }
    auto pointers = [](std::vector<std::vector<char>> &args) {
      std::vector<void *> p;
      for (auto &a : args) p.push_back(a.data());
      return p;
    };
    auto args = call->args;  // kernels may change their copy
    if (!ptx) {
      run(body, pointers(args).data(), call->grid, call->block, shared);
      return;
    }
    std::unique_ptr<Copies> copies;
    if (interpreter().compare) copies = std::make_unique<Copies>(devices()[size_t(c->device)].get(), args);
    std::shared_ptr<const std::vector<Memory>> memory = memory_of(devices()[size_t(c->device)].get());
    if (int failed = interpreter().run(ptx, pointers(args).data(), call->grid, call->block, shared, memory->data(), memory->size())) {
      fail(c, Result(failed));
      return;
    }
    if (!copies) return;
    run(body, pointers(copies->args).data(), call->grid, call->block, shared);
    copies->check(name);
    Copies::note(name);
  }});
  static const bool blocking = [] {
    const char *v = getenv("CUDA_LAUNCH_BLOCKING");
    return v && *v == '1';
  }();
  if (!blocking || s->capture) return Success;
  s->drain();
  return Result(c->failed.load());
}

}  // namespace gpusim

using namespace gpusim;

API int cuModuleLoadDataEx(void **m, const void *image, unsigned n, const int *options, void **values) {
  return load(m, static_cast<const char *>(image), n, options, values);
}
API int cuModuleLoadData(void **m, const void *image) { return load(m, static_cast<const char *>(image), 0, nullptr, nullptr); }
API int cuModuleUnload(void *m) { return modules.take(m) ? Success : InvalidHandle; }
API int cuModuleGetFunction(void **f, void *m, const char *name) {
  if (Result r = ready(nullptr)) return r;
  if (!modules.has(m)) return InvalidHandle;
  auto &all = static_cast<Module *>(m)->kernels;
  auto it = all.find(name);
  // Tests of the interpreter have kernels that are not in the library.
  if (it == all.end() || (!it->second.call && (!it->second.ptx || interpreter().compare))) return NotFound;
  *f = &it->second;
  return Success;
}
API int cuFuncSetAttribute(Kernel *k, int attribute, int v) {
  if (attribute == 9) return v >= -1 && v <= 100 ? Success : InvalidValue;  // the preferred carve-out of shared memory
  if (attribute != 8 || v < 0 || v > 232448) return InvalidValue;
  k->most_shared = v;
  return Success;
}
API int cuFuncGetAttribute(int *v, int attribute, Kernel *k) {
  if (attribute == 0) *v = int(k->most_threads);
  else if (attribute == 8) *v = k->most_shared;
  else return InvalidValue;
  return Success;
}
API int cuLaunchKernel(Kernel *k, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                       unsigned shared, void *s, void **params, void **) {
  unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
  return launch(k, grid, block, shared, s, params);
}
struct LaunchConfig {
  unsigned grid[3], block[3], shared;
  void *stream, *attributes;
  unsigned n;
};
API int cuLaunchKernelEx(const LaunchConfig *c, Kernel *k, void **params, void **) {
  return launch(k, c->grid, c->block, c->shared, c->stream, params);
}
