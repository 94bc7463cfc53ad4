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

// Graph is a captured graph.
type Graph struct{ graph cu.Graph }

// Capture runs body and records the work that it enqueues in the stream, instead of executing it.
// The recording includes streams that wait for events of this stream and that it waits for in turn.
// Other goroutines may use the GPU in the meantime. Calls in body that wait for the GPU fail.
func (s Stream) Capture(body func() error) (Graph, error) {
	var g Graph
	h := streamHandle(s.stream)
	if err := failed("cuStreamBeginCapture", C.cuStreamBeginCapture(h, C.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), nil); err != nil {
		return g, err
	}
	err := body()
	// Even after an error: the stream cannot be used before.
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

// Close destroys the graph. Instances of it remain valid.
func (g Graph) Close() error { return wrap("cuGraphDestroy", g.graph.Destroy(), nil) }

// Instantiate creates an executable instance of the graph.
func (g Graph) Instantiate() (Exec, error) {
	var e Exec
	err := failed("cuGraphInstantiateWithFlags",
		C.cuGraphInstantiateWithFlags((*C.CUgraphExec)(unsafe.Pointer(&e.exec)), graphHandle(g.graph), 0), nil)
	return e, err
}

// Exec is an executable graph, which can be launched repeatedly at the cost of one launch.
type Exec struct{ exec cu.ExecGraph }

// Close destroys the instance.
func (e Exec) Close() error { return wrap("cuGraphExecDestroy", e.exec.Destroy(), nil) }

// Start launches the graph in the stream.
func (s Stream) Start(e Exec) error {
	return failed("cuGraphLaunch", C.cuGraphLaunch(execHandle(e.exec), streamHandle(s.stream)), nil)
}
