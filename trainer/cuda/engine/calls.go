//go:build cuda

package engine

import (
	"github.com/ddpbatch/ddpbatch/trainer/cuda/blaslt"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
)

// callKind is the type of a call.
type callKind uint8

const (
	launches   callKind = iota // launches a kernel
	multiplies                 // runs a matrix multiplication in cuBLASLt
	clears
	copies
)

// call is an operation for the stream, with all of its parameters except the contents of memory.
// Equal calls with equal arguments have the same effect.
type call struct {
	kind callKind
	is   operation // for messages

	function  *driver.Function
	launch    driver.Launch
	args, end int // range of the arguments in group.args, if the call is held back

	plan                           *blaslt.Plan
	to, a, b, bias, pre, workspace driver.Ptr
	beta                           float32
	bytes                          int64
}

// launch launches a kernel with the arguments in d.args.
func (d *Device) launch(kernel string, l driver.Launch) {
	c := call{kind: launches, function: d.function(kernel), launch: l}
	if g := &d.group; g.open {
		c.args = len(g.args)
		g.args = d.args.Append(g.args)
		c.end = len(g.args)
		g.paramsPending = false
	}
	d.submit(c)
}

// submit enqueues a call, or holds it back.
func (d *Device) submit(c call) {
	if d.group.open {
		c.is = d.last
		d.group.calls = append(d.group.calls, c)
		return
	}
	d.check(d.enqueue(&c, &d.args))
	d.before = d.last
}

// enqueue enqueues a call in the stream. args are the arguments of a kernel.
func (d *Device) enqueue(c *call, args *driver.Args) error {
	switch c.kind {
	case launches:
		return d.stream.Launch(c.function, c.launch, args)
	case multiplies:
		if d.products.tuning != nil {
			if err := d.tune(c); err != nil {
				return err
			}
		}
		return d.multiply(c)
	case clears:
		return d.stream.Clear(c.to, c.bytes)
	default:
		return d.stream.Copy(c.to, c.a, c.bytes)
	}
}

// multiply enqueues a matrix multiplication in the stream.
func (d *Device) multiply(c *call) error {
	return c.plan.Run(d.stream, c.a, c.b, c.to, c.bias, c.pre, c.beta, c.workspace)
}
