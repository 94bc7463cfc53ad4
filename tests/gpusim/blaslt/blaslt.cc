// A libcublasLt with the functions that the trainer calls. Matrices are column-major, as in
// cuBLASLt. Sums are in float32, over k in ascending order. It rejects everything that the trainer
// does not use: an unknown attribute, a pointer with less alignment than the heuristics were given,
// and a workspace that is too small. GELU is inexact in float32. With GPUSIM_ALGORITHMS=differ, the
// second algorithm sums in descending order.
#include <dlfcn.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

namespace {

// From cublas_api.h, cublasLt.h and library_types.h.
enum Status { Success = 0, NotInitialized = 1, InvalidValue = 7, ExecutionFailed = 13, NotSupported = 15 };
enum { Real32 = 0, RealBF16 = 14 };
enum { Compute32 = 68 };
enum { DescTransA = 3, DescTransB = 4, DescEpilogue = 7, DescBias = 8, DescAux = 11, DescAuxLd = 12 };
enum { EpilogueDefault = 1, EpilogueBias = 4, EpilogueGeluAux = 160, EpilogueDGelu = 192, EpilogueBGradA = 256 };
enum { PrefWorkspace = 1, PrefReduction = 3, PrefAlignA = 5, PrefAlignD = 8 };

struct Handle { int device; };
struct Desc {
  int32_t transposed[2] = {0, 0};
  uint32_t epilogue = EpilogueDefault;
  const void *bias = nullptr;  // of the type of the result, like the argument of GELU; or the gradient of a bias
  void *aux = nullptr;
  int64_t aux_ld = 0;
  bool has_bias() const { return epilogue & EpilogueBias; }
  bool has_gelu() const { return (epilogue & EpilogueGeluAux) == EpilogueGeluAux; }
  bool has_gelu_gradient() const { return epilogue == EpilogueDGelu; }
  bool has_bias_gradient() const { return epilogue == EpilogueBGradA; }  // stores the sums of A over k as the bias
  bool uses_aux() const { return has_gelu() || has_gelu_gradient(); }
};
struct Layout {
  uint32_t type;
  uint64_t rows, cols;
  int64_t ld;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t align[4] = {256, 256, 256, 256};
};
struct Algo {
  uint64_t number, workspace;
  uint32_t align[4];
  uint64_t shape[3];
  uint64_t rest;
};
static_assert(sizeof(Algo) == 64, "cublasLtMatmulAlgo_t");
struct Result {
  Algo algo;
  size_t workspace;
  int32_t state;
  float waves;
  int32_t reserved[4];
};
static_assert(sizeof(Result) == 96, "cublasLtMatmulHeuristicResult_t");

struct Job {
  Desc desc;
  float alpha, beta;
  const void *a, *b;
  const void *c;
  void *d;
  Layout la, lb, lc, ld;
  bool descending;
  bool once;
};

float number(const void *p, uint32_t type, size_t i) {
  if (type == Real32) return static_cast<const float *>(p)[i];
  uint32_t bits = uint32_t(static_cast<const uint16_t *>(p)[i]) << 16;
  float v;
  memcpy(&v, &bits, 4);
  return v;
}

void put(void *p, uint32_t type, size_t i, float v) {
  if (type == Real32) {
    static_cast<float *>(p)[i] = v;
    return;
  }
  uint32_t bits;
  memcpy(&bits, &v, 4);
  static_cast<uint16_t *>(p)[i] = v != v ? 0x7fff : uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// gelu_tanh returns the tanh of GELU. For a result in float32 it has an error, as on a GPU: NVIDIA does not
// document the accuracy of this epilogue, and tanh.approx.f32 has 2^-11. So a test fails if the
// trainer uses the epilogue for such a result.
float gelu_tanh(float x, uint32_t type) {
  float t = tanhf(0.7978845608f * (x + 0.044715f * x * x * x));
  return type == Real32 ? t * (1 + 1.0f / 2048) : t;
}

size_t inner(const Job &j) { return j.desc.transposed[0] ? j.la.rows : j.la.cols; }

void multiply(void *p) {
  Job *j = static_cast<Job *>(p);
  size_t m = j->ld.rows, n = j->ld.cols, k = inner(*j);
  std::vector<float> a(k * m), sums(m);  // a(l, i), i fastest
  for (size_t l = 0; l < k; l++)
    for (size_t i = 0; i < m; i++)
      a[l * m + i] = number(j->a, j->la.type, j->desc.transposed[0] ? i * size_t(j->la.ld) + l : l * size_t(j->la.ld) + i);
  for (size_t col = 0; col < n; col++) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (size_t step = 0; step < k; step++) {
      size_t l = j->descending ? k - 1 - step : step;
      float b = number(j->b, j->lb.type, j->desc.transposed[1] ? l * size_t(j->lb.ld) + col : col * size_t(j->lb.ld) + l);
      const float *row = &a[l * m];
      for (size_t i = 0; i < m; i++) sums[i] += row[i] * b;
    }
    for (size_t i = 0; i < m; i++) {
      float v = j->alpha * sums[i];
      if (j->beta != 0) v += j->beta * number(j->c, j->lc.type, col * size_t(j->lc.ld) + i);
      if (j->desc.has_bias()) v += number(j->desc.bias, j->ld.type, i);
      if (j->desc.has_gelu()) {
        put(j->desc.aux, j->ld.type, col * size_t(j->desc.aux_ld) + i, v);
        v = 0.5f * v * (1 + gelu_tanh(v, j->ld.type));
      }
      if (j->desc.has_gelu_gradient()) {
        float x = number(j->desc.aux, j->ld.type, col * size_t(j->desc.aux_ld) + i), t = gelu_tanh(x, j->ld.type);
        v *= 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 0.134145f * x * x);
      }
      put(j->d, j->ld.type, col * size_t(j->ld.ld) + i, v);
    }
  }
  for (size_t i = 0; i < m && j->desc.has_bias_gradient(); i++) {
    float sum = 0;
    for (size_t l = k; l-- > 0;) sum += a[l * m + i];  // not in the order of the kernel
    put(const_cast<void *>(j->desc.bias), j->ld.type, i, sum);
  }
  if (j->once) delete j;
}

// fit reports whether the descriptors match each other.
bool fit(const Desc &t, const Layout &a, const Layout &b, const Layout &c, const Layout &d) {
  uint64_t m = t.transposed[0] ? a.cols : a.rows, k = t.transposed[0] ? a.rows : a.cols;
  uint64_t n = t.transposed[1] ? b.rows : b.cols, k2 = t.transposed[1] ? b.cols : b.rows;
  for (const Layout *l : {&a, &b, &c, &d})
    if (l->ld < int64_t(l->rows) || !l->rows || !l->cols) return false;
  return k == k2 && d.rows == m && d.cols == n && c.rows == m && c.cols == n && a.type == b.type && c.type == d.type && (d.type == Real32 || a.type == RealBF16);
}

template <class F> F driver(const char *name) { return reinterpret_cast<F>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), name)); }

}  // namespace

API size_t cublasLtGetVersion() { return 120600; }
API int cublasLtCreate(Handle **h) {
  auto current = driver<int (*)(int *)>("cuCtxGetDevice");
  *h = new Handle;
  if (current(&(*h)->device) != 0) return NotInitialized;
  return Success;
}
API int cublasLtDestroy(Handle *h) {
  delete h;
  return Success;
}
API int cublasLtMatmulDescCreate(Desc **d, int compute, int scale) {
  if (compute != Compute32 || scale != Real32) return NotSupported;
  *d = new Desc;
  return Success;
}
API int cublasLtMatmulDescDestroy(Desc *d) {
  delete d;
  return Success;
}
API int cublasLtMatmulDescSetAttribute(Desc *d, int attribute, const void *v, size_t n) {
  if (attribute == DescTransA && n == 4) memcpy(&d->transposed[0], v, 4);
  else if (attribute == DescTransB && n == 4) memcpy(&d->transposed[1], v, 4);
  else if (attribute == DescEpilogue && n == 4) memcpy(&d->epilogue, v, 4);
  else if (attribute == DescBias && n == 8) memcpy(&d->bias, v, 8);
  else if (attribute == DescAux && n == 8) memcpy(&d->aux, v, 8);
  else if (attribute == DescAuxLd && n == 8) memcpy(&d->aux_ld, v, 8);
  else return InvalidValue;
  return Success;
}
API int cublasLtMatrixLayoutCreate(Layout **l, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  if (type != Real32 && type != RealBF16) return NotSupported;
  *l = new Layout{uint32_t(type), rows, cols, ld};
  return Success;
}
API int cublasLtMatrixLayoutDestroy(Layout *l) {
  delete l;
  return Success;
}
API int cublasLtMatmulPreferenceCreate(Preference **p) {
  *p = new Preference;
  return Success;
}
API int cublasLtMatmulPreferenceDestroy(Preference *p) {
  delete p;
  return Success;
}
API int cublasLtMatmulPreferenceSetAttribute(Preference *p, int attribute, const void *v, size_t n) {
  if (attribute == PrefWorkspace && n == 8) memcpy(&p->workspace, v, 8);
  else if (attribute == PrefReduction && n == 4) return Success;
  else if (attribute >= PrefAlignA && attribute <= PrefAlignD && n == 4) memcpy(&p->align[attribute - PrefAlignA], v, 4);
  else return InvalidValue;
  return Success;
}
API int cublasLtMatmulAlgoGetHeuristic(Handle *h, Desc *t, Layout *a, Layout *b, Layout *c, Layout *d, Preference *p, int most, Result *results, int *n) {
  *n = 0;
  if (!h || most < 1 || !fit(*t, *a, *b, *c, *d)) return InvalidValue;
  const char *epilogues = getenv("GPUSIM_EPILOGUES");
  bool known = t->has_gelu_gradient() || (t->has_bias_gradient() && !t->transposed[0] && a->type == RealBF16 && d->type == Real32) || (!(t->epilogue & ~uint32_t(EpilogueBias | EpilogueGeluAux)) && (t->has_bias() || t->has_gelu()));
  if (t->epilogue != EpilogueDefault && (!known || (epilogues && !strcmp(epilogues, "none")))) return NotSupported;
  if (t->epilogue != EpilogueDefault && t->uses_aux() && (t->aux_ld % 8 || t->aux_ld < int64_t(d->rows) || !t->aux || uintptr_t(t->aux) % 16)) return InvalidValue;
  if (t->epilogue != EpilogueDefault && (t->has_bias() || t->has_bias_gradient()) && (!t->bias || uintptr_t(t->bias) % 16)) return InvalidValue;  // NULL would promise any alignment
  for (; *n < most && *n < 3; ++*n) {
    uint64_t room = *n == 0 ? 1 << 20 : 0;
    Result &r = results[*n];
    memset(&r, 0, sizeof r);
    r.algo.number = uint64_t(*n) + 1;
    r.algo.workspace = r.workspace = room <= p->workspace ? room : 0;
    memcpy(r.algo.align, p->align, sizeof r.algo.align);
    r.algo.shape[0] = d->rows, r.algo.shape[1] = d->cols, r.algo.shape[2] = t->transposed[0] ? a->rows : a->cols;
    r.waves = t->has_bias_gradient() && epilogues && !strcmp(epilogues, "half") ? 0.5f : 1;
  }
  return Success;
}
API int cublasLtMatmul(Handle *h, Desc *t, const float *alpha, const void *a, Layout *la, const void *b, Layout *lb, const float *beta, const void *c, Layout *lc,
                       void *d, Layout *ld, const Algo *algo, void *, size_t workspace, void *stream) {
  if (!h || !algo || !fit(*t, *la, *lb, *lc, *ld)) return InvalidValue;
  if (algo->number < 1 || algo->number > 3 || workspace < algo->workspace) return InvalidValue;
  const char *differ = getenv("GPUSIM_ALGORITHMS");
  const void *at[4] = {a, b, c, d};
  for (int i = 0; i < 4; i++)
    if (uintptr_t(at[i]) % algo->align[i]) return NotSupported;
  auto *j = new Job{*t, *alpha, *beta, a, b, c, d, *la, *lb, *lc, *ld, algo->number == 2 && differ && !strcmp(differ, "differ"), true};
  if (algo->shape[0] != ld->rows || algo->shape[1] != ld->cols || algo->shape[2] != inner(*j)) {
    delete j;
    return InvalidValue;
  }
  bool ready = t->epilogue == EpilogueDefault || ((!(t->has_bias() || t->has_bias_gradient()) || (t->bias && uintptr_t(t->bias) % 16 == 0)) && (!t->has_bias_gradient() || *beta == 0) && (!t->uses_aux() || (t->aux && uintptr_t(t->aux) % 16 == 0)));
  if (!ready) {
    delete j;
    return InvalidValue;
  }
  int capturing = 0;
  if (driver<int (*)(void *, int *)>("cuStreamIsCapturing")(stream, &capturing) == 0 && capturing) j->once = false;
  auto launch = driver<int (*)(void *, void (*)(void *), void *)>("cuLaunchHostFunc");
  return launch(stream, multiply, j) == 0 ? Success : ExecutionFailed;
}
