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

// Handle is a cuBLASLt handle for one GPU.
type Handle struct {
	library *Library
	handle  unsafe.Pointer
	plans   []*Plan
}

// Handle creates a handle for the bound GPU.
func (l *Library) Handle() (*Handle, error) {
	h := &Handle{library: l}
	if r := C.ddpb_lt_create(l.functions, &h.handle); r != 0 {
		return nil, fmt.Errorf("cublasLtCreate: %w", Status(r))
	}
	return h, nil
}

// Version returns the version of cuBLASLt, for example 120805.
func (h *Handle) Version() int { return int(C.ddpb_lt_version(h.library.functions)) }

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

// Operand is the memory layout of an operand: the matrix, or its transpose, is row-major with a row
// stride of Pitch elements.
type Operand struct {
	Pitch      int
	Transposed bool
	Align      int // alignment of the address in bytes
}

// Product is a matrix multiplication D = f(A·B + beta*D + bias), where f is the identity or GELU. D
// is M x N, A is M x K, and B is K x N. It determines the plan, together with the GPU and cuBLASLt
// of the [Handle].
type Product struct {
	M, N, K int
	A, B, D Operand // D is not transposed
	BF16    bool    // A and B are bfloat16; otherwise float32
	Narrow  bool    // D, the bias, and the argument of GELU are bfloat16; otherwise float32
	Bias    bool    // N elements that are added to each row
	GELU    bool    // tanh approximation; its argument is stored also, with D's pitch
	Slope   bool    // D is A·B times GELU's derivative; its argument is read, with D's pitch
	SumB    bool    // N sums of the columns of B are stored, of D's type
}

func (p Product) String() string {
	kind, to := "float32", "float32"
	if p.BF16 {
		kind = "bfloat16"
	}
	if p.Narrow {
		to = "bfloat16"
	}
	return fmt.Sprintf("product %dx%dx%d of %s in %s (pitches %d, %d, %d; transposed %t, %t; aligned to %d, %d, %d; bias %t, GELU %t, its slope %t, sums of B %t)",
		p.M, p.N, p.K, kind, to, p.A.Pitch, p.B.Pitch, p.D.Pitch, p.A.Transposed, p.B.Transposed, p.A.Align, p.B.Align, p.D.Align, p.Bias, p.GELU, p.Slope, p.SumB)
}

// MaxAlgorithms is the maximum number of algorithms of a plan.
const MaxAlgorithms = C.DDPB_LT_MAX_ALGORITHMS

// Algorithm is cuBLASLt's description of an algorithm. It may be stored and used again with the same
// version of cuBLASLt and the same type of GPU (cuBLAS documentation, cublasLtMatmulAlgo_t).
type Algorithm [64]byte

// Plan has the algorithms for a product. At first, the first one is selected.
type Plan struct {
	plan     C.ddpb_lt_plan
	product  Product
	selected int
}

// Plan returns a plan for a product with the algorithms that cuBLASLt's heuristic considers the fastest
// with at most the given number of workspace bytes, in this order, at most the given number. It returns
// nil if there is none.
func (h *Handle) Plan(p Product, workspace, algorithms int) (*Plan, error) {
	// cuBLASLt's matrices are column-major: the transposes of the row-major ones, so Dᵀ = Bᵀ·Aᵀ.
	problem := C.ddpb_lt_problem{
		m: C.uint64_t(p.N), n: C.uint64_t(p.M), k: C.uint64_t(p.K),
		lda: C.int64_t(p.B.Pitch), ldb: C.int64_t(p.A.Pitch), ldd: C.int64_t(p.D.Pitch),
		transposed_a: truth(p.B.Transposed), transposed_b: truth(p.A.Transposed), bf16: truth(p.BF16), narrow: truth(p.Narrow), bias: truth(p.Bias), gelu: truth(p.GELU), slope: truth(p.Slope), sum_a: truth(p.SumB),
		align_a: C.uint32_t(p.B.Align), align_b: C.uint32_t(p.A.Align), align_d: C.uint32_t(p.D.Align), workspace: C.uint64_t(workspace),
	}
	plan := &Plan{product: p}
	r := C.ddpb_lt_find(h.library.functions, h.handle, &problem, C.int(algorithms), &plan.plan)
	const notSupported = 15
	if r != 0 && r != notSupported {
		return nil, fmt.Errorf("cublasLtMatmulAlgoGetHeuristic: %w (%v)", Status(r), p)
	}
	if plan.plan.count == 0 {
		return nil, nil
	}
	h.plans = append(h.plans, plan)
	return plan, nil
}

// Product returns the product.
func (p *Plan) Product() Product { return p.product }

// Algorithms returns the algorithms of the plan.
func (p *Plan) Algorithms() []Algorithm {
	list := make([]Algorithm, p.plan.count)
	for i := range list {
		list[i] = *(*Algorithm)(unsafe.Pointer(&p.plan.algorithms[i].algo))
	}
	return list
}

// Select selects the algorithm with this index in Algorithms for Run.
func (p *Plan) Select(index int) { p.selected = index }

// Occupancy returns cuBLASLt's estimate of the part of the GPU that the first algorithm uses, at most 1.
func (p *Plan) Occupancy() float32 { return min(1, float32(p.plan.algorithms[0].waves)) }

// Run computes the product in the stream and adds beta times the previous contents of d. bias is the
// address of the bias or of the sums of B, and pre the address of GELU's argument. Both are aligned to
// 16 bytes, or 0. workspace has the size that was passed to [Handle.Plan].
func (p *Plan) Run(s driver.Stream, a, b, d, bias, pre driver.Ptr, beta float32, workspace driver.Ptr) error {
	r := C.ddpb_lt_run(&p.plan, C.int(p.selected), C.uintptr_t(b), C.uintptr_t(a), C.uintptr_t(d), C.uintptr_t(bias), C.uintptr_t(pre), C.float(beta), C.uintptr_t(workspace), C.uintptr_t(s.Handle()))
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
