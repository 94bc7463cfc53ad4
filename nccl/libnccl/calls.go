package libnccl

import "unsafe"

// result makes an error of what a call returned. InProgress is none: the caller of a
// communicator that does not block asks [Library.AsyncError] how it went on.
func (l *Library) result(call string, c Comm, r Result) error {
	if r == Success || r == InProgress {
		return nil
	}
	return &Error{Call: call, Result: r, Last: text(l.f.getLastError(c))}
}

// NewUniqueID returns what makes the ranks that have it one communicator. NCCL begins
// to listen for them, on the interface that NCCL_SOCKET_IFNAME chooses.
func (l *Library) NewUniqueID() (UniqueID, error) {
	var id UniqueID
	return id, l.result("ncclGetUniqueId", 0, l.f.getUniqueID(&id))
}

// CommInitRank begins to connect a rank with the others, all of which must call it. NCCL
// writes the handle to out, and may do so again until it is connected: out must be
// pinned.
func (l *Library) CommInitRank(out *Comm, size int, id UniqueID, rank int, config *Config) error {
	return l.result("ncclCommInitRankConfig", 0, l.f.commInitRankConfig(out, int32(size), id, int32(rank), config))
}

// CanSplit reports whether this version has [Library.CommSplit].
func (l *Library) CanSplit() bool { return l.f.commSplit != nil }

// CommSplit begins to make communicators of the ranks with the same color, ordered by
// key. Every rank must call it; one with [NoColor] gets none. out is as for
// [Library.CommInitRank], and c busy meanwhile.
func (l *Library) CommSplit(c Comm, color, key int, out *Comm, config *Config) error {
	return l.result("ncclCommSplit", c, l.f.commSplit(c, int32(color), int32(key), out, config))
}

// CommFinalize begins to end a communicator, for which all its ranks must be ready.
func (l *Library) CommFinalize(c Comm) error {
	return l.result("ncclCommFinalize", c, l.f.commFinalize(c))
}

// CommDestroy frees a communicator that is finalized.
func (l *Library) CommDestroy(c Comm) error {
	return l.result("ncclCommDestroy", 0, l.f.commDestroy(c))
}

// CommAbort ends operations that are under way and frees a communicator, whatever the
// other ranks do.
func (l *Library) CommAbort(c Comm) error { return l.result("ncclCommAbort", 0, l.f.commAbort(c)) }

// AsyncError is how a communicator is: nil and busy while a call that was begun goes
// on, nil when all is well.
func (l *Library) AsyncError(c Comm) (busy bool, err error) {
	var state Result
	if err := l.result("ncclCommGetAsyncError", c, l.f.commGetAsyncError(c, &state)); err != nil {
		return false, err
	}
	return state == InProgress, l.result("asynchronous error", c, state)
}

// GroupStart has the calls of this thread up to [Library.GroupEnd] be one.
func (l *Library) GroupStart() error { return l.result("ncclGroupStart", 0, l.f.groupStart()) }

// GroupEnd has the calls since [Library.GroupStart] begin.
func (l *Library) GroupEnd() error { return l.result("ncclGroupEnd", 0, l.f.groupEnd()) }

// AllReduce reduces count elements of every rank's send into every rank's recv, which
// may be send.
func (l *Library) AllReduce(send, recv unsafe.Pointer, count int, t Type, o Op, c Comm, stream uintptr) error {
	return l.result("ncclAllReduce", c, l.f.allReduce(send, recv, uintptr(count), t, o, c, stream))
}

// ReduceScatter reduces each rank's count elements of everybody's send into its recv.
func (l *Library) ReduceScatter(send, recv unsafe.Pointer, count int, t Type, o Op, c Comm, stream uintptr) error {
	return l.result("ncclReduceScatter", c, l.f.reduceScatter(send, recv, uintptr(count), t, o, c, stream))
}

// Reduce reduces count elements of every rank's send into root's recv.
func (l *Library) Reduce(send, recv unsafe.Pointer, count int, t Type, o Op, root int, c Comm, stream uintptr) error {
	return l.result("ncclReduce", c, l.f.reduce(send, recv, uintptr(count), t, o, int32(root), c, stream))
}

// Broadcast puts count elements of root's send into every rank's recv.
func (l *Library) Broadcast(send, recv unsafe.Pointer, count int, t Type, root int, c Comm, stream uintptr) error {
	return l.result("ncclBroadcast", c, l.f.broadcast(send, recv, uintptr(count), t, int32(root), c, stream))
}

// AllGather puts count elements of every rank, one after another, into every recv.
func (l *Library) AllGather(send, recv unsafe.Pointer, count int, t Type, c Comm, stream uintptr) error {
	return l.result("ncclAllGather", c, l.f.allGather(send, recv, uintptr(count), t, c, stream))
}

// Send sends count elements to a rank, which must receive them.
func (l *Library) Send(buf unsafe.Pointer, count int, t Type, peer int, c Comm, stream uintptr) error {
	return l.result("ncclSend", c, l.f.send(buf, uintptr(count), t, int32(peer), c, stream))
}

// Recv receives count elements from a rank.
func (l *Library) Recv(buf unsafe.Pointer, count int, t Type, peer int, c Comm, stream uintptr) error {
	return l.result("ncclRecv", c, l.f.recv(buf, uintptr(count), t, int32(peer), c, stream))
}
