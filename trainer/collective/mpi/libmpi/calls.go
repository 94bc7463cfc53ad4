package libmpi

import (
	"strings"
	"unsafe"
)

// check makes a Go error of an error code.
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

// The level of thread support that Init asks for: calls from any thread, one at a time.
const threadSerialized = 2

// Init initialises MPI with MPI_THREAD_SERIALIZED and makes errors of the communicator of
// all be returned. It waits for the other processes. The thread must be kept for Finalize
// (runtime.LockOSThread). Afterwards the signals are handled as before the library was
// loaded.
func (l *Library) Init() (provided int, err error) {
	defer l.signals.restore()
	var done, level int32
	if err := l.check("MPI_Initialized", call(l.initialized, uintptr(unsafe.Pointer(&done)))); err != nil {
		return 0, err
	}
	if done == 0 {
		err := l.check("MPI_Init_thread", call(l.initThread, 0, 0, threadSerialized, uintptr(unsafe.Pointer(&level))))
		if err != nil {
			return 0, err
		}
	}
	return int(level), l.CommSetErrorsReturn(l.world)
}

// Serialized reports whether a level of thread support lets any thread call.
func Serialized(provided int) bool { return provided >= threadSerialized }

// Finalize ends MPI; it may wait for the other processes.
func (l *Library) Finalize() error { return l.check("MPI_Finalize", call(l.finalize)) }

// CommSetErrorsReturn makes errors of c be returned, not end the process.
func (l *Library) CommSetErrorsReturn(c Handle) error {
	return l.check("MPI_Comm_set_errhandler", call(l.commSetErrhandler, uintptr(c), uintptr(l.errorsReturn)))
}

// CommRank is this process's number in c.
func (l *Library) CommRank(c Handle) (int, error) {
	var n int32
	err := l.check("MPI_Comm_rank", call(l.commRank, uintptr(c), uintptr(unsafe.Pointer(&n))))
	return int(n), err
}

// CommSize is the number of processes of c.
func (l *Library) CommSize(c Handle) (int, error) {
	var n int32
	err := l.check("MPI_Comm_size", call(l.commSize, uintptr(c), uintptr(unsafe.Pointer(&n))))
	return int(n), err
}

// CommDup copies c. It waits for the others.
func (l *Library) CommDup(c Handle) (Handle, error) {
	var out Handle // MPICH writes four bytes, Open MPI eight
	err := l.check("MPI_Comm_dup", call(l.commDup, uintptr(c), uintptr(unsafe.Pointer(&out))))
	return out, err
}

// CommSplit divides c. It waits for the others. Every process must give a color.
func (l *Library) CommSplit(c Handle, color, key int) (Handle, error) {
	var out Handle
	err := l.check("MPI_Comm_split", call(l.commSplit, uintptr(c), uintptr(uint32(color)), uintptr(uint32(key)), uintptr(unsafe.Pointer(&out))))
	return out, err
}

// CommFree gives c back.
func (l *Library) CommFree(c Handle) error {
	return l.check("MPI_Comm_free", call(l.commFree, uintptr(unsafe.Pointer(&c))))
}

// MaxTag is the largest tag of a message (MPI_TAG_UB).
func (l *Library) MaxTag(c Handle) (int, error) {
	var value *int32
	var found int32
	err := l.check("MPI_Comm_get_attr", call(l.commGetAttr, uintptr(c), uintptr(uint32(l.tagUB)), uintptr(unsafe.Pointer(&value)), uintptr(unsafe.Pointer(&found))))
	if err != nil || found == 0 {
		return 32767, err // what the standard grants
	}
	return int(*value), nil
}

// OpCreate makes a commutative reduction of a Go function, which is called during other
// calls, on their threads, with the addresses of count elements each: inout = in op
// inout. It is never freed.
func (l *Library) OpCreate(f func(in, inout unsafe.Pointer, count int)) (Handle, error) {
	var out Handle
	err := l.check("MPI_Op_create", call(l.opCreate, callback(f), 1, uintptr(unsafe.Pointer(&out))))
	return out, err
}

// Test reports whether a request is over; a request that is becomes none.
func (l *Library) Test(r *Handle) (bool, error) {
	var done int32
	err := l.check("MPI_Test", call(l.test, uintptr(unsafe.Pointer(r)), uintptr(unsafe.Pointer(&done)), l.statusIgnore))
	return done != 0, err
}

// Cancel asks for the end of a request; Test tells when it has come.
func (l *Library) Cancel(r *Handle) error {
	return l.check("MPI_Cancel", call(l.cancel, uintptr(unsafe.Pointer(r))))
}

// The operations below begin, and give a request. Buffers are addresses of memory that
// stays where it is until the request is over; counts are elements, of each rank's part
// where there are parts. A nil send buffer is MPI_IN_PLACE.

// from is a send buffer or, if it is nil, MPI_IN_PLACE.
func (l *Library) from(p unsafe.Pointer) uintptr {
	if p == nil {
		return l.inPlace
	}
	return uintptr(p)
}

// Ibarrier is MPI_Ibarrier.
func (l *Library) Ibarrier(c Handle, r *Handle) error {
	return l.check("MPI_Ibarrier", call(l.ibarrier, uintptr(c), uintptr(unsafe.Pointer(r))))
}

// Ibcast is MPI_Ibcast.
func (l *Library) Ibcast(buf unsafe.Pointer, count int, t Handle, root int, c Handle, r *Handle) error {
	return l.check("MPI_Ibcast", call(l.ibcast, uintptr(buf), uintptr(count), uintptr(t), uintptr(root), uintptr(c), uintptr(unsafe.Pointer(r))))
}

// Iallreduce is MPI_Iallreduce.
func (l *Library) Iallreduce(send, recv unsafe.Pointer, count int, t, op, c Handle, r *Handle) error {
	return l.check("MPI_Iallreduce", call(l.iallreduce, l.from(send), uintptr(recv), uintptr(count), uintptr(t), uintptr(op), uintptr(c), uintptr(unsafe.Pointer(r))))
}

// Ireduce is MPI_Ireduce; on root a nil send is MPI_IN_PLACE.
func (l *Library) Ireduce(send, recv unsafe.Pointer, count int, t, op Handle, root int, c Handle, r *Handle) error {
	return l.check("MPI_Ireduce", call(l.ireduce, l.from(send), uintptr(recv), uintptr(count), uintptr(t), uintptr(op), uintptr(root), uintptr(c), uintptr(unsafe.Pointer(r))))
}

// IreduceScatterBlock is MPI_Ireduce_scatter_block with parts of count elements.
func (l *Library) IreduceScatterBlock(send, recv unsafe.Pointer, count int, t, op, c Handle, r *Handle) error {
	return l.check("MPI_Ireduce_scatter_block", call(l.ireduceScatterBlock, l.from(send), uintptr(recv), uintptr(count), uintptr(t), uintptr(op), uintptr(c), uintptr(unsafe.Pointer(r))))
}

// Iallgather is MPI_Iallgather.
func (l *Library) Iallgather(send, recv unsafe.Pointer, count int, t, c Handle, r *Handle) error {
	return l.check("MPI_Iallgather", call(l.iallgather, l.from(send), uintptr(count), uintptr(t), uintptr(recv), uintptr(count), uintptr(t), uintptr(c), uintptr(unsafe.Pointer(r))))
}

// Igather is MPI_Igather.
func (l *Library) Igather(send, recv unsafe.Pointer, count int, t Handle, root int, c Handle, r *Handle) error {
	return l.check("MPI_Igather", call(l.igather, l.from(send), uintptr(count), uintptr(t), uintptr(recv), uintptr(count), uintptr(t), uintptr(root), uintptr(c), uintptr(unsafe.Pointer(r))))
}

// Iscatter is MPI_Iscatter.
func (l *Library) Iscatter(send, recv unsafe.Pointer, count int, t Handle, root int, c Handle, r *Handle) error {
	return l.check("MPI_Iscatter", call(l.iscatter, uintptr(send), uintptr(count), uintptr(t), uintptr(recv), uintptr(count), uintptr(t), uintptr(root), uintptr(c), uintptr(unsafe.Pointer(r))))
}

// Ialltoall is MPI_Ialltoall.
func (l *Library) Ialltoall(send, recv unsafe.Pointer, count int, t, c Handle, r *Handle) error {
	return l.check("MPI_Ialltoall", call(l.ialltoall, l.from(send), uintptr(count), uintptr(t), uintptr(recv), uintptr(count), uintptr(t), uintptr(c), uintptr(unsafe.Pointer(r))))
}

// Isend is MPI_Isend.
func (l *Library) Isend(buf unsafe.Pointer, count int, t Handle, to, tag int, c Handle, r *Handle) error {
	return l.check("MPI_Isend", call(l.isend, uintptr(buf), uintptr(count), uintptr(t), uintptr(to), uintptr(tag), uintptr(c), uintptr(unsafe.Pointer(r))))
}

// Irecv is MPI_Irecv.
func (l *Library) Irecv(buf unsafe.Pointer, count int, t Handle, from, tag int, c Handle, r *Handle) error {
	return l.check("MPI_Irecv", call(l.irecv, uintptr(buf), uintptr(count), uintptr(t), uintptr(uint32(from)), uintptr(tag), uintptr(c), uintptr(unsafe.Pointer(r))))
}

// AnySource is the sender that stands for all (MPI_ANY_SOURCE).
func (l *Library) AnySource() int { return int(l.anySource) }
