// The cuBLASLt functions in use, and the state of a plan. Constants are from cublasLt.h and have
// been stable since CUDA 11.0.
#include <stddef.h>
#include <stdint.h>

typedef struct {
  size_t (*version)(void);
  int (*create)(void **handle);
  int (*destroy)(void *handle);
  int (*desc_create)(void **desc, int compute, int scale);
  int (*desc_destroy)(void *desc);
  int (*desc_set)(void *desc, int attribute, const void *value, size_t size);
  int (*layout_create)(void **layout, int type, uint64_t rows, uint64_t cols, int64_t ld);
  int (*layout_destroy)(void *layout);
  int (*preference_create)(void **preference);
  int (*preference_destroy)(void *preference);
  int (*preference_set)(void *preference, int attribute, const void *value, size_t size);
  int (*heuristic)(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int most, void *results, int *found);
  int (*matmul)(void *handle, void *desc, const void *alpha, const void *a, void *la, const void *b, void *lb, const void *beta, const void *c,
                void *lc, void *d, void *ld, const void *algo, void *workspace, size_t size, void *stream);
} ddpb_lt;

typedef struct {
  uint64_t algo[8];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
} ddpb_lt_result;

enum { DDPB_LT_MAX_ALGORITHMS = 8 };

typedef struct {
  const ddpb_lt *lt;
  void *handle, *desc, *a, *b, *d;
  int count;  // of usable algorithms, the one first that the heuristic considers the fastest
  ddpb_lt_result algorithms[DDPB_LT_MAX_ALGORITHMS];
} ddpb_lt_plan;

typedef struct {
  uint64_t m, n, k;  // of column-major matrices
  int64_t lda, ldb, ldd;
  int transposed_a, transposed_b, bf16, narrow, bias, gelu, slope, sum_a;
  uint32_t align_a, align_b, align_d;
  uint64_t workspace;
} ddpb_lt_problem;

size_t ddpb_lt_version(const ddpb_lt *lt);
int ddpb_lt_create(const ddpb_lt *lt, void **handle);
int ddpb_lt_destroy(const ddpb_lt *lt, void *handle);

// ddpb_lt_find stores a plan with at most this number of algorithms. If there is one, the plan must be freed.
int ddpb_lt_find(const ddpb_lt *lt, void *handle, const ddpb_lt_problem *p, int most, ddpb_lt_plan *plan);
void ddpb_lt_free(ddpb_lt_plan *plan);
int ddpb_lt_run(const ddpb_lt_plan *plan, int algorithm, uintptr_t a, uintptr_t b, uintptr_t d, uintptr_t bias, uintptr_t pre, float beta, uintptr_t workspace, uintptr_t stream);
