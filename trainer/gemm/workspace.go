package gemm

import (
	"runtime"
	"sync"
)

// Workspace is the memory and the workers of multiplications. It serves one
// multiplication at a time: goroutines that multiply at once need one each.
type Workspace struct {
	kernel  *kernel
	workers []*worker
	wait    sync.WaitGroup
	// minTerms is the number of multiply-adds from which on a worker is used.
	minTerms float64
}

// worker is what one goroutine needs for its rows of a product.
type worker struct {
	c, a, b    Matrix
	accumulate bool
	run        func() // made once, since a go statement with arguments allocates
	tile       tile
	panel      panel
	room       []float32 // for what the kernel copies
}

// NewWorkspace returns a workspace for the fastest kernels of this processor. It
// uses at most the given number of goroutines, or GOMAXPROCS if workers is zero
// or less, and runs none between multiplications.
func NewWorkspace(workers int) *Workspace {
	return newWorkspace(workers, available()[0])
}

func newWorkspace(workers int, k *kernel) *Workspace {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	ws := &Workspace{kernel: k, minTerms: minTermsPerWorker}
	for range workers {
		w := &worker{room: k.newRoom()}
		w.run = func() {
			k.multiply(w)
			ws.wait.Done()
		}
		ws.workers = append(ws.workers, w)
	}
	return ws
}

// Kernel is the name of the kernels in use: "avx512", "avx2" or "portable".
func (ws *Workspace) Kernel() string { return ws.kernel.name }

// Kernels names all kernels that this processor can run, the fastest first.
func Kernels() []string {
	var names []string
	for _, k := range available() {
		names = append(names, k.name)
	}
	return names
}

// multiply divides the rows of C among the workers, and does the last part on
// the caller's own goroutine. No size is zero.
func (ws *Workspace) multiply(c, a, b Matrix, accumulate bool) {
	// In floating point, since the product of the sizes can exceed an int.
	useful := float64(c.Rows) * float64(c.Cols) * float64(a.Cols) / ws.minTerms
	n := min(len(ws.workers), c.Rows)
	if useful < float64(n) {
		n = max(1, int(useful))
	}
	first := 0
	for i, w := range ws.workers[:n] {
		end := first + (c.Rows-first)/(n-i)
		w.c, w.a, w.b, w.accumulate = c.rows(first, end), a.rows(first, end), b, accumulate
		if i < n-1 {
			ws.wait.Add(1)
			go w.run()
		} else {
			ws.kernel.multiply(w)
		}
		first = end
	}
	ws.wait.Wait()
	for _, w := range ws.workers[:n] { // keep no one's data alive
		w.c, w.a, w.b = Matrix{}, Matrix{}, Matrix{}
		w.tile, w.panel = tile{}, panel{}
	}
}
