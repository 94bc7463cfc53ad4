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
	liveBytes  = 256 << 10 // of numbers that change, in one part of a group
	leastGraph = 4         // calls from which on a graph is less work than they are
	mostGraphs = 128       // the one that was not used for longest makes room for another
)

// group is calls that are held back, from Begin to End or until something has to wait
// for them. Such a part of a group that comes again becomes a CUDA graph, and costs one
// launch from then on.
//
// Which part it is shows in the calls themselves: every one of them, and all their
// arguments, must be equal. So a graph can do nothing but what was asked for. Numbers
// that differ from step to step would make that rare: kernels read those from memory
// (live), where they are written before.
type group struct {
	open   bool
	calls  []call
	args   []byte      // of their kernels
	live   []byte      // numbers that change
	unread bool        // the last of them are for a kernel that is not launched yet
	at     driver.Ptr  // where those go
	loaded driver.Args // of the kernel that is launched
	parts  []*part
	stats  GroupStats
}

// part is a part of a group that has come before.
type part struct {
	is    operation // for messages
	calls []call
	args  []byte
	graph driver.Exec // with made
	made  bool
	used  int // the number of parts until then
}

// GroupStats count parts of groups.
type GroupStats struct {
	Parts    int // in all
	Captured int // that were made a graph,
	Replayed int // and that were done as one
}

// GroupStats returns the figures.
func (d *Device) GroupStats() GroupStats { return d.group.stats }

// Begin begins a group: until End, operations are held back until one has to wait for
// them, as Read does, or writes from the host. Groups that resemble each other, as steps
// of a training do, are done as graphs. A group is one goroutine's, and nothing else
// uses the stream meanwhile.
func (d *Device) Begin() {
	g := &d.group
	if g.open {
		panic("engine: a group within a group")
	}
	if g.at == 0 {
		defer d.enter("begin").Leave()
		p, err := d.pool.Alloc(liveBytes)
		d.check(err)
		g.at = p
	}
	g.open = true
}

// End asks for what is still held back.
func (d *Device) End() {
	defer d.enter("end").Leave()
	d.flush()
	d.group.open = false
}

// Flush asks for what is held back. The group goes on.
func (d *Device) Flush() {
	if !d.group.open {
		return
	}
	defer d.enter("flush").Leave()
	d.flush()
}

// live is where a kernel of a group reads numbers that change from step to step, or 0
// where it takes them as an argument, which v is for. With the former v becomes zero, and
// the kernel must be launched before anything is flushed.
func live[T any](d *Device, v *T) driver.Ptr {
	g, n := &d.group, int(unsafe.Sizeof(*v))
	if !g.open || len(g.live)+n > liveBytes {
		return 0
	}
	at := g.at + driver.Ptr(len(g.live))
	g.live = append(g.live, unsafe.Slice((*byte)(unsafe.Pointer(v)), n)...)
	g.live = append(g.live, make([]byte, -n&7)...) // the next one is aligned to 8 bytes
	*v = *new(T)
	g.unread = true
	return at
}

// flush asks for the calls that are held back.
func (d *Device) flush() {
	g := &d.group
	if g.unread {
		panic("engine: numbers are flushed before the kernel that they are for is launched")
	}
	if len(g.calls) == 0 {
		return
	}
	under := d.last // what needs them
	g.stats.Parts++
	d.stage(g.at, g.live)
	if p := g.part(); p == nil {
		d.check(d.each(g.calls, g.args))
		if len(g.calls) >= leastGraph {
			d.remember()
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
	g.calls, g.args, g.live = g.calls[:0], g.args[:0], g.live[:0]
	d.last = under
}

// part is the part that has come before, or nil.
func (g *group) part() *part {
	for _, p := range g.parts {
		if slices.Equal(p.calls, g.calls) && bytes.Equal(p.args, g.args) {
			p.used = g.stats.Parts
			return p
		}
	}
	return nil
}

// each asks for calls one by one. Of an error, d.last is the cause.
func (d *Device) each(calls []call, args []byte) error {
	for i := range calls {
		c := &calls[i]
		if c.kind == launches {
			d.group.loaded.Load(args[c.args:c.end])
		}
		d.last = c.is
		if err := d.ask(c, &d.group.loaded); err != nil {
			return err
		}
		d.before = c.is
	}
	return nil
}

// remember keeps the calls that are held back, to know them when they come again.
func (d *Device) remember() {
	g := &d.group
	if len(g.parts) == mostGraphs {
		oldest := slices.MinFunc(g.parts, func(a, b *part) int { return a.used - b.used })
		d.check(errors.Join(d.stream.Synchronize(), oldest.close()))
		g.parts = slices.DeleteFunc(g.parts, func(p *part) bool { return p == oldest })
	}
	name := fmt.Sprintf("a graph of %d operations, from %v to %v", len(g.calls), g.calls[0].is, g.calls[len(g.calls)-1].is)
	g.parts = append(g.parts, &part{is: operation{name: name}, calls: slices.Clone(g.calls), args: slices.Clone(g.args), used: g.stats.Parts})
}

// capture makes a part's graph.
func (d *Device) capture(p *part) {
	captured, err := d.stream.Capture(func() error { return d.each(p.calls, p.args) })
	d.check(err)
	d.last = p.is
	p.graph, err = captured.Instantiate()
	d.check(errors.Join(err, captured.Close()))
	p.made = true
	d.group.stats.Captured++
}

func (p *part) close() error {
	if !p.made {
		return nil
	}
	p.made = false
	return p.graph.Close()
}

func (g *group) close() error {
	var errs []error
	for _, p := range g.parts {
		errs = append(errs, p.close())
	}
	g.parts = nil
	return errors.Join(errs...)
}
