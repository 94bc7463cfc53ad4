//go:build cuda

package driver

// #include <cuda.h>
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"gorgonia.org/cu"
)

// Graph is recorded work.
type Graph struct{ graph cu.Graph }

// Capture records what body asks of the stream, and of streams that wait for events
// of it and are waited for in turn, instead of doing it. Other goroutines may go on with the GPU.
// What would wait for the GPU fails in body.
func (s Stream) Capture(body func() error) (Graph, error) {
	var g Graph
	h := streamHandle(s.stream)
	if err := failed("cuStreamBeginCapture", C.cuStreamBeginCapture(h, C.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), nil); err != nil {
		return g, err
	}
	err := body()
	// Even after an error: the stream does not work again before.
	end := failed("cuStreamEndCapture", C.cuStreamEndCapture(h, (*C.CUgraph)(unsafe.Pointer(&g.graph))), nil)
	if err == nil {
		err = end
	}
	if err != nil {
		if end == nil {
			err = errors.Join(err, g.Close())
		}
		return Graph{}, fmt.Errorf("capture a graph: %w", err)
	}
	return g, nil
}

// Close destroys the graph. What was made of it stays.
func (g Graph) Close() error { return wrap("cuGraphDestroy", g.graph.Destroy(), nil) }

// Instantiate makes the graph ready for the GPU.
func (g Graph) Instantiate() (Exec, error) {
	var e Exec
	err := failed("cuGraphInstantiateWithFlags",
		C.cuGraphInstantiateWithFlags((*C.CUgraphExec)(unsafe.Pointer(&e.exec)), graphHandle(g.graph), 0), nil)
	return e, err
}

// Exec is a graph that the GPU can do, again and again, at the cost of one launch.
type Exec struct{ exec cu.ExecGraph }

// Close destroys it.
func (e Exec) Close() error { return wrap("cuGraphExecDestroy", e.exec.Destroy(), nil) }

// Update takes over the parameters of a graph of the same form. Where the form
// differs it says false, and a new one must be made.
func (e Exec) Update(g Graph) (bool, error) {
	var node C.CUgraphNode
	var why C.CUgraphExecUpdateResult
	r := C.cuGraphExecUpdate(execHandle(e.exec), graphHandle(g.graph), &node, &why)
	if r == C.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE {
		return false, nil
	}
	return r == C.CUDA_SUCCESS, failed("cuGraphExecUpdate", r, nil)
}

// UploadGraph brings the graph to the GPU, so that the first Start need not.
func (s Stream) UploadGraph(e Exec) error {
	return failed("cuGraphUpload", C.cuGraphUpload(execHandle(e.exec), streamHandle(s.stream)), nil)
}

// Start does the graph, in order with the rest of the stream.
func (s Stream) Start(e Exec) error {
	return failed("cuGraphLaunch", C.cuGraphLaunch(execHandle(e.exec), streamHandle(s.stream)), nil)
}
