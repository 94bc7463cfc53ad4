// Streams, events, host functions, capture and graphs.
#include "sim.h"

namespace gpusim {

Stream::Stream(Context *c, unsigned f) : context(c), flags(f), thread([this] { serve(); }) {}

Stream::~Stream() {
  {
    std::lock_guard<std::mutex> hold(mutex);
    closing = true;
  }
  changed.notify_all();
  thread.join();
}

void Stream::push(Work w) {
  if (capture) {
    capture->work.push_back(std::move(w));
    return;
  }
  {
    std::lock_guard<std::mutex> hold(mutex);
    queue.push_back(std::move(w));
  }
  changed.notify_all();
}

void Stream::drain() {
  std::unique_lock<std::mutex> hold(mutex);
  changed.wait(hold, [this] { return queue.empty() && !busy; });
}

bool Stream::idle() {
  std::lock_guard<std::mutex> hold(mutex);
  return queue.empty() && !busy;
}

void Stream::serve() {
  std::unique_lock<std::mutex> hold(mutex);
  for (;;) {
    changed.wait(hold, [this] { return closing || !queue.empty(); });
    if (queue.empty()) return;
    Work w = std::move(queue.front());
    queue.pop_front();
    busy = true;
    hold.unlock();
    if (w.marker || !context->failed.load()) w.run();
    w.run = nullptr;
    hold.lock();
    busy = false;
    if (queue.empty()) changed.notify_all();
  }
}

Result stream_of(void *handle, Stream **s) {
  if (!handle) {
    Context *c = current();
    if (!c) return InvalidContext;
    *s = c->none;
    return Success;
  }
  if (!streams.has(handle)) return InvalidHandle;
  *s = static_cast<Stream *>(handle);
  return (*s)->context == current() ? Success : InvalidContext;
}

}  // namespace gpusim

using namespace gpusim;

API int cuStreamCreateWithPriority(void **s, unsigned flags, int) {
  Context *c;
  if (Result r = ready(&c)) return r;
  *s = streams.add(std::make_unique<Stream>(c, flags));
  return Success;
}
API int cuStreamCreate(void **s, unsigned flags) { return cuStreamCreateWithPriority(s, flags, 0); }
API int cuStreamDestroy_v2(void *s) { return streams.take(s) ? Success : InvalidHandle; }
API int cuStreamGetFlags(void *h, unsigned *flags) {
  Stream *s;
  if (Result r = stream_of(h, &s)) return r;
  *flags = s->flags;
  return Success;
}
API int cuStreamSynchronize(void *h) {
  Stream *s;
  Context *c;
  if (Result r = ready(&c)) return r;
  if (Result r = stream_of(h, &s)) return r;
  if (s->capture) return CaptureUnsupported;
  s->drain();
  return Result(c->failed.load());
}
API int cuStreamQuery(void *h) {
  Stream *s;
  if (Result r = ready(nullptr)) return r;
  if (Result r = stream_of(h, &s)) return r;
  return s->idle() ? Success : NotReady;
}
API int cuCtxSynchronize() {
  Context *c;
  if (Result r = ready(&c)) return r;
  std::vector<Stream *> all{c->none};
  {
    std::lock_guard<std::mutex> hold(streams.mutex);
    for (auto &s : streams.all)
      if (s.second->context == c) all.push_back(s.second.get());
  }
  for (Stream *s : all) s->drain();
  return Result(c->failed.load());
}
API int cuLaunchHostFunc(void *h, void (*fn)(void *), void *data) {
  Stream *s;
  if (Result r = ready(nullptr)) return r;
  if (Result r = stream_of(h, &s)) return r;
  s->push({[=] { fn(data); }});
  return Success;
}

API int cuEventCreate(void **e, unsigned flags) {
  if (Result r = ready(nullptr)) return r;
  auto v = std::make_unique<Event>();
  v->timing = !(flags & 2);
  *e = events.add(std::move(v));
  return Success;
}
API int cuEventDestroy_v2(void *e) { return events.take(e) ? Success : InvalidHandle; }

API int cuEventRecord(void *h, void *stream) {
  Stream *s;
  if (Result r = ready(nullptr)) return r;
  auto e = events.find(h);  // pending work keeps an event that is destroyed
  if (!e) return InvalidHandle;
  if (Result r = stream_of(stream, &s)) return r;
  std::lock_guard<std::mutex> hold(e->mutex);
  e->capture = s->capture;
  if (s->capture) return Success;  // an edge of the graph, no work
  uint64_t number = ++e->recorded;
  s->push({[=] {
    std::lock_guard<std::mutex> lock(e->mutex);
    e->done = number;
    e->at = now();
    e->changed.notify_all();
  }, true});
  return Success;
}
API int cuStreamWaitEvent(void *stream, void *h, unsigned) {
  Stream *s;
  if (Result r = ready(nullptr)) return r;
  auto e = events.find(h);  // pending work keeps an event that is destroyed
  if (!e) return InvalidHandle;
  if (Result r = stream_of(stream, &s)) return r;
  std::lock_guard<std::mutex> hold(e->mutex);
  if (e->capture) {  // the waiting stream joins the capture
    if (s->capture && s->capture != e->capture) return CaptureUnsupported;
    s->capture = e->capture;
    return Success;
  }
  if (s->capture) return CaptureUnsupported;  // CUDA_ERROR_STREAM_CAPTURE_ISOLATION there
  uint64_t number = e->recorded;
  s->push({[=] {
    std::unique_lock<std::mutex> lock(e->mutex);
    e->changed.wait(lock, [&] { return e->done >= number; });
  }, true});
  return Success;
}
API int cuEventQuery(void *h) {
  if (Result r = ready(nullptr)) return r;
  auto e = events.find(h);
  if (!e) return InvalidHandle;
  std::lock_guard<std::mutex> hold(e->mutex);
  return e->done >= e->recorded ? Success : NotReady;
}
API int cuEventSynchronize(void *h) {
  Context *c;
  if (Result r = ready(&c)) return r;
  auto e = events.find(h);
  if (!e) return InvalidHandle;
  std::unique_lock<std::mutex> hold(e->mutex);
  uint64_t number = e->recorded;
  e->changed.wait(hold, [&] { return e->done >= number; });
  return Result(c->failed.load());
}
API int cuEventElapsedTime(float *ms, void *from, void *to) {
  if (Result r = ready(nullptr)) return r;
  auto a = events.find(from), b = events.find(to);
  if (!a || !b) return InvalidHandle;
  std::scoped_lock hold(a->mutex, b->mutex);
  if (!a->timing || !b->timing || !a->recorded || !b->recorded) return InvalidHandle;
  if (a->done < a->recorded || b->done < b->recorded) return NotReady;
  *ms = float((b->at - a->at) * 1e3);
  return Success;
}
API int cuEventElapsedTime_v2(float *ms, void *from, void *to) { return cuEventElapsedTime(ms, from, to); }

API int cuStreamBeginCapture_v2(void *h, int) {
  if (!h) return CaptureImplicit;
  Stream *s;
  if (Result r = ready(nullptr)) return r;
  if (Result r = stream_of(h, &s)) return r;
  if (s->capture) return CaptureUnsupported;
  s->capture = std::make_shared<Graph>();
  s->origin = true;
  return Success;
}
API int cuStreamIsCapturing(void *h, int *status) {
  Stream *s;
  if (Result r = stream_of(h, &s)) return r;
  *status = s->capture != nullptr;
  return Success;
}
API int cuStreamEndCapture(void *h, void **g) {
  Stream *s;
  if (Result r = stream_of(h, &s)) return r;
  if (!s->capture || !s->origin) return CaptureUnmatched;
  std::shared_ptr<Graph> done = s->capture;
  {
    std::lock_guard<std::mutex> hold(streams.mutex);
    for (auto &other : streams.all)
      if (other.second->capture == done) other.second->capture = nullptr;
  }
  {
    std::lock_guard<std::mutex> hold(events.mutex);
    for (auto &e : events.all)
      if (e.second->capture == done) e.second->capture = nullptr;
  }
  s->origin = false;
  *g = new std::shared_ptr<Graph>(done);
  return Success;
}
API int cuGraphInstantiateWithFlags(void **exec, void *g, unsigned long long) {
  if (Result r = ready(nullptr)) return r;
  *exec = new std::shared_ptr<Graph>(*static_cast<std::shared_ptr<Graph> *>(g));
  return Success;
}
API int cuGraphLaunch(void *exec, void *h) {
  Stream *s;
  if (Result r = ready(nullptr)) return r;
  if (Result r = stream_of(h, &s)) return r;
  std::shared_ptr<Graph> g = *static_cast<std::shared_ptr<Graph> *>(exec);
  Context *c = s->context;
  Fate fate = fate_of("graph");
  s->push({[=] {
    if (fate == Fate::Lost) fail(c, EccUncorrectable);
    if (fate == Fate::Fails) fail(c, LaunchFailed);
    for (const Work &w : g->work)
      if (w.marker || !c->failed.load()) w.run();
  }});
  return Success;
}
API int cuGraphDestroy(void *g) {
  delete static_cast<std::shared_ptr<Graph> *>(g);
  return Success;
}
API int cuGraphExecDestroy(void *g) {
  delete static_cast<std::shared_ptr<Graph> *>(g);
  return Success;
}
