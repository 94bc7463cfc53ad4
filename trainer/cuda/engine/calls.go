//go:build cuda

package engine

import (
	"github.com/ddpbatch/ddpbatch/trainer/cuda/blaslt"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
)

// callKind is what a call does.
type callKind uint8

const (
	launches   callKind = iota // a kernel
	multiplies                 // a product by cuBLASLt
	clears
	copies
)

// call is something that the stream is asked for, with all that it depends on but what is
// in memory. Equal calls with equal arguments do the same.
type call struct {
	kind callKind
	is   operation // for messages

	function  *driver.Function
	launch    driver.Launch
	args, end int // the arguments' place in group.args, if it is held back

	plan                      *blaslt.Plan
	to, a, b, bias, pre, room driver.Ptr
	beta                      float32
	bytes                     int64
}

// launch starts a kernel with the arguments in d.args.
func (d *Device) launch(kernel string, l driver.Launch) {
	c := call{kind: launches, function: d.functions[kernel], launch: l}
	if g := &d.group; g.open {
		c.args = len(g.args)
		g.args = d.args.Append(g.args)
		c.end = len(g.args)
		g.unread = false
	}
	d.do(c)
}

// do asks for a call, or holds it back.
func (d *Device) do(c call) {
	if d.group.open {
		c.is = d.last
		d.group.calls = append(d.group.calls, c)
		return
	}
	d.check(d.ask(&c, &d.args))
	d.before = d.last
}

// ask asks the stream for a call; args are a kernel's.
func (d *Device) ask(c *call, args *driver.Args) error {
	switch c.kind {
	case launches:
		return d.stream.Launch(c.function, c.launch, args)
	case multiplies:
		return c.plan.Run(d.stream, c.a, c.b, c.to, c.bias, c.pre, c.beta, c.room)
	case clears:
		return d.stream.Clear(c.to, c.bytes)
	default:
		return d.stream.Copy(c.to, c.a, c.bytes)
	}
}
