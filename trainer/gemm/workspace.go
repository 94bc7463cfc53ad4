package gemm

import (
	"runtime"
	"sync"
)

// A Workspace holds the memory and the workers of multiplications: 3 MB for each worker. It runs
// one multiplication at a time: goroutines that multiply concurrently need one each, and others
// should share one.
type Workspace struct {
	kernels kernels
	workers []*worker
	wait    sync.WaitGroup
	// minTerms is the minimum number of multiply-adds that justifies another worker, per term that
	// is added at a time.
	minTerms float64
}

// worker holds the state of one goroutine for its part of a product.
type worker struct {
	c, a, b          Matrix
	start            Matrix // start values of C; no data for zero
	kernel           *kernel
	round            bool   // round operands to bfloat16, because the kernel expects rounded operands
	run              func() // created once, because a go statement with arguments allocates
	tile             tile
	panel            panel
	aBuffer, bBuffer []float32 // buffers for packed operands
}

// NewWorkspace returns a workspace for the fastest kernels of this CPU. It uses at most the given
// number of goroutines, or GOMAXPROCS if workers is zero or less. No goroutine runs between
// multiplications.
func NewWorkspace(workers int) *Workspace {
	return newWorkspace(workers, available()[0])
}

func newWorkspace(workers int, k kernels) *Workspace {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	ws := &Workspace{kernels: k, minTerms: minTermsPerWorker}
	for range workers {
		w := &worker{}
		w.aBuffer, w.bBuffer = k.float32.newBuffers()
		w.run = func() {
			w.multiply()
			ws.wait.Done()
		}
		ws.workers = append(ws.workers, w)
	}
	return ws
}

// Kernel returns the name of the kernels in use: "avx512_bf16", "avx512", "avx2", or "portable".
// The first two are the same for float32.
func (ws *Workspace) Kernel() string { return ws.kernels.name }

// Kernels returns the names of all kernels that this CPU supports, fastest first.
func Kernels() []string {
	var names []string
	for _, k := range available() {
		names = append(names, k.name)
	}
	return names
}

// multiply divides the longer dimension of C among the workers, and computes the last part on the
// caller's goroutine. No size is zero. Every worker reads, and packs, the operand of the other
// dimension.
func (ws *Workspace) multiply(k *kernel, round bool, c, a, b Matrix, from Start) {
	// In floating point, because the product of the sizes can overflow an int.
	useful := float64(c.Rows) * float64(c.Cols) * float64(a.Cols) / (ws.minTerms * float64(k.pair))
	start := from.in(c)
	side, unit := c.Rows, 1
	if c.Cols > c.Rows {
		side, unit = c.Cols, max(1, k.cols)
	}
	units := (side + unit - 1) / unit
	n := min(len(ws.workers), units)
	if useful < float64(n) {
		n = max(1, int(useful))
	}
	for i, w := range ws.workers[:n] {
		first, end := units*i/n*unit, min(units*(i+1)/n*unit, side)
		w.kernel, w.round = k, round
		if c.Cols > c.Rows {
			w.c, w.start = c.part(0, first, c.Rows, end-first), start.part(0, first, c.Rows, end-first)
			w.a, w.b = a, b.part(0, first, b.Rows, end-first)
		} else {
			w.c, w.start = c.part(first, 0, end-first, c.Cols), start.part(first, 0, end-first, c.Cols)
			w.a, w.b = a.part(first, 0, end-first, a.Cols), b
		}
		if i < n-1 {
			ws.wait.Add(1)
			go w.run()
		} else {
			w.multiply()
		}
	}
	ws.wait.Wait()
	for _, w := range ws.workers[:n] { // do not keep the caller's data alive
		w.c, w.a, w.b, w.start = Matrix{}, Matrix{}, Matrix{}, Matrix{}
		w.tile, w.panel = tile{}, panel{}
	}
}
