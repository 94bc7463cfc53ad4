// Modules and launches. A module is PTX text. The simulator parses its entries, with the sizes of
// their parameters and their maximum number of threads. It runs the function of the same name in
// the library of kernels compiled for the host, libgpusim_kernels.so, which is next to this
// library.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <regex>

#include "sim.h"

namespace gpusim {

typedef void (*Run)(void (*call)(void **), void **args, const unsigned *grid, const unsigned *block, size_t shared);

static void *library() {
  static void *handle = [] {
    Dl_info self;
    dladdr(reinterpret_cast<void *>(&library), &self);
    std::string path = self.dli_fname;
    path = path.substr(0, path.rfind('/') + 1) + "libgpusim_kernels.so";
    void *h = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!h) fprintf(stderr, "gpusim: %s\n", dlerror());
    return h;
  }();
  return handle;
}

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
  Result taken = takes(image, &why);
  if (taken == Success && !parse(image, m.get(), &why)) taken = InvalidPtx;
  if (taken != Success) {
    for (unsigned i = 0; i + 1 < n; i++)
      if (options[i] == 5 && options[i + 1] == 6)  // the error log and its size
        snprintf(static_cast<char *>(values[i]), size_t(values[i + 1]), "gpusim: %s", why.c_str());
    return taken;
  }
  for (auto &entry : m->kernels) {
    Kernel &k = entry.second;
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
  s->push({[=] {
    switch (fate) {
    case Fate::Hangs:
      for (;;) pause();
    case Fate::Lost: fail(c, EccUncorrectable); return;
    case Fate::Fails: fail(c, LaunchFailed); return;
    default: break;
    }
    std::vector<void *> args;
    for (auto &a : call->args) args.push_back(a.data());
    run(body, args.data(), call->grid, call->block, shared);
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
  if (it == all.end() || !it->second.call) return NotFound;
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
