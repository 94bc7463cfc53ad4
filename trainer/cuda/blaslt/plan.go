//go:build cuda

package blaslt

// #include <stdlib.h>
// #include "calls.h"
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
)

// Handle is the library on one GPU.
type Handle struct {
	library *Library
	handle  unsafe.Pointer
	plans   []*Plan // one of each product
}

// Handle makes one for the bound GPU.
func (l *Library) Handle() (*Handle, error) {
	h := &Handle{library: l}
	if r := C.ddpb_lt_create(l.functions, &h.handle); r != 0 {
		return nil, fmt.Errorf("cublasLtCreate: %w", Status(r))
	}
	return h, nil
}

// Close frees the handle and its plans.
func (h *Handle) Close() error {
	for _, p := range h.plans {
		C.ddpb_lt_free(&p.plan)
	}
	h.plans = nil
	if r := C.ddpb_lt_destroy(h.library.functions, h.handle); r != 0 {
		return fmt.Errorf("cublasLtDestroy: %w", Status(r))
	}
	return nil
}

// Operand is how an operand lies in memory: row-major, or its transpose is, with rows
// Pitch elements apart.
type Operand struct {
	Pitch      int
	Transposed bool
	Align      int // bytes that its address is a multiple of
}

// Product is D = f(A·B + beta*D + bias), where f is nothing or GELU, D is M x N, A M x K and B K x N.
// It is all that a plan depends on, beside the GPU and cuBLASLt: those of its [Handle], with
// which plans go.
type Product struct {
	M, N, K int
	A, B, D Operand // D is not transposed
	BF16    bool    // A and B are bfloat16; else float32
	Narrow  bool    // D is bfloat16, and so are the bias and what GELU is of; else float32
	Bias    bool    // N numbers that are added to each row
	GELU    bool    // by tanh; what it is of is written, too, in rows as far apart as D's
	Slope   bool    // D = A·B times GELU's derivative at what is read, in such rows
}

func (p Product) String() string {
	kind, to := "float32", "float32"
	if p.BF16 {
		kind = "bfloat16"
	}
	if p.Narrow {
		to = "bfloat16"
	}
	return fmt.Sprintf("product %dx%dx%d of %s in %s (pitches %d, %d, %d; transposed %t, %t; aligned to %d, %d, %d; bias %t, GELU %t, its slope %t)",
		p.M, p.N, p.K, kind, to, p.A.Pitch, p.B.Pitch, p.D.Pitch, p.A.Transposed, p.B.Transposed, p.A.Align, p.B.Align, p.D.Align, p.Bias, p.GELU, p.Slope)
}

// Plan is an algorithm for a product.
type Plan struct {
	plan    C.ddpb_lt_plan
	product Product
}

// Plans returns up to most plans for a product with at most so many bytes of
// workspace, the one that should be fastest first. There may be none.
func (h *Handle) Plans(p Product, most, workspace int) ([]*Plan, error) {
	// cuBLASLt's matrices are column-major: the transposes of ours, so Dᵀ = Bᵀ·Aᵀ.
	problem := C.ddpb_lt_problem{
		m: C.uint64_t(p.N), n: C.uint64_t(p.M), k: C.uint64_t(p.K),
		lda: C.int64_t(p.B.Pitch), ldb: C.int64_t(p.A.Pitch), ldd: C.int64_t(p.D.Pitch),
		transposed_a: truth(p.B.Transposed), transposed_b: truth(p.A.Transposed), bf16: truth(p.BF16), narrow: truth(p.Narrow), bias: truth(p.Bias), gelu: truth(p.GELU), slope: truth(p.Slope),
		align_a: C.uint32_t(p.B.Align), align_b: C.uint32_t(p.A.Align), align_d: C.uint32_t(p.D.Align), workspace: C.uint64_t(workspace),
	}
	found := make([]C.ddpb_lt_plan, most)
	var n C.int
	r := C.ddpb_lt_plans(h.library.functions, h.handle, &problem, &found[0], C.int(most), &n)
	const notSupported = 15
	if r != 0 && r != notSupported {
		return nil, fmt.Errorf("cublasLtMatmulAlgoGetHeuristic: %w (%v)", Status(r), p)
	}
	plans := make([]*Plan, n)
	for i := range plans {
		plans[i] = &Plan{found[i], p}
	}
	if len(plans) > 0 {
		h.plans = append(h.plans, plans[0]) // they share what is to be freed
	}
	return plans, nil
}

// Run computes the product in the stream. bias is 0 where there is none, pre where GELU's
// argument is written, or read for its slope, aligned to 16 bytes, or 0 without; workspace has
// as many bytes as [Handle.Plans] was told.
func (p *Plan) Run(s driver.Stream, a, b, d, bias, pre driver.Ptr, beta float32, workspace driver.Ptr) error {
	r := C.ddpb_lt_run(&p.plan, C.uintptr_t(b), C.uintptr_t(a), C.uintptr_t(d), C.uintptr_t(bias), C.uintptr_t(pre), C.float(beta), C.uintptr_t(workspace), C.uintptr_t(s.Handle()))
	if r != 0 {
		return fmt.Errorf("cublasLtMatmul: %w (%v)", Status(r), p.product)
	}
	return nil
}

func truth(v bool) C.int {
	if v {
		return 1
	}
	return 0
}
