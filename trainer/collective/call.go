package collective

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/mesh"
)

// Kind is what a call does.
type Kind uint8

// The kinds of calls.
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
	kindSplit // making a group or common memory
)

var kindNames = [...]string{"", "barrier", "broadcast", "reduce", "all-reduce", "reduce-scatter", "all-gather",
	"gather", "scatter", "all-to-all", "send", "receive", "split"}

// String is the operation's name in messages.
func (k Kind) String() string {
	if int(k) >= len(kindNames) || k == 0 {
		return fmt.Sprintf("operation %d", uint8(k))
	}
	return kindNames[k]
}

// direct reports whether the call is between two ranks only.
func (k Kind) direct() bool { return k == KindSend || k == KindReceive }

// reduces reports whether elements are combined.
func (k Kind) reduces() bool {
	return k == KindReduce || k == KindAllReduce || k == KindReduceScatter
}

// rooted reports whether one rank differs from the others.
func (k Kind) rooted() bool {
	return k == KindBroadcast || k == KindReduce || k == KindGather || k == KindScatter
}

// Call is an operation with its arguments. Functions of this package make them.
type Call struct {
	Kind Kind
	Type Type
	Op   Op  // of a reduction
	Root int // of an operation that has one; the other rank of a message
	Tag  int // of a message
	// Send is what this rank brings, Recv where its result goes; they are the same
	// memory where an operation works in place. They must not overlap otherwise, but
	// for this rank's part of the longer one, which may be the shorter one.
	Send, Recv []byte

	// Of a part of an operation: what the caller's has asked for, and what is done in
	// common memory.
	asked *mesh.Signature
	look  *look
}

// Barrier waits until every rank has entered it.
func Barrier() Call { return Call{Kind: KindBarrier, Type: element.Uint8} }

// Broadcast replaces buf on every rank by root's.
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

// ReduceScatter reduces send, which has a part of len(recv) for each rank, over all
// ranks, and puts this rank's part into recv.
func ReduceScatter[T Number](recv, send []T, op Op) Call {
	return Call{Kind: KindReduceScatter, Type: element.Of[T](), Op: op, Send: element.Bytes(send), Recv: element.Bytes(recv)}
}

// AllGather puts what all ranks send, one after another, into every rank's recv.
func AllGather[T Number](recv, send []T) Call {
	return Call{Kind: KindAllGather, Type: element.Of[T](), Send: element.Bytes(send), Recv: element.Bytes(recv)}
}

// Gather puts what all ranks send, one after another, into root's recv; the others'
// is not looked at.
func Gather[T Number](recv, send []T, root int) Call {
	return Call{Kind: KindGather, Type: element.Of[T](), Root: root, Send: element.Bytes(send), Recv: element.Bytes(recv)}
}

// Scatter puts each rank's part of root's send into its recv; the others' send is not
// looked at.
func Scatter[T Number](recv, send []T, root int) Call {
	return Call{Kind: KindScatter, Type: element.Of[T](), Root: root, Send: element.Bytes(send), Recv: element.Bytes(recv)}
}

// AllToAll sends part i of send to rank i, and puts what comes from rank i into part i
// of recv. All parts are of one length.
func AllToAll[T Number](recv, send []T) Call {
	return Call{Kind: KindAllToAll, Type: element.Of[T](), Send: element.Bytes(send), Recv: element.Bytes(recv)}
}

// Send sends buf to a rank, which must receive it with the same tag and length.
// Messages of one tag arrive in their order. Up to 256 KiB are sent at once; more waits
// until the other rank receives, so two ranks that both send so much before they receive
// wait for each other until the timeout: let one receive first, or use Start.
func Send[T Number](buf []T, to, tag int) Call {
	return Call{Kind: KindSend, Type: element.Of[T](), Root: to, Tag: tag, Send: element.Bytes(buf)}
}

// Receive is the other end of [Send].
func Receive[T Number](buf []T, from, tag int) Call {
	return Call{Kind: KindReceive, Type: element.Of[T](), Root: from, Tag: tag, Recv: element.Bytes(buf)}
}

// part is the bytes that belong to one of n ranks; where an operation has no parts,
// all.
func (c *Call) part(n int) int {
	switch c.Kind {
	case KindReduceScatter, KindScatter:
		return len(c.Recv)
	case KindAllToAll:
		return len(c.Send) / n
	}
	return len(c.Send)
}

// check says what is wrong with the arguments on this rank.
func (c *Call) check(rank, size int) error {
	if !c.Type.Valid() {
		return fmt.Errorf("no elements of %v", c.Type)
	}
	if c.Kind.reduces() && !c.Op.Valid() {
		return fmt.Errorf("no reduction called %v", c.Op)
	}
	if (c.Kind.rooted() || c.Kind.direct()) && (c.Root < 0 || c.Root >= size) {
		return fmt.Errorf("rank %d is none of %d", c.Root, size)
	}
	if c.Kind.direct() && (c.Root == rank || c.Tag < 0) {
		return fmt.Errorf("a message to oneself or with a negative tag (rank %d, tag %d)", c.Root, c.Tag)
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
