package libnccl

import "unsafe"

// result returns the error for the result of a call. InProgress is not an error: with a
// nonblocking communicator, the caller polls [Library.AsyncError].
func (l *Library) result(call string, c Comm, r Result) error {
	if r == Success || r == InProgress {
		return nil
	}
	return &Error{Call: call, Result: r, Last: text(l.f.getLastError(c))}
}

// NewUniqueID returns the ID that the ranks of a new communicator share. NCCL starts to listen
// for them on the interface that NCCL_SOCKET_IFNAME selects.
func (l *Library) NewUniqueID() (UniqueID, error) {
	var id UniqueID
	return id, l.result("ncclGetUniqueId", 0, l.f.getUniqueID(&id))
}

// CommInitRank starts to connect a rank to the other ranks, which must all call it. NCCL
// writes the handle to out, possibly several times until the rank is connected. The caller
// must pin out.
func (l *Library) CommInitRank(out *Comm, size int, id UniqueID, rank int, config *Config) error {
	return l.result("ncclCommInitRankConfig", 0, l.f.commInitRankConfig(out, int32(size), id, int32(rank), config))
}

// CanSplit reports whether this version has [Library.CommSplit].
func (l *Library) CanSplit() bool { return l.f.commSplit != nil }

// CommSplit starts to create communicators of the ranks with the same color, ordered by key.
// Every rank must call it; ranks with [NoColor] get no communicator. out must be pinned as for
// [Library.CommInitRank]. c is busy until the split is complete.
func (l *Library) CommSplit(c Comm, color, key int, out *Comm, config *Config) error {
	return l.result("ncclCommSplit", c, l.f.commSplit(c, int32(color), int32(key), out, config))
}

// CommFinalize starts to finalize a communicator. All of its ranks must call it.
func (l *Library) CommFinalize(c Comm) error {
	return l.result("ncclCommFinalize", c, l.f.commFinalize(c))
}

// CommDestroy frees a finalized communicator.
func (l *Library) CommDestroy(c Comm) error {
	return l.result("ncclCommDestroy", 0, l.f.commDestroy(c))
}

// CommAbort aborts operations in progress and frees a communicator, regardless of the other
// ranks.
func (l *Library) CommAbort(c Comm) error { return l.result("ncclCommAbort", 0, l.f.commAbort(c)) }

// AsyncError returns the state of a communicator. busy reports whether an asynchronous call is
// still in progress.
func (l *Library) AsyncError(c Comm) (busy bool, err error) {
	var state Result
	if err := l.result("ncclCommGetAsyncError", c, l.f.commGetAsyncError(c, &state)); err != nil {
		return false, err
	}
	return state == InProgress, l.result("asynchronous error", c, state)
}

// GroupStart starts a group of all calls of this thread until [Library.GroupEnd].
func (l *Library) GroupStart() error { return l.result("ncclGroupStart", 0, l.f.groupStart()) }

// GroupEnd starts the calls of the group.
func (l *Library) GroupEnd() error { return l.result("ncclGroupEnd", 0, l.f.groupEnd()) }

// AllReduce reduces count elements of every rank's send into every rank's recv, which may
// equal send.
func (l *Library) AllReduce(send, recv unsafe.Pointer, count int, t Type, o Op, c Comm, stream uintptr) error {
	return l.result("ncclAllReduce", c, l.f.allReduce(send, recv, uintptr(count), t, o, c, stream))
}

// ReduceScatter reduces the send buffers of all ranks, and stores a shard of count elements in
// each rank's recv.
func (l *Library) ReduceScatter(send, recv unsafe.Pointer, count int, t Type, o Op, c Comm, stream uintptr) error {
	return l.result("ncclReduceScatter", c, l.f.reduceScatter(send, recv, uintptr(count), t, o, c, stream))
}

// Reduce reduces count elements of every rank's send into root's recv.
func (l *Library) Reduce(send, recv unsafe.Pointer, count int, t Type, o Op, root int, c Comm, stream uintptr) error {
	return l.result("ncclReduce", c, l.f.reduce(send, recv, uintptr(count), t, o, int32(root), c, stream))
}

// Broadcast copies count elements of root's send to every rank's recv.
func (l *Library) Broadcast(send, recv unsafe.Pointer, count int, t Type, root int, c Comm, stream uintptr) error {
	return l.result("ncclBroadcast", c, l.f.broadcast(send, recv, uintptr(count), t, int32(root), c, stream))
}

// AllGather concatenates count elements of every rank, in rank order, in every rank's recv.
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
