// Injected failures. GPUSIM_FAIL is a comma-separated list:
//   alloc:N      the N-th allocation of device memory, from 1, and all later ones fail
//   pin:N        N bytes of pinned memory are never available
//   refuse:K     the call that launches kernel K fails
//   launch:K     kernel K fails while it runs; every later call fails
//   lost:N       the device is lost in the N-th launch, from 1
//   launch:graph a graph fails while it runs; its launch counts as one, and so do the launches in it during capture
//   hang:K       kernel K never ends
//   ptx:V        PTX of version V (for example 8.0) or later is rejected, as by an older driver
#include <cstdlib>
#include <sstream>

#include "sim.h"

namespace gpusim {

static std::map<std::string, std::string> &wishes() {
  static auto *all = [] {
    auto *m = new std::map<std::string, std::string>;
    const char *v = getenv("GPUSIM_FAIL");
    std::istringstream in(v ? v : "");
    for (std::string one; std::getline(in, one, ',');) {
      size_t colon = one.find(':');
      if (colon == std::string::npos) {
        fprintf(stderr, "gpusim: GPUSIM_FAIL: %s is no failure\n", one.c_str());
        abort();
      }
      (*m)[one.substr(0, colon)] = one.substr(colon + 1);
    }
    return m;
  }();
  return *all;
}

static bool reached(const char *kind, std::atomic<long> &count) {
  long n = ++count;
  auto it = wishes().find(kind);
  return it != wishes().end() && n >= atol(it->second.c_str());
}

bool allocation_fails() {
  static std::atomic<long> count{0};
  return reached("alloc", count);
}

bool ptx_is_new(double version) {
  auto it = wishes().find("ptx");
  return it != wishes().end() && version >= strtod(it->second.c_str(), nullptr);
}

bool pinning_fails(size_t n) {
  auto it = wishes().find("pin");
  return it != wishes().end() && n == strtoull(it->second.c_str(), nullptr, 10);
}

Fate fate_of(const std::string &kernel) {
  static std::atomic<long> launches{0};
  if (reached("lost", launches)) return Fate::Lost;
  auto wished = [&](const char *kind) {
    auto it = wishes().find(kind);
    return it != wishes().end() && it->second == kernel;
  };
  if (wished("refuse")) return Fate::Refused;
  if (wished("launch")) return Fate::Fails;
  if (wished("hang")) return Fate::Hangs;
  return Fate::Fine;
}

}  // namespace gpusim
