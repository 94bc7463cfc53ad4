package libmpi

import (
	"errors"
	"strings"
	"unsafe"
)

// check converts an MPI error code to an error.
func (l *Library) check(function string, code int32) error {
	if code == 0 {
		return nil
	}
	text := make([]byte, 1024) // MPI_MAX_ERROR_STRING is 256 in Open MPI, 512 in MPICH
	var n int32
	e := &Error{Function: function, Code: int(code), Text: "unknown error"}
	if call(l.errorString, uintptr(uint32(code)), uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(&n))) == 0 {
		e.Text = strings.Join(strings.Fields(strings.TrimRight(string(text[:n]), "\x00")), " ")
	}
	return e
}

// threadSerialized is the requested level of thread support: calls from any thread, one at a time.
const threadSerialized = 2

// Init initializes MPI with MPI_THREAD_SERIALIZED and makes the errors of MPI_COMM_WORLD returned.
// It waits for the other processes. The caller must keep the thread for Finalize
// (runtime.LockOSThread). Init restores the signal handlers that were installed before the library
// was loaded.
func (l *Library) Init() (provided int, err error) {
	defer l.signals.restore()
	var done, level int32
	if err := l.check("MPI_Initialized", call(l.initialized, uintptr(unsafe.Pointer(&done)))); err != nil {
		return 0, err
	}
	if done != 0 {
		return 0, errors.New("MPI is already initialized in this process")
	}
	if err := l.check("MPI_Init_thread", call(l.initThread, 0, 0, threadSerialized, uintptr(unsafe.Pointer(&level)))); err != nil {
		return 0, err
	}
	return int(level), l.CommSetErrorsReturn(l.world)
}

// Serialized reports whether the provided level of thread support allows calls from any thread.
func Serialized(provided int) bool { return provided >= threadSerialized }

// Finalize finalizes MPI. It may wait for the other processes.
func (l *Library) Finalize() error { return l.check("MPI_Finalize", call(l.finalize)) }

// CommSetErrorsReturn makes the errors of c returned, instead of fatal.
func (l *Library) CommSetErrorsReturn(c Handle) error {
	return l.check("MPI_Comm_set_errhandler", call(l.commSetErrhandler, uintptr(c), uintptr(l.errorsReturn)))
}

// CommRank returns the rank of this process in c.
func (l *Library) CommRank(c Handle) (int, error) {
	var n int32
	err := l.check("MPI_Comm_rank", call(l.commRank, uintptr(c), uintptr(unsafe.Pointer(&n))))
	return int(n), err
}

// CommSize returns the number of processes of c.
func (l *Library) CommSize(c Handle) (int, error) {
	var n int32
	err := l.check("MPI_Comm_size", call(l.commSize, uintptr(c), uintptr(unsafe.Pointer(&n))))
	return int(n), err
}

// CommDup duplicates c. It waits for the other processes.
func (l *Library) CommDup(c Handle) (Handle, error) {
	var out Handle // MPICH writes four bytes, Open MPI eight
	err := l.check("MPI_Comm_dup", call(l.commDup, uintptr(c), uintptr(unsafe.Pointer(&out))))
	return out, err
}

// CommSplit splits c. It waits for the other processes. Every process must pass a color.
func (l *Library) CommSplit(c Handle, color, key int) (Handle, error) {
	var out Handle
	err := l.check("MPI_Comm_split", call(l.commSplit, uintptr(c), uintptr(uint32(color)), uintptr(uint32(key)), uintptr(unsafe.Pointer(&out))))
	return out, err
}

// CommFree frees c.
func (l *Library) CommFree(c Handle) error {
	return l.check("MPI_Comm_free", call(l.commFree, uintptr(unsafe.Pointer(&c))))
}

// MaxTag returns the largest tag of a message (MPI_TAG_UB).
func (l *Library) MaxTag(c Handle) (int, error) {
	var value *int32
	var found int32
	err := l.check("MPI_Comm_get_attr", call(l.commGetAttr, uintptr(c), uintptr(uint32(l.tagUB)), uintptr(unsafe.Pointer(&value)), uintptr(unsafe.Pointer(&found))))
	if err != nil || found == 0 {
		return 32767, err // the minimum in the MPI standard
	}
	return int(*value), nil
}

// OpCreate creates a commutative reduction from a Go function. MPI calls it during other calls, on
// their threads, with the addresses of count elements each: inout = in op inout. It is never freed.
func (l *Library) OpCreate(f func(in, inout unsafe.Pointer, count int)) (Handle, error) {
	var out Handle
	err := l.check("MPI_Op_create", call(l.opCreate, callback(f), 1, uintptr(unsafe.Pointer(&out))))
	return out, err
}

// Test reports whether a request has finished. A finished request becomes MPI_REQUEST_NULL.
func (l *Library) Test(r *Handle) (bool, error) {
	var done int32
	err := l.check("MPI_Test", call(l.test, uintptr(unsafe.Pointer(r)), uintptr(unsafe.Pointer(&done)), l.statusIgnore))
	return done != 0, err
}

// Cancel requests the cancellation of a request. Test reports when it has finished.
func (l *Library) Cancel(r *Handle) error {
	return l.check("MPI_Cancel", call(l.cancel, uintptr(unsafe.Pointer(r))))
}

// The operations below start and return a request. Buffers must not move or be freed until the
// request has finished. Counts are elements, per part if the operation has parts. A nil send buffer
// is MPI_IN_PLACE.

// from returns the address of a send buffer, or MPI_IN_PLACE if p is nil.
func (l *Library) from(p unsafe.Pointer) uintptr {
	if p == nil {
		return l.inPlace
	}
	return uintptr(p)
}

// Ibcast calls MPI_Ibcast.
func (l *Library) Ibcast(buf unsafe.Pointer, count int, t Handle, root int, c Handle, r *Handle) error {
	return l.check("MPI_Ibcast", call(l.ibcast, uintptr(buf), uintptr(count), uintptr(t), uintptr(root), uintptr(c), uintptr(unsafe.Pointer(r))))
}

// Iallreduce calls MPI_Iallreduce.
func (l *Library) Iallreduce(send, recv unsafe.Pointer, count int, t, op, c Handle, r *Handle) error {
	return l.check("MPI_Iallreduce", call(l.iallreduce, l.from(send), uintptr(recv), uintptr(count), uintptr(t), uintptr(op), uintptr(c), uintptr(unsafe.Pointer(r))))
}

// Ireduce calls MPI_Ireduce. On root, a nil send is MPI_IN_PLACE.
func (l *Library) Ireduce(send, recv unsafe.Pointer, count int, t, op Handle, root int, c Handle, r *Handle) error {
	return l.check("MPI_Ireduce", call(l.ireduce, l.from(send), uintptr(recv), uintptr(count), uintptr(t), uintptr(op), uintptr(root), uintptr(c), uintptr(unsafe.Pointer(r))))
}

// IreduceScatterBlock calls MPI_Ireduce_scatter_block with parts of count elements.
func (l *Library) IreduceScatterBlock(send, recv unsafe.Pointer, count int, t, op, c Handle, r *Handle) error {
	return l.check("MPI_Ireduce_scatter_block", call(l.ireduceScatterBlock, l.from(send), uintptr(recv), uintptr(count), uintptr(t), uintptr(op), uintptr(c), uintptr(unsafe.Pointer(r))))
}

// Iallgather calls MPI_Iallgather.
func (l *Library) Iallgather(send, recv unsafe.Pointer, count int, t, c Handle, r *Handle) error {
	return l.check("MPI_Iallgather", call(l.iallgather, l.from(send), uintptr(count), uintptr(t), uintptr(recv), uintptr(count), uintptr(t), uintptr(c), uintptr(unsafe.Pointer(r))))
}

// Igather calls MPI_Igather.
func (l *Library) Igather(send, recv unsafe.Pointer, count int, t Handle, root int, c Handle, r *Handle) error {
	return l.check("MPI_Igather", call(l.igather, l.from(send), uintptr(count), uintptr(t), uintptr(recv), uintptr(count), uintptr(t), uintptr(root), uintptr(c), uintptr(unsafe.Pointer(r))))
}

// Iscatter calls MPI_Iscatter.
func (l *Library) Iscatter(send, recv unsafe.Pointer, count int, t Handle, root int, c Handle, r *Handle) error {
	return l.check("MPI_Iscatter", call(l.iscatter, uintptr(send), uintptr(count), uintptr(t), uintptr(recv), uintptr(count), uintptr(t), uintptr(root), uintptr(c), uintptr(unsafe.Pointer(r))))
}

// Ialltoall calls MPI_Ialltoall.
func (l *Library) Ialltoall(send, recv unsafe.Pointer, count int, t, c Handle, r *Handle) error {
	return l.check("MPI_Ialltoall", call(l.ialltoall, l.from(send), uintptr(count), uintptr(t), uintptr(recv), uintptr(count), uintptr(t), uintptr(c), uintptr(unsafe.Pointer(r))))
}

// Isend calls MPI_Isend.
func (l *Library) Isend(buf unsafe.Pointer, count int, t Handle, to, tag int, c Handle, r *Handle) error {
	return l.check("MPI_Isend", call(l.isend, uintptr(buf), uintptr(count), uintptr(t), uintptr(to), uintptr(tag), uintptr(c), uintptr(unsafe.Pointer(r))))
}

// Irecv calls MPI_Irecv.
func (l *Library) Irecv(buf unsafe.Pointer, count int, t Handle, from, tag int, c Handle, r *Handle) error {
	return l.check("MPI_Irecv", call(l.irecv, uintptr(buf), uintptr(count), uintptr(t), uintptr(uint32(from)), uintptr(tag), uintptr(c), uintptr(unsafe.Pointer(r))))
}

// AnySource returns MPI_ANY_SOURCE, which matches every sender.
func (l *Library) AnySource() int { return int(l.anySource) }
