// Call ddpb_lt_find with the real cuBLASLt up to the heuristic, which needs a GPU: lt LIBRARY.
// Print each status other than 0, and the number of calls. Compare the sizes of all attributes.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "calls.h"

static int calls, failures, epilogue;
static ddpb_lt real;

static int count(const char *what, int number, int status) {
  calls++;
  if (status) {
    failures++;
    printf("%s %d: status %d\n", what, number, status);
  }
  return status;
}
static int desc_create(void **d, int compute, int scale) { return count("desc_create", compute, real.desc_create(d, compute, scale)); }
static int desc_set(void *d, int attribute, const void *v, size_t n) {
  if (attribute == 7) epilogue = *(const int *)v;
  return count("desc_set", attribute, real.desc_set(d, attribute, v, n));
}
static int layout_create(void **l, int type, uint64_t rows, uint64_t cols, int64_t ld) { return count("layout_create", type, real.layout_create(l, type, rows, cols, ld)); }
static int preference_set(void *p, int attribute, const void *v, size_t n) { return count("preference_set", attribute, real.preference_set(p, attribute, v, n)); }

static int (*desc_get)(void *, int, void *, size_t, size_t *);

// heuristic stands for cuBLASLt's, which needs a GPU. It reads the attributes back.
static int heuristic(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int most, void *results, int *found) {
  (void)handle, (void)a, (void)b, (void)c, (void)d, (void)preference, (void)most, (void)results;
  static const struct { int attribute; size_t size; } sizes[] = {{3, 4}, {4, 4}, {7, 4}, {8, 8}, {11, 8}, {12, 8}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    char value[8] = {0};
    size_t size = 0;
    count("desc_get size of", sizes[i].attribute, desc_get(desc, sizes[i].attribute, NULL, 0, &size));
    if (size != sizes[i].size) {
      failures++, printf("attribute %d has %zu bytes, want %zu\n", sizes[i].attribute, size, sizes[i].size);
      continue;
    }
    count("desc_get", sizes[i].attribute, desc_get(desc, sizes[i].attribute, value, size, &size));
    if (sizes[i].attribute == 7 && epilogue && *(int *)value != epilogue) failures++, printf("epilogue %d, want %d\n", *(int *)value, epilogue);
  }
  *found = 0;
  return 15;
}

int main(int argc, char **argv) {
  static const char *names[] = {"GetVersion", "Create", "Destroy", "MatmulDescCreate", "MatmulDescDestroy", "MatmulDescSetAttribute", "MatrixLayoutCreate", "MatrixLayoutDestroy",
                                "MatmulPreferenceCreate", "MatmulPreferenceDestroy", "MatmulPreferenceSetAttribute", "MatmulAlgoGetHeuristic", "Matmul"};
  _Static_assert(sizeof(ddpb_lt_result) == 96, "cublasLtMatmulHeuristicResult_t");
  void *h = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!h) return printf("dlopen: %s\n", argc == 2 ? dlerror() : "no library"), 2;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char symbol[64] = "cublasLt";
    if (!(((void **)&real)[i] = dlsym(h, strcat(symbol, names[i])))) failures++, printf("no %s\n", symbol);
  }
  *(void **)&desc_get = dlsym(h, "cublasLtMatmulDescGetAttribute");
  if (failures || !desc_get) return 1;
  ddpb_lt lt = real;
  lt.desc_create = desc_create, lt.desc_set = desc_set, lt.layout_create = layout_create, lt.preference_set = preference_set, lt.heuristic = heuristic;
  const uint64_t workspace = 32 << 20;
  const ddpb_lt_problem problems[] = {
      //  m     n      k      lda  ldb   ldd   ta tb bf nw bi ge sl su  alignments    workspace
      {3072, 65536, 768, 3072, 768, 3072, 0, 0, 1, 1, 1, 1, 0, 0, 256, 256, 256, workspace},  // forward, with bias and GELU
      {3072, 65536, 768, 3072, 768, 3072, 0, 0, 1, 1, 0, 1, 0, 0, 16, 16, 16, workspace},     // forward, with GELU
      {3072, 65536, 768, 768, 768, 3072, 1, 0, 1, 1, 0, 0, 1, 0, 16, 32, 64, workspace},      // gradient through GELU
      {768, 2304, 65536, 768, 2304, 768, 0, 1, 1, 0, 0, 0, 0, 0, 256, 128, 16, workspace},    // gradient of weights
      {2304, 768, 65536, 2304, 768, 2304, 0, 1, 1, 0, 0, 0, 0, 1, 256, 256, 16, workspace},  // gradient of weights and biases
      {50304, 2668, 768, 768, 768, 50304, 1, 0, 1, 1, 0, 0, 0, 0, 256, 256, 256, workspace},  // output layer
      {7, 3, 5, 5, 5, 7, 1, 0, 0, 0, 1, 0, 0, 0, 4, 4, 4, workspace},                          // float32, unaligned
  };
  for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
    ddpb_lt_plan plan;
    epilogue = 0;
    int status = ddpb_lt_find(&lt, NULL, &problems[i], DDPB_LT_MAX_ALGORITHMS, &plan);
    if (status != 15 || plan.count) failures++, printf("problem %zu: status %d, found %d\n", i, status, plan.count);
  }
  if (ddpb_lt_version(&real) < 110000) failures++, printf("version %zu\n", ddpb_lt_version(&real));
  printf("%d calls, %d failures\n", calls, failures);
  return failures ? 1 : 0;
}
