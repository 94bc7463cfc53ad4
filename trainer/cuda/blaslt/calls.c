//go:build cuda

#include "calls.h"

enum { FLOAT32 = 0, BFLOAT16 = 14, COMPUTE_32F = 68 };
enum { DESC_TRANSA = 3, DESC_TRANSB = 4, DESC_EPILOGUE = 7, DESC_BIAS_POINTER = 8, DESC_AUX_POINTER = 11, DESC_AUX_LD = 12 };
enum { EPILOGUE_BIAS = 4, EPILOGUE_GELU_AUX = 160, EPILOGUE_DGELU = 192, EPILOGUE_BGRADA = 256 };
enum { PREF_MAX_WORKSPACE = 1, PREF_REDUCTION = 3, PREF_ALIGN_A = 5, PREF_ALIGN_B = 6, PREF_ALIGN_C = 7, PREF_ALIGN_D = 8 };
enum { INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum { REDUCTION_COMPUTE_TYPE = 2 };  // split-K partial sums are reduced in the workspace, in order

size_t ddpb_lt_version(const ddpb_lt *lt) { return lt->version(); }
int ddpb_lt_create(const ddpb_lt *lt, void **handle) { return lt->create(handle); }
int ddpb_lt_destroy(const ddpb_lt *lt, void *handle) { return lt->destroy(handle); }

#define TRY(call) \
  do { \
    int status = (call); \
    if (status) { \
      result = status; \
      goto done; \
    } \
  } while (0)

int ddpb_lt_find(const ddpb_lt *lt, void *handle, const ddpb_lt_problem *p, int most, ddpb_lt_plan *plan) {
  int result = 0;
  int32_t yes = 1;
  uint32_t epilogue = (p->bias ? EPILOGUE_BIAS : 0) | (p->gelu ? EPILOGUE_GELU_AUX : 0) | (p->slope ? EPILOGUE_DGELU : 0) | (p->sum_a ? EPILOGUE_BGRADA : 0);
  uint32_t reduction = REDUCTION_COMPUTE_TYPE;
  int type = p->bf16 ? BFLOAT16 : FLOAT32;
  void *preference = NULL;
  *plan = (ddpb_lt_plan){.lt = lt, .handle = handle};
  TRY(lt->desc_create(&plan->desc, COMPUTE_32F, FLOAT32));
  if (p->transposed_a) TRY(lt->desc_set(plan->desc, DESC_TRANSA, &yes, sizeof yes));
  if (p->transposed_b) TRY(lt->desc_set(plan->desc, DESC_TRANSB, &yes, sizeof yes));
  if (epilogue) TRY(lt->desc_set(plan->desc, DESC_EPILOGUE, &epilogue, sizeof epilogue));
  uintptr_t aligned = 16;  // the heuristics depend on the alignment of these pointers; NULL would be aligned to any size
  if (p->bias || p->sum_a) TRY(lt->desc_set(plan->desc, DESC_BIAS_POINTER, &aligned, sizeof aligned));
  if (p->gelu || p->slope) {
    TRY(lt->desc_set(plan->desc, DESC_AUX_LD, &p->ldd, sizeof p->ldd));
    TRY(lt->desc_set(plan->desc, DESC_AUX_POINTER, &aligned, sizeof aligned));
  }
  TRY(lt->layout_create(&plan->a, type, p->transposed_a ? p->k : p->m, p->transposed_a ? p->m : p->k, p->lda));
  TRY(lt->layout_create(&plan->b, type, p->transposed_b ? p->n : p->k, p->transposed_b ? p->k : p->n, p->ldb));
  TRY(lt->layout_create(&plan->d, p->narrow ? BFLOAT16 : FLOAT32, p->m, p->n, p->ldd));
  TRY(lt->preference_create(&preference));
  TRY(lt->preference_set(preference, PREF_MAX_WORKSPACE, &p->workspace, sizeof p->workspace));
  TRY(lt->preference_set(preference, PREF_REDUCTION, &reduction, sizeof reduction));
  TRY(lt->preference_set(preference, PREF_ALIGN_A, &p->align_a, sizeof p->align_a));
  TRY(lt->preference_set(preference, PREF_ALIGN_B, &p->align_b, sizeof p->align_b));
  TRY(lt->preference_set(preference, PREF_ALIGN_C, &p->align_d, sizeof p->align_d));
  TRY(lt->preference_set(preference, PREF_ALIGN_D, &p->align_d, sizeof p->align_d));
  int n = 0;
  TRY(lt->heuristic(handle, plan->desc, plan->a, plan->b, plan->d, plan->d, preference, most, plan->algorithms, &n));
  for (int i = 0; i < n; i++)
    if (!plan->algorithms[i].state) plan->algorithms[plan->count++] = plan->algorithms[i];
done:
  if ((p->gelu || p->slope || p->sum_a) && result == INVALID_VALUE) result = NOT_SUPPORTED;  // this version of cuBLASLt does not support the epilogue
  if (preference) lt->preference_destroy(preference);
  if (!plan->count) ddpb_lt_free(plan);
  return result;
}

void ddpb_lt_free(ddpb_lt_plan *plan) {
  if (plan->d) plan->lt->layout_destroy(plan->d);
  if (plan->b) plan->lt->layout_destroy(plan->b);
  if (plan->a) plan->lt->layout_destroy(plan->a);
  if (plan->desc) plan->lt->desc_destroy(plan->desc);
}

int ddpb_lt_run(const ddpb_lt_plan *p, int algorithm, uintptr_t a, uintptr_t b, uintptr_t d, uintptr_t bias, uintptr_t pre, float beta, uintptr_t workspace,
                uintptr_t stream) {
  float alpha = 1;
  if (bias) {
    int status = p->lt->desc_set(p->desc, DESC_BIAS_POINTER, &bias, sizeof bias);
    if (status) return status;
  }
  if (pre) {
    int status = p->lt->desc_set(p->desc, DESC_AUX_POINTER, &pre, sizeof pre);
    if (status) return status;
  }
  return p->lt->matmul(p->handle, p->desc, &alpha, (const void *)a, p->a, (const void *)b, p->b, &beta, (const void *)d, p->d, (void *)d, p->d,
                       p->algorithms[algorithm].algo, (void *)workspace, p->algorithms[algorithm].workspace, (void *)stream);
}
