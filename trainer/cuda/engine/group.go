//go:build cuda

package engine

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
)

const (
	paramBytes    = 256 << 10 // maximum size of the values that change, per part of a group
	minGraphCalls = 4         // minimum number of calls for which a graph pays off
	maxGraphs     = 128       // maximum number of recorded parts; the least recently used is evicted
)

// group holds back calls between Begin and End. It enqueues them at End, and earlier if an operation
// has to wait for them. The calls that it enqueues together are a part of the group. If a part
// occurs again, it is captured as a CUDA graph. From then on, it costs one launch.
//
// A part is identified by its calls: all calls and all of their arguments must be equal. So a
// replayed graph has exactly the effect of the calls. Kernels read arguments that differ from step
// to step from memory (graphParams). These values are written to it before the launch.
type group struct {
	open          bool
	calls         []call
	args          []byte      // arguments of the kernels
	params        []byte      // values that change
	paramsPending bool        // the last values are for a kernel that is not launched yet
	at            driver.Ptr  // device address of these values
	loaded        driver.Args // arguments of the kernel to launch
	recorded      []*capturedGraph
	stats         GroupStats
}

// capturedGraph is a recorded part. After it is captured, it can be replayed as a CUDA graph.
type capturedGraph struct {
	is    operation // for messages
	calls []call
	args  []byte
	graph driver.Exec // valid if made is set
	made  bool
	used  int // value of stats.Parts at the last use
}

// GroupStats counts parts of groups.
type GroupStats struct {
	Parts    int // all parts
	Captured int // parts captured as a graph
	Replayed int // parts replayed as a graph
}

// GroupStats returns the counts.
func (d *Device) GroupStats() GroupStats { return d.group.stats }

// Begin begins a group. Until End, operations are held back until an operation must wait for them,
// such as Read or a write from the host. Repeated groups, such as training steps, are replayed as
// graphs. Only one goroutine may use a group, and nothing else may use the stream in the meantime.
func (d *Device) Begin() {
	g := &d.group
	if g.open {
		panic("engine: a group within a group")
	}
	if g.at == 0 {
		defer d.enter("begin").Leave()
		p, err := d.pool.Alloc(paramBytes)
		d.check(err)
		g.at = p
	}
	g.open = true
}

// End enqueues the remaining operations and ends the group.
func (d *Device) End() {
	defer d.enter("end").Leave()
	d.flush()
	d.group.open = false
}

// Flush enqueues the held-back operations. The group continues.
func (d *Device) Flush() {
	if !d.group.open {
		return
	}
	defer d.enter("flush").Leave()
	d.flush()
}

// graphParams returns the address where a kernel of a group reads values that change from step to
// step. v is the corresponding argument, which graphParams sets to zero. The kernel must be
// launched before the next flush. Outside of a group, and if the group's space is full, graphParams
// returns 0, and the kernel uses its argument v.
func graphParams[T any](d *Device, v *T) driver.Ptr {
	g, n := &d.group, int(unsafe.Sizeof(*v))
	if !g.open || len(g.params)+n > paramBytes {
		return 0
	}
	at := g.at + driver.Ptr(len(g.params))
	g.params = append(g.params, unsafe.Slice((*byte)(unsafe.Pointer(v)), n)...)
	g.params = append(g.params, make([]byte, -n&7)...) // the next one is aligned to 8 bytes
	*v = *new(T)
	g.paramsPending = true
	return at
}

// flush enqueues the held-back calls.
func (d *Device) flush() {
	g := &d.group
	if g.paramsPending {
		panic("engine: parameters are flushed before their kernel is launched")
	}
	if len(g.calls) == 0 {
		return
	}
	under := d.last // the operation that needs the flush
	g.stats.Parts++
	d.stage(g.at, g.params)
	if p := g.findRecorded(); p == nil {
		d.check(d.enqueueAll(g.calls, g.args))
		if len(g.calls) >= minGraphCalls && d.products.tuning == nil {
			d.record()
		}
	} else {
		if !p.made {
			d.capture(p)
		}
		d.last = p.is
		d.check(d.stream.Start(p.graph))
		d.before = p.is
		g.stats.Replayed++
	}
	g.calls, g.args, g.params = g.calls[:0], g.args[:0], g.params[:0]
	d.last = under
}

// findRecorded returns the recorded part with the same calls, or nil.
func (g *group) findRecorded() *capturedGraph {
	for _, p := range g.recorded {
		if slices.Equal(p.calls, g.calls) && bytes.Equal(p.args, g.args) {
			p.used = g.stats.Parts
			return p
		}
	}
	return nil
}

// enqueueAll enqueues calls one by one. After an error, d.last is the call that failed.
func (d *Device) enqueueAll(calls []call, args []byte) error {
	for i := range calls {
		c := &calls[i]
		if c.kind == launches {
			d.group.loaded.Load(args[c.args:c.end])
		}
		d.last = c.is
		if err := d.enqueue(c, &d.group.loaded); err != nil {
			return err
		}
		d.before = c.is
	}
	return nil
}

// record records the held-back calls, to recognize them when they occur again.
func (d *Device) record() {
	g := &d.group
	if len(g.recorded) == maxGraphs {
		oldest := slices.MinFunc(g.recorded, func(a, b *capturedGraph) int { return a.used - b.used })
		d.check(errors.Join(d.stream.Synchronize(), oldest.close()))
		g.recorded = slices.DeleteFunc(g.recorded, func(p *capturedGraph) bool { return p == oldest })
	}
	name := fmt.Sprintf("a graph of %d operations, from %v to %v", len(g.calls), g.calls[0].is, g.calls[len(g.calls)-1].is)
	g.recorded = append(g.recorded, &capturedGraph{is: operation{name: name}, calls: slices.Clone(g.calls), args: slices.Clone(g.args), used: g.stats.Parts})
}

// capture captures a part as a graph.
func (d *Device) capture(p *capturedGraph) {
	captured, err := d.stream.Capture(func() error { return d.enqueueAll(p.calls, p.args) })
	d.check(err)
	d.last = p.is
	p.graph, err = captured.Instantiate()
	d.check(errors.Join(err, captured.Close()))
	p.made = true
	d.group.stats.Captured++
}

func (p *capturedGraph) close() error {
	if !p.made {
		return nil
	}
	p.made = false
	return p.graph.Close()
}

func (g *group) close() error {
	var errs []error
	for _, p := range g.recorded {
		errs = append(errs, p.close())
	}
	g.recorded = nil
	return errors.Join(errs...)
}
