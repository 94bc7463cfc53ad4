// Internal declarations of the simulated driver. It deliberately does not include cuda.h, so that a
// wrong prototype or constant in the trainer shows.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

namespace gpusim {

// Results, as in the CUDA driver API's CUresult.
enum Result : int {
  Success = 0, InvalidValue = 1, OutOfMemory = 2, NotInitialized = 3, NoDevice = 100, InvalidDevice = 101,
  InvalidContext = 201, NoBinaryForGpu = 209, EccUncorrectable = 214, InvalidPtx = 218, UnsupportedPtxVersion = 222,
  InvalidHandle = 400, NotFound = 500,
  NotReady = 600, IllegalAddress = 700, LaunchOutOfResources = 701, MisalignedAddress = 716, LaunchFailed = 719, NotSupported = 801,
  CaptureUnsupported = 900, CaptureUnmatched = 903, CaptureUnjoined = 904, CaptureImplicit = 906,
};

struct Stream;

// Work is one entry of a stream's queue or of a graph. It is skipped after the context has failed,
// unless it is a marker, such as an event.
struct Work {
  std::function<void()> run;
  bool marker = false;
};

struct Context {
  int device = 0;
  int retained = 0;
  std::atomic<int> failed{0};  // the first failure: every later call returns it, as the driver does
  Stream *none = nullptr;      // the stream that the null stream stands for
};

// Memory is an allocation for the interpreter, as in ptx/ptx.h.
struct Memory {
  uintptr_t address;
  size_t bytes;
  unsigned char *written;
};

struct Device {
  Context primary;
  size_t number = 0;  // index on the machine, if CUDA_VISIBLE_DEVICES hides some
  std::mutex mutex;
  size_t capacity = 0, used = 0;
  std::map<uintptr_t, size_t> pieces;  // allocations by address
  std::shared_ptr<const std::vector<Memory>> memory;  // the same for the interpreter, or null
};

// Graph holds the work that a capture has recorded, in the order of the calls. This is one of the
// orders that the streams and events allow.
struct Graph {
  std::vector<Work> work;
};

struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0, done = 0;  // counts
  double at = 0;                    // seconds, of the last completed record
  bool timing = true;
  std::shared_ptr<Graph> capture;   // set by a record during a capture
};

// Stream is a queue with its own thread, so that two streams run concurrently and a missing
// dependency shows.
struct Stream {
  explicit Stream(Context *c, unsigned flags);
  ~Stream();
  void push(Work w);     // or records, while the stream is captured
  void drain();          // waits for all pushed work
  bool idle();
  Context *context;
  unsigned flags;
  std::shared_ptr<Graph> capture;
  bool origin = false;   // of its capture

 private:
  void serve();
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Work> queue;
  bool busy = false, closing = false;
  std::thread thread;
};

struct Kernel {
  std::string name;
  std::vector<size_t> sizes;  // of the parameters
  void (*call)(void **) = nullptr;
  const void *ptx = nullptr;  // for the interpreter
  unsigned most_threads = 1024;
  int most_shared = 48 << 10;  // dynamic
  Context *context = nullptr;
};

struct Module {
  std::map<std::string, Kernel> kernels;
};

// driver.cc
extern bool initialised;
std::vector<std::unique_ptr<Device>> &devices();
Context *current();
// ready returns the result for a call that needs a current context: the context's failure.
Result ready(Context **c);
void fail(Context *c, Result r);
double now();

// live holds the handles of one kind. Use of a destroyed handle is an error.
template <class T> struct Live {
  std::mutex mutex;
  std::map<void *, std::shared_ptr<T>> all;
  T *add(std::unique_ptr<T> t) {
    std::lock_guard<std::mutex> hold(mutex);
    T *p = t.get();
    all[p] = std::move(t);
    return p;
  }
  bool has(void *p) {
    std::lock_guard<std::mutex> hold(mutex);
    return all.count(p) != 0;
  }
  std::shared_ptr<T> find(void *p) {
    std::lock_guard<std::mutex> hold(mutex);
    auto it = all.find(p);
    return it == all.end() ? nullptr : it->second;
  }
  std::shared_ptr<T> take(void *p) {
    std::lock_guard<std::mutex> hold(mutex);
    auto it = all.find(p);
    if (it == all.end()) return nullptr;
    auto t = std::move(it->second);
    all.erase(it);
    return t;
  }
};
extern Live<Stream> streams;
extern Live<Event> events;
extern Live<Module> modules;

// stream_of returns the stream of a handle, which may be the null stream.
Result stream_of(void *handle, Stream **s);

// target.cc
int capability();  // compute capability times ten
// takes reports whether the driver accepts a module's text, and if not, the reason.
Result takes(const std::string &ptx, std::string *why);

// memory.cc
bool on_device(uintptr_t p, size_t n);
bool pinned(const void *p, size_t n);
// memory_of returns the allocations of a device, sorted by address.
std::shared_ptr<const std::vector<Memory>> memory_of(Device *d);

// module.cc: interprets reports whether the interpreter runs the kernels.
bool interprets();

// inject.cc: what GPUSIM_FAIL asks for.
enum class Fate { Fine, Refused, Fails, Lost, Hangs };
bool allocation_fails();
bool ptx_is_new(double version);
bool pinning_fails(size_t n);
Fate fate_of(const std::string &kernel);

}  // namespace gpusim
