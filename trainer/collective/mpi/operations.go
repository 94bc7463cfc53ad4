package mpi

import (
	"context"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
	"github.com/ddpbatch/ddpbatch/trainer/collective/mpi/libmpi"
)

// maxPieceBytes limits one MPI call in place, so that the number of elements fits a C int.
// windowBytes is the size of a window, which fits a cache.
const (
	maxPieceBytes = 1 << 30
	windowBytes   = 4 << 20
)

// operate performs the operation of the group with the given sequence number.
func (g *group) operate(ctx context.Context, sequence uint64, c *collective.Call) error {
	n := len(g.members)
	problem := c.Check(g.index, n)
	staged := problem != nil || !g.memory.holds(c.Send) || !g.memory.holds(c.Recv) || c.Part(n) > maxPieceBytes
	staged, err := g.compareCalls(ctx, sequence, c, problem, staged)
	if err != nil {
		return err
	}
	if n == 1 {
		copy(c.Recv, c.Send)
		return nil
	}
	o := &operation{group: g, call: c, sequence: sequence, ctx: ctx, n: n}
	if staged {
		return o.throughWindows()
	}
	return o.inPlace()
}

// operation is one call in progress.
type operation struct {
	*group
	call     *collective.Call
	sequence uint64
	ctx      context.Context
	n        int
}

// begin starts one MPI call.
type begin func(r *libmpi.Handle) error

// run performs one MPI call.
func (o *operation) run(start begin) error { return o.request(o.ctx, o.sequence, false, start) }

// request starts an MPI call of the given operation and waits for it. awaitsRanks is the field of
// [waiting].
func (g *group) request(ctx context.Context, sequence uint64, awaitsRanks bool, start begin) error {
	r := new(libmpi.Handle) // on the heap, because MPI writes to it
	g.mu.Lock()
	err := g.checkClosed()
	if err == nil {
		err = start(r)
	}
	g.mu.Unlock()
	if err != nil {
		return err
	}
	return g.wait(ctx, waiting{request: r, failureReason: func() error { return g.failureReason(sequence) }, awaitsRanks: awaitsRanks})
}

// inPlace performs the call on the ranks' own memory.
func (o *operation) inPlace() error {
	c := o.call
	part := c.Part(o.n)
	if part == 0 {
		return nil
	}
	send, recv := c.Send, c.Recv
	var err error
	switch c.Kind {
	case collective.KindReduceScatter, collective.KindScatter:
		// The result may be this rank's part of its send buffer, which MPI forbids.
		if recv, err = o.memory.alloc(part); err != nil {
			return err
		}
		recv = recv[:part]
	case collective.KindAllGather:
		copy(recv[o.index*part:], send)
	case collective.KindGather:
		if o.index == c.Root {
			copy(recv[o.index*part:], send)
		}
	}
	if err := o.run(o.mpi(send, recv, part)); err != nil {
		return err
	}
	if len(c.Recv) > 0 && len(recv) > 0 && &recv[0] != &c.Recv[0] {
		copy(c.Recv, recv)
		o.memory.release(recv[:cap(recv)])
	}
	o.finish(c.Recv)
	return nil
}

// throughWindows copies pieces of all parts through memory that MPI may access.
func (o *operation) throughWindows() error {
	c := o.call
	part := c.Part(o.n)
	size := c.Type.Size()
	outParts, inParts := 1, 1
	switch c.Kind {
	case collective.KindReduceScatter, collective.KindScatter:
		outParts = o.n
	case collective.KindAllGather, collective.KindGather:
		inParts = o.n
	case collective.KindAllToAll:
		outParts, inParts = o.n, o.n
	}
	step := max(windowBytes/max(outParts, inParts)/size, 1) * size
	step = min(step, part)
	out, err := o.memory.alloc(outParts * step)
	if err != nil {
		return err
	}
	in := out
	if outParts*inParts > 1 {
		if in, err = o.memory.alloc(inParts * step); err != nil {
			return err
		}
	}
	for from := 0; from < part; from += step {
		now := min(step, part-from)
		if o.sends() {
			for p := range outParts {
				copy(out[p*now:][:now], c.Send[p*part+from:])
			}
		}
		if outParts == 1 && inParts > 1 {
			copy(in[o.index*now:][:now], out)
		}
		if err := o.run(o.mpi(out[:outParts*now], in[:inParts*now], now)); err != nil {
			return err // the windows remain in use by MPI
		}
		if !o.receives() {
			continue
		}
		for p := range inParts {
			result := c.Recv[p*part+from:][:now]
			copy(result, in[p*now:])
			o.finish(result)
		}
	}
	o.memory.release(out)
	if outParts*inParts > 1 {
		o.memory.release(in)
	}
	return nil
}

// sends reports whether this rank sends data.
func (o *operation) sends() bool {
	switch o.call.Kind {
	case collective.KindBroadcast, collective.KindScatter:
		return o.index == o.call.Root
	}
	return true
}

// receives reports whether this rank receives data.
func (o *operation) receives() bool {
	switch o.call.Kind {
	case collective.KindReduce, collective.KindGather:
		return o.index == o.call.Root
	}
	return true
}

// finish turns a sum into a mean if the reduction is a mean.
func (o *operation) finish(result []byte) {
	switch o.call.Kind {
	case collective.KindAllReduce, collective.KindReduceScatter, collective.KindReduce:
		if o.receives() {
			o.call.Op.Finish(o.call.Type, result, o.n)
		}
	}
}

// mpi returns the MPI call for parts of the given size in bytes. For gathers, this rank's part is
// already in position.
func (o *operation) mpi(send, recv []byte, part int) begin {
	c, l := o.call, o.lib
	out, in := address(send), address(recv)
	count, kind := part/c.Type.Size(), l.Type(types[c.Type])
	switch c.Kind {
	case collective.KindBroadcast:
		return func(r *libmpi.Handle) error { return l.Ibcast(in, count, kind, c.Root, o.comm, r) }
	case collective.KindAllReduce:
		return func(r *libmpi.Handle) error { return l.Iallreduce(nil, in, count, kind, o.reduction(), o.comm, r) }
	case collective.KindReduce:
		if o.index == c.Root {
			out = nil
		}
		return func(r *libmpi.Handle) error { return l.Ireduce(out, in, count, kind, o.reduction(), c.Root, o.comm, r) }
	case collective.KindReduceScatter:
		return func(r *libmpi.Handle) error {
			return l.IreduceScatterBlock(out, in, count, kind, o.reduction(), o.comm, r)
		}
	case collective.KindAllGather:
		return func(r *libmpi.Handle) error { return l.Iallgather(nil, in, count, kind, o.comm, r) }
	case collective.KindGather:
		if o.index == c.Root {
			out = nil
		}
		return func(r *libmpi.Handle) error { return l.Igather(out, in, count, kind, c.Root, o.comm, r) }
	case collective.KindScatter:
		return func(r *libmpi.Handle) error { return l.Iscatter(out, in, count, kind, c.Root, o.comm, r) }
	}
	// All-to-all. A barrier has no parts: the comparison of the calls is already one.
	return func(r *libmpi.Handle) error { return l.Ialltoall(out, in, count, kind, o.comm, r) }
}

// types maps element types to MPI types. 16-bit floating-point elements are sent as 16-bit
// integers, which only their own reductions interpret.
var types = [...]libmpi.Type{
	element.Float32: libmpi.Float, element.Float64: libmpi.Double, element.BFloat16: libmpi.Uint16, element.Float16: libmpi.Uint16,
	element.Int8: libmpi.Int8, element.Uint8: libmpi.Uint8, element.Int32: libmpi.Int32, element.Uint32: libmpi.Uint32,
	element.Int64: libmpi.Int64, element.Uint64: libmpi.Uint64,
}

// ops maps reductions to MPI reductions.
var ops = [...]libmpi.Op{collective.Sum: libmpi.Sum, collective.Mean: libmpi.Sum, collective.Max: libmpi.Max,
	collective.Min: libmpi.Min, collective.Product: libmpi.Product}

func (o *operation) reduction() libmpi.Handle {
	switch o.call.Type {
	case element.BFloat16:
		return o.halves[0][o.call.Op]
	case element.Float16:
		return o.halves[1][o.call.Op]
	}
	return o.lib.Op(ops[o.call.Op])
}

// address returns the address of b. MPI requires one for an empty buffer also.
func address(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
