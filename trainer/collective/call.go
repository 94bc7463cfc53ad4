package collective

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/mesh"
)

// A Kind identifies an operation.
type Kind uint8

// The kinds of operations follow MPI.
const (
	KindBarrier Kind = iota + 1
	KindBroadcast
	KindReduce
	KindAllReduce
	KindReduceScatter
	KindAllGather
	KindGather
	KindScatter
	KindAllToAll
	KindSend
	KindReceive
	kindSplit // creates a group or shared memory
)

var kindNames = [...]string{"", "barrier", "broadcast", "reduce", "all-reduce", "reduce-scatter", "all-gather",
	"gather", "scatter", "all-to-all", "send", "receive", "split"}

// String returns the name of the operation for messages.
func (k Kind) String() string {
	if int(k) >= len(kindNames) || k == 0 {
		return fmt.Sprintf("operation %d", uint8(k))
	}
	return kindNames[k]
}

// IsDirect reports whether the call is point-to-point.
func (k Kind) IsDirect() bool { return k == KindSend || k == KindReceive }

// reduces reports whether the call combines elements.
func (k Kind) reduces() bool {
	return k == KindReduce || k == KindAllReduce || k == KindReduceScatter
}

// rooted reports whether the call has a root rank.
func (k Kind) rooted() bool {
	return k == KindBroadcast || k == KindReduce || k == KindGather || k == KindScatter
}

// A Call is an operation with its arguments. The functions of this package create calls.
type Call struct {
	Kind Kind
	Type Type
	Op   Op  // for reductions only
	Root int // for operations that have a root; the other rank of a point-to-point message
	Tag  int // for point-to-point messages only
	// Send is this rank's input and Recv its output. They are the same memory if the operation
	// works in place. Otherwise they must not overlap, except that the shorter one may be this
	// rank's part of the longer one.
	Send, Recv []byte

	// These are set only in a part of a hierarchical operation: the signature of the caller's
	// operation, and the work in shared memory.
	parent *mesh.Signature
	step   *sharedStep
}

// Barrier waits until every rank has entered it.
func Barrier() Call { return Call{Kind: KindBarrier, Type: element.Uint8} }

// Broadcast copies root's buf to every rank.
func Broadcast[T Number](buf []T, root int) Call {
	b := element.Bytes(buf)
	return Call{Kind: KindBroadcast, Type: element.Of[T](), Root: root, Send: b, Recv: b}
}

// Reduce replaces buf on root by the element-wise reduction over all ranks.
func Reduce[T Number](buf []T, op Op, root int) Call {
	b := element.Bytes(buf)
	return Call{Kind: KindReduce, Type: element.Of[T](), Op: op, Root: root, Send: b, Recv: b}
}

// AllReduce replaces buf on every rank by the element-wise reduction over all ranks.
func AllReduce[T Number](buf []T, op Op) Call {
	b := element.Bytes(buf)
	return Call{Kind: KindAllReduce, Type: element.Of[T](), Op: op, Send: b, Recv: b}
}

// ReduceScatter reduces send, which has one part of len(recv) per rank, over all ranks, and stores
// this rank's part in recv.
func ReduceScatter[T Number](recv, send []T, op Op) Call {
	return Call{Kind: KindReduceScatter, Type: element.Of[T](), Op: op, Send: element.Bytes(send), Recv: element.Bytes(recv)}
}

// AllGather concatenates the send buffers of all ranks, in rank order, in every rank's recv.
func AllGather[T Number](recv, send []T) Call {
	return Call{Kind: KindAllGather, Type: element.Of[T](), Send: element.Bytes(send), Recv: element.Bytes(recv)}
}

// Gather concatenates the send buffers of all ranks in root's recv. It ignores recv on other ranks.
func Gather[T Number](recv, send []T, root int) Call {
	return Call{Kind: KindGather, Type: element.Of[T](), Root: root, Send: element.Bytes(send), Recv: element.Bytes(recv)}
}

// Scatter copies each rank's part of root's send to its recv. It ignores send on other ranks.
func Scatter[T Number](recv, send []T, root int) Call {
	return Call{Kind: KindScatter, Type: element.Of[T](), Root: root, Send: element.Bytes(send), Recv: element.Bytes(recv)}
}

// AllToAll sends part i of send to rank i and stores the data from rank i in part i of recv. All
// parts have the same length.
func AllToAll[T Number](recv, send []T) Call {
	return Call{Kind: KindAllToAll, Type: element.Of[T](), Send: element.Bytes(send), Recv: element.Bytes(recv)}
}

// Send sends buf to a rank, which must receive it with the same tag and length. Messages with the
// same tag arrive in order. A message of up to 256 KiB is sent immediately. A longer one waits
// until the other rank receives it, so two ranks that both send one before they receive deadlock
// until the timeout: let one of them receive first, or use [Communicator.Start].
func Send[T Number](buf []T, to, tag int) Call {
	return Call{Kind: KindSend, Type: element.Of[T](), Root: to, Tag: tag, Send: element.Bytes(buf)}
}

// Receive receives a message of [Send] into buf.
func Receive[T Number](buf []T, from, tag int) Call {
	return Call{Kind: KindReceive, Type: element.Of[T](), Root: from, Tag: tag, Recv: element.Bytes(buf)}
}

// Part returns the number of bytes that belong to one of n ranks, or the length of the whole buffer
// if the operation does not divide it.
func (c *Call) Part(n int) int {
	switch c.Kind {
	case KindReduceScatter, KindScatter:
		return len(c.Recv)
	case KindAllToAll:
		return len(c.Send) / n
	}
	return len(c.Send)
}

// Check checks the arguments on a rank of a group of the given size.
func (c *Call) Check(rank, size int) error {
	if !c.Type.Valid() {
		return fmt.Errorf("unsupported element type %v", c.Type)
	}
	if c.Kind.reduces() && !c.Op.Valid() {
		return fmt.Errorf("unknown reduction %v", c.Op)
	}
	if (c.Kind.rooted() || c.Kind.IsDirect()) && (c.Root < 0 || c.Root >= size) {
		return fmt.Errorf("rank %d is out of range: the group has %d ranks", c.Root, size)
	}
	if c.Kind.IsDirect() && (c.Root == rank || c.Tag < 0) {
		return fmt.Errorf("invalid message: rank %d is this rank, or tag %d is negative", c.Root, c.Tag)
	}
	long, short := len(c.Recv), len(c.Send)
	switch c.Kind {
	case KindReduceScatter:
		long, short = short, long
	case KindScatter:
		if rank != c.Root {
			return nil
		}
		long, short = short, long
	case KindGather:
		if rank != c.Root {
			return nil
		}
	case KindAllGather:
	case KindAllToAll:
		if long != short || long%(size*c.Type.Size()) != 0 {
			return fmt.Errorf("buffers of %d and %d bytes do not have %d equal parts", short, long, size)
		}
		return nil
	default:
		return nil
	}
	if long != size*short {
		return fmt.Errorf("a buffer of %d bytes does not have %d parts of %d", long, size, short)
	}
	return nil
}
