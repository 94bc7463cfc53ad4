// Devices, contexts and error names of the simulated driver.
#include "sim.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace gpusim {

bool initialised = false;
Live<Stream> streams;
Live<Event> events;
Live<Module> modules;

static size_t setting(const char *name, size_t otherwise) {
  const char *v = getenv(name);
  return v && *v ? strtoull(v, nullptr, 0) : otherwise;
}

// uuid_of returns the UUID of the machine's n-th GPU.
static std::string uuid_of(size_t n) { return std::string("gpusim\0\0\0\0\0\0\0\0\0", 15) + char(n); }

// written formats a UUID as nvidia-smi does.
static std::string written(const std::string &uuid) {
  std::string text = "GPU-";
  for (size_t i = 0; i < uuid.size(); i++) {
    char hex[4];
    snprintf(hex, sizeof hex, "%02x", static_cast<unsigned char>(uuid[i]));
    text += hex;
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

// visible returns the GPUs, of the machine's n, that CUDA_VISIBLE_DEVICES lists by index or by a
// prefix of the UUID, in its order. An unknown or repeated name ends the list.
static std::vector<size_t> visible(size_t n) {
  std::vector<size_t> seen;
  const char *v = getenv("CUDA_VISIBLE_DEVICES");
  if (!v) {
    for (size_t i = 0; i < n; i++) seen.push_back(i);
    return seen;
  }
  std::istringstream names(v);
  for (std::string name; std::getline(names, name, ',');) {
    size_t found = n;
    for (size_t i = 0; i < n && found == n; i++)
      if (name == std::to_string(i) || (name.size() > 4 && written(uuid_of(i)).rfind(name, 0) == 0)) found = i;
    if (found == n || std::find(seen.begin(), seen.end(), found) != seen.end()) break;
    seen.push_back(found);
  }
  return seen;
}

// The devices are never destroyed, because the threads of streams may outlive main.
std::vector<std::unique_ptr<Device>> &devices() {
  static auto *all = [] {
    auto *v = new std::vector<std::unique_ptr<Device>>;
    size_t memory = setting("GPUSIM_MEMORY", size_t(4) << 30);
    for (size_t number : visible(setting("GPUSIM_DEVICES", 1))) {
      v->push_back(std::make_unique<Device>());
      v->back()->primary.device = int(v->size()) - 1;
      v->back()->number = number;
      v->back()->capacity = memory;
    }
    return v;
  }();
  return *all;
}

static thread_local std::vector<Context *> stack;

Context *current() { return stack.empty() ? nullptr : stack.back(); }

Result ready(Context **c) {
  if (!initialised) return NotInitialized;
  Context *now = current();
  if (c) *c = now;
  if (!now) return InvalidContext;
  return Result(now->failed.load());
}

void fail(Context *c, Result r) {
  int fine = 0;
  c->failed.compare_exchange_strong(fine, r);
}

double now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace gpusim

using namespace gpusim;

API int cuInit(unsigned flags) {
  if (flags) return InvalidValue;
  if (devices().empty()) return NoDevice;
  initialised = true;
  return Success;
}
API int cuDriverGetVersion(int *v) {
  *v = 12080;
  return Success;
}
API int cuDeviceGetCount(int *n) {
  if (!initialised) return NotInitialized;
  *n = int(devices().size());
  return Success;
}

static bool valid(int d) { return d >= 0 && d < int(devices().size()); }

API int cuDeviceGet(int *d, int ordinal) {
  if (!initialised) return NotInitialized;
  if (!valid(ordinal)) return InvalidDevice;
  *d = ordinal;
  return Success;
}
API int cuDeviceGetName(char *s, int n, int d) {
  if (!valid(d)) return InvalidDevice;
  snprintf(s, size_t(n), "Simulated GPU");
  return Success;
}
API int cuDeviceGetUuid_v2(char *uuid, int d) {
  if (!valid(d)) return InvalidDevice;
  memcpy(uuid, uuid_of(devices()[size_t(d)]->number).data(), 16);
  return Success;
}
API int cuDeviceGetPCIBusId(char *s, int n, int d) {
  if (!valid(d)) return InvalidDevice;
  snprintf(s, size_t(n), "0000:%02X:00.0", unsigned(devices()[size_t(d)]->number) + 1);
  return Success;
}
API int cuDeviceTotalMem_v2(size_t *bytes, int d) {
  if (!valid(d)) return InvalidDevice;
  *bytes = devices()[size_t(d)]->capacity;
  return Success;
}
API int cuDeviceGetAttribute(int *v, int attribute, int d) {
  if (!valid(d)) return InvalidDevice;
  switch (attribute) {
  case 1: *v = 1024; break;        // threads of a block
  case 8: *v = 48 << 10; break;    // shared memory of a block
  case 10: *v = 32; break;         // warp
  case 16: *v = 4; break;          // multiprocessors
  case 33: *v = int(devices()[size_t(d)]->number) + 1; break;  // PCI bus
  case 41: *v = 1; break;          // unified addressing
  case 75: *v = capability() / 10; break;
  case 76: *v = capability() % 10; break;
  case 97: *v = 232448; break;     // shared memory of a block that asks for more
  case 115: *v = 1; break;         // stream-ordered allocation
  default: *v = 0;
  }
  return Success;
}
API int cuDeviceCanAccessPeer(int *can, int d, int peer) {
  if (!valid(d) || !valid(peer)) return InvalidDevice;
  *can = d != peer;
  return Success;
}

API int cuDevicePrimaryCtxRetain(Context **c, int d) {
  if (!initialised) return NotInitialized;
  if (!valid(d)) return InvalidDevice;
  Device &v = *devices()[size_t(d)];
  std::lock_guard<std::mutex> hold(v.mutex);
  v.primary.retained++;
  if (!v.primary.none) v.primary.none = new Stream(&v.primary, 0);
  *c = &v.primary;
  return Result(v.primary.failed.load());
}
API int cuDevicePrimaryCtxRelease_v2(int d) {
  if (!valid(d)) return InvalidDevice;
  Device &v = *devices()[size_t(d)];
  std::lock_guard<std::mutex> hold(v.mutex);
  if (!v.primary.retained) return InvalidContext;
  v.primary.retained--;
  return Success;
}
API int cuDevicePrimaryCtxGetState(int d, unsigned *flags, int *active) {
  if (!valid(d)) return InvalidDevice;
  *flags = 0;
  *active = devices()[size_t(d)]->primary.retained > 0;
  return Success;
}
API int cuDevicePrimaryCtxSetFlags_v2(int d, unsigned) { return valid(d) ? Success : InvalidDevice; }

API int cuCtxSetCurrent(Context *c) {
  if (!initialised) return NotInitialized;
  if (!stack.empty()) stack.pop_back();
  if (c) stack.push_back(c);
  return Success;
}
API int cuCtxGetCurrent(Context **c) {
  *c = current();
  return Success;
}
API int cuCtxPushCurrent_v2(Context *c) {
  if (!c) return InvalidContext;
  stack.push_back(c);
  return Success;
}
API int cuCtxPopCurrent_v2(Context **c) {
  if (stack.empty()) return InvalidContext;
  if (c) *c = stack.back();
  stack.pop_back();
  return Success;
}
API int cuCtxGetDevice(int *d) {
  Context *c;
  if (Result r = ready(&c)) return r;
  *d = c->device;
  return Success;
}
API int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return ready(nullptr);
}
API int cuCtxEnablePeerAccess(Context *peer, unsigned) { return peer ? ready(nullptr) : InvalidContext; }

API int cuGetErrorName(int r, const char **s) {
  switch (r) {
#define NAME(v, n) case v: *s = n; return Success;
    NAME(Success, "CUDA_SUCCESS")
    NAME(InvalidValue, "CUDA_ERROR_INVALID_VALUE")
    NAME(OutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY")
    NAME(NotInitialized, "CUDA_ERROR_NOT_INITIALIZED")
    NAME(NoDevice, "CUDA_ERROR_NO_DEVICE")
    NAME(InvalidDevice, "CUDA_ERROR_INVALID_DEVICE")
    NAME(InvalidContext, "CUDA_ERROR_INVALID_CONTEXT")
    NAME(NoBinaryForGpu, "CUDA_ERROR_NO_BINARY_FOR_GPU")
    NAME(EccUncorrectable, "CUDA_ERROR_ECC_UNCORRECTABLE")
    NAME(InvalidPtx, "CUDA_ERROR_INVALID_PTX")
    NAME(UnsupportedPtxVersion, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION")
    NAME(InvalidHandle, "CUDA_ERROR_INVALID_HANDLE")
    NAME(NotFound, "CUDA_ERROR_NOT_FOUND")
    NAME(NotReady, "CUDA_ERROR_NOT_READY")
    NAME(IllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS")
    NAME(LaunchOutOfResources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")
    NAME(MisalignedAddress, "CUDA_ERROR_MISALIGNED_ADDRESS")
    NAME(LaunchFailed, "CUDA_ERROR_LAUNCH_FAILED")
    NAME(NotSupported, "CUDA_ERROR_NOT_SUPPORTED")
    NAME(CaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED")
    NAME(CaptureUnmatched, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED")
    NAME(CaptureUnjoined, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED")
    NAME(CaptureImplicit, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT")
#undef NAME
  }
  *s = nullptr;
  return InvalidValue;
}
API int cuGetErrorString(int r, const char **s) {
  switch (r) {
  case OutOfMemory: *s = "out of memory"; return Success;
  case EccUncorrectable: *s = "uncorrectable ECC error encountered"; return Success;
  case LaunchFailed: *s = "unspecified launch failure"; return Success;
  case LaunchOutOfResources: *s = "too many resources requested for launch"; return Success;
  }
  return cuGetErrorName(r, s);
}
