package collective

import (
	"context"
	"errors"
	"runtime"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/mesh"
	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/sched"
	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/segment"
)

// Each rank has a slot, two small buffers, and its windows in the shared file.
const (
	slotBytes = 4 * line
	rankBytes = slotBytes + 2*smallBytes + windows*windowBytes
)

var _ [slotBytes - unsafe.Sizeof(slot{})]byte // a slot fits its space

// file is the [board] of the processes of a node.
type file struct {
	rank   int
	memory *segment.Segment
	areas  [][]*segment.Segment // shared memory of each rank
	agree  *agreement
	spins  int
}

func (f *file) region(rank, from, n int) []byte { return f.memory.Bytes()[rank*rankBytes+from:][:n:n] }

func (f *file) slot(rank int) *slot {
	return (*slot)(unsafe.Pointer(unsafe.SliceData(f.region(rank, 0, slotBytes))))
}

func (f *file) publish(rank int, turn uint64, c *Call, s mesh.Signature) {
	e := f.published(rank, turn)
	*e = entry{signature: s, visible: !c.publishesSend(rank)}
	if area, offset, ok := f.find(c.Send); ok {
		e.visible, e.area, e.offset, e.length = true, int32(area), uint64(offset), uint64(len(c.Send))
	}
}

// find returns the area of this rank that contains b and the offset of b in it.
func (f *file) find(b []byte) (area, offset int, ok bool) {
	if len(b) == 0 {
		return 0, 0, len(f.areas[f.rank]) > 0
	}
	for i, a := range f.areas[f.rank] {
		m := a.Bytes()
		offset := int(uintptr(unsafe.Pointer(&b[0])) - uintptr(unsafe.Pointer(&m[0])))
		if offset >= 0 && offset+len(b) <= len(m) {
			return i, offset, true
		}
	}
	return 0, 0, false
}

func (f *file) published(rank int, turn uint64) *entry { return &f.slot(rank).entries[turn%2] }

func (f *file) send(rank int, turn uint64) []byte {
	e := f.published(rank, turn)
	return f.areas[rank][e.area].Bytes()[e.offset:][:e.length]
}

func (f *file) visible(rank int, c *Call) bool {
	_, _, ok := f.find(c.Send)
	return ok || !c.publishesSend(rank)
}

func (f *file) small(rank int, turn uint64) []byte {
	return f.region(rank, slotBytes+int(turn%2)*smallBytes, smallBytes)
}

func (f *file) window(rank, i int) []byte {
	return f.region(rank, slotBytes+2*smallBytes+i%windows*windowBytes, windowBytes)
}

func (f *file) spinCount() int { return f.spins }
func (f *file) name() string   { return "shared memory" }

// yield yields to other processes, which include the ranks, and occasionally to goroutines of
// this process. runtime.Gosched wakes a sleeping thread, which then takes over this goroutine and
// costs more than a small reduction.
func (f *file) yield(nth int, processes bool) {
	if nth%8 == 7 {
		runtime.Gosched()
	}
	if processes {
		sched.Yield()
	}
}

// close does not unmap this rank's own areas, because they are the caller's memory.
func (f *file) close() error {
	f.agree.leave()
	var errs []error
	for r, areas := range f.areas {
		if r != f.rank {
			for _, a := range areas {
				errs = append(errs, a.Unmap())
			}
			f.areas[r] = nil
		}
	}
	if f.memory != nil {
		errs = append(errs, f.memory.Unmap())
		f.memory = nil
	}
	return errors.Join(errs...)
}

// alloc creates an area of this rank and maps the areas of all others. If one rank fails, no rank
// gets an area.
func (f *file) alloc(ctx context.Context, s *shared, bytes int) ([]byte, error) {
	area, err := segment.Create(max(bytes, 1))
	if err != nil {
		area = &segment.Segment{}
	}
	defer func() { _ = area.Unlink() }() // a name that remains is removed by a later sweep
	offers, aerr := f.agree.offers(ctx, offer{Name: area.Name, Bytes: max(bytes, 1), Why: errorText(err)})
	areas := make([]*segment.Segment, len(s.members))
	if err == nil {
		areas[s.rank] = area
	}
	undo := func() {
		for _, a := range areas {
			if a != nil {
				_ = a.Unmap() // the error would not change anything
			}
		}
	}
	if aerr != nil {
		undo()
		return nil, aerr
	}
	for r, o := range offers {
		if o.Why != "" && err == nil {
			err = errors.New(o.Why)
		}
		if r != s.rank && err == nil {
			areas[r], err = segment.Open(o.Name, o.Bytes)
		}
	}
	results, aerr := f.agree.offers(ctx, offer{Why: errorText(err)})
	if aerr != nil {
		undo()
		return nil, aerr
	}
	for _, v := range results {
		if v.Why != "" {
			undo()
			return nil, nil
		}
	}
	for r, a := range areas {
		f.areas[r] = append(f.areas[r], a)
	}
	return area.Bytes()[:bytes], nil
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
