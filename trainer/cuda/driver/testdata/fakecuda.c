/* A fake libcuda.so.1 for tests of package driver. Its memory is host memory, it has two kernels, and
 * each call runs synchronously. It defines its own types, so that a wrong prototype in ddpbatch's
 * cuda.h fails a test. FAKECUDA_VERSION and FAKECUDA_INIT are its version and the result of cuInit;
 * FAKECUDA_MEMORY is the memory of a GPU in bytes. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int R;
typedef unsigned long long P;
typedef unsigned int U;
enum { OK = 0, BAD_VALUE = 1, NO_MEMORY = 2, BAD_DEVICE = 101, BAD_IMAGE = 218, NO_CONTEXT = 201, NOT_FOUND = 500, CAPTURING = 900, UNMATCHED = 903 };

typedef struct { int device, refs; } context;
static context contexts[2] = {{0, 0}, {1, 0}};
static __thread context *current;
#define NEED_CONTEXT() if (!current) return NO_CONTEXT

static long number(const char *name, long otherwise) {
	const char *v = getenv(name);
	return v ? atol(v) : otherwise;
}

R cuInit(U flags) { return flags ? BAD_VALUE : number("FAKECUDA_INIT", OK); }
R cuDriverGetVersion(int *v) { *v = number("FAKECUDA_VERSION", 12080); return OK; }
R cuGetErrorName(R e, const char **s) {
	*s = e == NO_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : e == NO_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT" : e == BAD_IMAGE ? "CUDA_ERROR_INVALID_PTX" : "CUDA_ERROR_FAKE";
	return OK;
}
R cuGetErrorString(R e, const char **s) { *s = e == NO_MEMORY ? "out of memory" : "fake"; return OK; }

R cuDeviceGetCount(int *n) { *n = 2; return OK; }
R cuDeviceGet(int *d, int i) { if (i < 0 || i > 1) return BAD_DEVICE; *d = i; return OK; }
R cuDeviceGetName(char *s, int n, int d) { snprintf(s, n, d ? "Fake H100 MIG 1g.10gb" : "Fake H100"); return OK; }
R cuDeviceGetUuid_v2(unsigned char *id, int d) { for (int i = 0; i < 16; i++) id[i] = i + d; return OK; }
R cuDeviceTotalMem_v2(size_t *n, int d) { (void)d; *n = number("FAKECUDA_MEMORY", 1 << 30); return OK; }
R cuDeviceGetAttribute(int *v, int a, int d) { (void)d; *v = a == 75 ? 9 : a == 16 ? 132 : a == 97 ? 232448 : 0; return OK; }
R cuDeviceGetPCIBusId(char *s, int n, int d) { snprintf(s, n, "0000:3B:0%d.0", d); return OK; }
R cuDevicePrimaryCtxRetain(context **c, int d) { *c = &contexts[d]; contexts[d].refs++; return OK; }
R cuDevicePrimaryCtxRelease_v2(int d) { if (!contexts[d].refs) return NO_CONTEXT; contexts[d].refs--; return OK; }
R cuCtxSetCurrent(context *c) { current = c; return OK; }
R cuCtxGetCurrent(context **c) { *c = current; return OK; }

static size_t used;
R cuMemGetInfo_v2(size_t *avail, size_t *total) {
	NEED_CONTEXT();
	*total = number("FAKECUDA_MEMORY", 1 << 30);
	*avail = *total - used;
	return OK;
}
R cuMemAlloc_v2(P *p, size_t n) {
	NEED_CONTEXT();
	if (!n) return BAD_VALUE;
	if (n > (size_t)number("FAKECUDA_MEMORY", 1 << 30) - used) return NO_MEMORY;
	size_t *block = aligned_alloc(512, (n + 1023) / 512 * 512);
	*block = n;
	used += n;
	*p = (P)(uintptr_t)block + 512;
	return OK;
}
R cuMemFree_v2(P p) { NEED_CONTEXT(); size_t *block = (size_t *)(uintptr_t)(p - 512); used -= *block; free(block); return OK; }
R cuMemHostAlloc(void **p, size_t n, U flags) { NEED_CONTEXT(); if (flags != 1) return BAD_VALUE; *p = malloc(n); return OK; }
R cuMemFreeHost(void *p) { free(p); return OK; }
R cuMemcpyHtoD_v2(P d, const void *s, size_t n) { NEED_CONTEXT(); memcpy((void *)(uintptr_t)d, s, n); return OK; }
R cuMemcpyDtoH_v2(void *d, P s, size_t n) { NEED_CONTEXT(); memcpy(d, (void *)(uintptr_t)s, n); return OK; }
R cuMemcpyHtoDAsync_v2(P d, const void *s, size_t n, void *st) { (void)st; return cuMemcpyHtoD_v2(d, s, n); }
R cuMemcpyDtoHAsync_v2(void *d, P s, size_t n, void *st) { (void)st; return cuMemcpyDtoH_v2(d, s, n); }
R cuMemcpyAsync(P d, P s, size_t n, void *st) { (void)st; NEED_CONTEXT(); memmove((void *)(uintptr_t)d, (void *)(uintptr_t)s, n); return OK; }
R cuMemsetD8Async(P d, unsigned char v, size_t n, void *s) { (void)s; NEED_CONTEXT(); memset((void *)(uintptr_t)d, v, n); return OK; }
R cuMemsetD32Async(P d, U v, size_t n, void *s) { (void)s; NEED_CONTEXT(); for (size_t i = 0; i < n; i++) ((U *)(uintptr_t)d)[i] = v; return OK; }

/* kernels */
typedef struct { const char *name; int n; size_t size[4]; void (*run)(U threads, void **args); int shared; } kernel;
static void axpy(U threads, void **a) { /* y[i] += s * x[i] for i < n */
	float *y = *(float **)a[0], *x = *(float **)a[1], s = *(float *)a[2];
	for (int i = 0; i < (int)threads && i < *(int *)a[3]; i++) y[i] += s * x[i];
}
typedef struct { char tag; double v[16]; } large;
static void sum(U threads, void **a) { /* *out = the sum of a struct's elements */
	(void)threads;
	large *l = a[1];
	double t = l->tag;
	for (int i = 0; i < 16; i++) t += l->v[i];
	**(double **)a[0] = t;
}
static kernel kernels[] = {{"axpy", 4, {8, 8, 4, 4}, axpy, 49152}, {"sum", 2, {8, sizeof(large)}, sum, 49152}};

R cuModuleLoadDataEx(char **m, const char *text, U n, const int *options, void **values) {
	NEED_CONTEXT();
	if (strstr(text, "wrong")) {
		for (U i = 0; i + 1 < n; i++)
			if (options[i] == 5 && options[i + 1] == 6)
				snprintf(values[i], (size_t)values[i + 1], "ptxas application ptx input, line 3; fatal: syntax error\n");
		return BAD_IMAGE;
	}
	*m = strdup(text);
	return OK;
}
R cuModuleUnload(char *m) { free(m); return OK; }
R cuModuleGetFunction(kernel **f, char *m, const char *name) {
	(void)m;
	for (U i = 0; i < 2; i++)
		if (!strcmp(kernels[i].name, name)) { *f = &kernels[i]; return OK; }
	return NOT_FOUND;
}
R cuFuncSetAttribute(kernel *f, int a, int v) { if (a != 8 || v > 232448) return BAD_VALUE; f->shared = v; return OK; }

/* streams, graphs */
typedef struct node { struct node *next; kernel *k; U threads; void *args[4]; void (*host)(void *); void *data; } node;
typedef struct { node *first, **last; } graph;
typedef struct { graph *into; int priority; } stream;

static R start(stream *s, node n) {
	if (!s || !s->into) {
		if (n.k) n.k->run(n.threads, n.args); else n.host(n.data);
		return OK;
	}
	node *kept = malloc(sizeof n);
	*kept = n;
	if (n.k)
		for (int i = 0; i < n.k->n; i++) kept->args[i] = memcpy(malloc(n.k->size[i]), n.args[i], n.k->size[i]);
	kept->next = NULL;
	*s->into->last = kept;
	s->into->last = &kept->next;
	return OK;
}
R cuLaunchKernel(kernel *k, U gx, U gy, U gz, U bx, U by, U bz, U shared, stream *s, void **params, void **extra) {
	NEED_CONTEXT();
	if (extra || bx * by * bz > 1024 || (int)shared > k->shared) return BAD_VALUE;
	node n = {.k = k, .threads = gx * gy * gz * bx * by * bz};
	memcpy(n.args, params, k->n * sizeof *params);
	return start(s, n);
}
struct attribute { int id, pad; union { char bytes[64]; struct { U x, y, z; } cluster; } value; };
struct config { U gx, gy, gz, bx, by, bz, shared; stream *s; struct attribute *attributes; U n; };
R cuLaunchKernelEx(const struct config *c, kernel *k, void **params, void **extra) {
	if (c->n != 1 || c->attributes->id != 4 || c->attributes->value.cluster.x != 2 || c->attributes->value.cluster.y != 1) return BAD_VALUE;
	return cuLaunchKernel(k, c->gx, c->gy, c->gz, c->bx, c->by, c->bz, c->shared, c->s, params, extra);
}
R cuLaunchHostFunc(stream *s, void (*f)(void *), void *data) { return start(s, (node){.host = f, .data = data}); }
R cuCtxGetStreamPriorityRange(int *least, int *greatest) { NEED_CONTEXT(); *least = 0; *greatest = -5; return OK; }
R cuStreamCreateWithPriority(stream **s, U flags, int priority) { NEED_CONTEXT(); if (flags != 1) return BAD_VALUE; *s = calloc(1, sizeof **s); (*s)->priority = priority; return OK; }
R cuStreamDestroy_v2(stream *s) { free(s); return OK; }
R cuStreamSynchronize(stream *s) { NEED_CONTEXT(); return s && s->into ? CAPTURING : OK; }
R cuStreamQuery(stream *s) { return s && s->into ? CAPTURING : OK; }
R cuStreamWaitEvent(stream *s, void *e, U flags) { (void)s; return e && !flags ? OK : BAD_VALUE; }
R cuStreamBeginCapture_v2(stream *s, int mode) { if (mode != 1 || s->into) return BAD_VALUE; s->into = calloc(1, sizeof(graph)); s->into->last = &s->into->first; return OK; }
R cuStreamEndCapture(stream *s, graph **g) { *g = s->into; s->into = NULL; return *g ? OK : UNMATCHED; }
R cuGraphInstantiateWithFlags(graph **e, graph *g, P flags) { if (flags) return BAD_VALUE; *e = malloc(sizeof **e); **e = *g; return OK; }
R cuGraphLaunch(graph *e, stream *s) { for (node *n = e->first; n; n = n->next) start(s, *n); return OK; }
R cuGraphExecDestroy(graph *e) { free(e); return OK; }
R cuGraphDestroy(graph *g) { (void)g; return OK; } /* executable graphs share its nodes */
R cuEventCreate(U **e, U flags) { *e = malloc(sizeof **e); **e = flags; return OK; }
R cuEventDestroy_v2(U *e) { free(e); return OK; }
R cuEventRecord(U *e, stream *s) { NEED_CONTEXT(); (void)s; return e ? OK : BAD_VALUE; }
R cuEventQuery(U *e) { (void)e; return 600; } /* not ready */
R cuEventSynchronize(U *e) { return e ? OK : BAD_VALUE; }
R cuEventElapsedTime(float *ms, U *start, U *end) { *ms = 1.5f; return *start == 0 && *end == 0 ? OK : BAD_VALUE; }
