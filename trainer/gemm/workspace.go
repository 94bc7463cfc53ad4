package gemm

import (
	"runtime"
	"sync"
)

// Workspace is the memory and the workers of multiplications: 3 MB for each worker.
// It serves one multiplication at a time: goroutines that multiply at once need one
// each, others best share one.
type Workspace struct {
	kernels kernels
	workers []*worker
	wait    sync.WaitGroup
	// minTerms is the number of multiply-adds from which on a worker is used, for
	// each term that is added at once.
	minTerms float64
}

// worker is what one goroutine needs for its part of a product.
type worker struct {
	c, a, b      Matrix
	start        Matrix // what C starts from, without data if from zero
	kernel       *kernel
	round        bool   // operands to bfloat16, since the kernel does not
	run          func() // made once, since a go statement with arguments allocates
	tile         tile
	panel        panel
	aRoom, bRoom []float32 // for what the kernel copies
}

// NewWorkspace returns a workspace for the fastest kernels of this processor. It
// uses at most the given number of goroutines, or GOMAXPROCS if workers is zero
// or less, and runs none between multiplications.
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
		w.aRoom, w.bRoom = k.float32.newRooms()
		w.run = func() {
			w.multiply()
			ws.wait.Done()
		}
		ws.workers = append(ws.workers, w)
	}
	return ws
}

// Kernel is the name of the kernels in use: "avx512_bf16", "avx512", "avx2" or
// "portable". The first two are the same for float32.
func (ws *Workspace) Kernel() string { return ws.kernels.name }

// Kernels names all kernels that this processor can run, the fastest first.
func Kernels() []string {
	var names []string
	for _, k := range available() {
		names = append(names, k.name)
	}
	return names
}

// multiply divides the longer side of C among the workers, and does the last part on
// the caller's own goroutine. No size is zero. The operand of the other side is read,
// and copied, by every worker.
func (ws *Workspace) multiply(k *kernel, round bool, c, a, b Matrix, from Start) {
	// In floating point, since the product of the sizes can exceed an int.
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
	for _, w := range ws.workers[:n] { // keep no one's data alive
		w.c, w.a, w.b, w.start = Matrix{}, Matrix{}, Matrix{}, Matrix{}
		w.tile, w.panel = tile{}, panel{}
	}
}
