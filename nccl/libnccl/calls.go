package libnccl

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

// AllReduce reduces count elements of every rank's send into every rank's recv, which may
// equal send. Buffers are addresses of GPU memory.
func (l *Library) AllReduce(send, recv uintptr, count int, t Type, o Op, c Comm, stream uintptr) error {
	return l.result("ncclAllReduce", c, l.f.allReduce(send, recv, uintptr(count), t, o, c, stream))
}

// ReduceScatter reduces the send buffers of all ranks, and stores a shard of count elements in
// each rank's recv.
func (l *Library) ReduceScatter(send, recv uintptr, count int, t Type, o Op, c Comm, stream uintptr) error {
	return l.result("ncclReduceScatter", c, l.f.reduceScatter(send, recv, uintptr(count), t, o, c, stream))
}

// AllGather concatenates count elements of every rank, in rank order, in every rank's recv.
func (l *Library) AllGather(send, recv uintptr, count int, t Type, c Comm, stream uintptr) error {
	return l.result("ncclAllGather", c, l.f.allGather(send, recv, uintptr(count), t, c, stream))
}
