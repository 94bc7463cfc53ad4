//go:build cuda

package engine

import (
	"errors"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

const (
	uploads       = 8         // uploads that may be in progress
	uploadBytes   = 256 << 10 // maximum size of an upload
	downloadBytes = 4 << 20   // size of a download
)

// staging copies memory between host and GPU through pinned buffers. An upload runs in a separate
// stream, concurrently with the computation, to a staging buffer on the GPU. From there it is
// copied to its destination in order with the operations. So the input of a step is transferred
// during the previous step, and operations always find it at the same address.
type staging struct {
	stream  driver.Stream // of the copies to the staging buffer
	host    driver.Host   // for all uploads
	buffer  driver.Ptr    // for all uploads
	uploads [uploads]upload
	next    int
	down    driver.Host
	pinned  []driver.Host // other pinned memory, which copies access directly
}

// upload holds the buffers of one upload. They are free when its event has completed.
type upload struct {
	pinned         driver.Host
	buffer         driver.Ptr
	arrived, taken driver.Event // after the copies to, and from, the staging buffer
}

// open allocates all resources. After an error, close releases those that were allocated.
func (s *staging) open() error {
	var err error
	if s.stream, err = driver.NewStream(0); err != nil {
		return err
	}
	if s.down, err = driver.AllocHost(downloadBytes); err != nil {
		return err
	}
	if s.host, err = driver.AllocHost(uploads * uploadBytes); err != nil {
		return err
	}
	if s.buffer, err = driver.Alloc(uploads * uploadBytes); err != nil {
		return err
	}
	for i := range s.uploads {
		u := &s.uploads[i]
		u.pinned, u.buffer = s.host.Part(int64(i)*uploadBytes, uploadBytes), s.buffer+driver.Ptr(i*uploadBytes)
		for _, e := range []*driver.Event{&u.arrived, &u.taken} {
			if *e, err = driver.NewEvent(false); err != nil {
				return err
			}
		}
	}
	return nil
}

// close releases all resources. The operations must be done.
func (s *staging) close() error {
	var errs []error
	if s.stream != (driver.Stream{}) {
		errs = append(errs, s.stream.Synchronize(), s.stream.Close())
	}
	for _, u := range s.uploads {
		for _, e := range []driver.Event{u.arrived, u.taken} {
			if e != (driver.Event{}) {
				errs = append(errs, e.Close())
			}
		}
	}
	for _, h := range append(s.pinned, s.host, s.down) {
		if h.Len() > 0 {
			errs = append(errs, h.Free())
		}
	}
	if s.buffer != 0 {
		errs = append(errs, driver.Free(s.buffer))
	}
	return errors.Join(errs...)
}

// stage uploads in stream order. src may be reused when it returns. It waits only if all uploads
// are in progress.
func (d *Device) stage(dst driver.Ptr, src []byte) {
	s := &d.staging
	for len(src) > 0 {
		u := &s.uploads[s.next]
		s.next = (s.next + 1) % uploads
		n := min(len(src), uploadBytes)
		d.check(u.arrived.Synchronize())
		copy(u.pinned.Bytes(), src[:n])
		d.check(s.stream.Wait(u.taken))
		d.check(s.stream.Upload(u.buffer, u.pinned.Part(0, int64(n))))
		d.check(s.stream.Record(u.arrived))
		d.check(d.stream.Wait(u.arrived))
		d.check(d.stream.Copy(dst, u.buffer, int64(n)))
		d.check(d.stream.Record(u.taken))
		dst, src = dst+driver.Ptr(n), src[n:]
	}
}

// fetch copies to the host and waits. A copy to pinned memory is a single transfer.
func (d *Device) fetch(dst []byte, src driver.Ptr) {
	for _, h := range d.staging.pinned {
		if to, ok := h.Find(dst); ok && to.Len() > 0 {
			d.check(d.stream.Download(to, src))
			d.check(d.stream.Synchronize())
			return
		}
	}
	for len(dst) > 0 {
		part := d.staging.down.Part(0, min(int64(len(dst)), downloadBytes))
		d.check(d.stream.Download(part, src))
		d.check(d.stream.Synchronize())
		n := copy(dst, part.Bytes())
		dst, src = dst[n:], src+driver.Ptr(n)
	}
}

// reading implements [device.Reading].
type reading struct {
	device *Device
	host   driver.Host
	copied driver.Event
	n      int // elements
}

// NewReading creates a reading, which remains valid until Close.
func (d *Device) NewReading() device.Reading {
	defer d.enter("reading").Leave()
	e, err := driver.NewEvent(false)
	d.check(err)
	r := &reading{device: d, copied: e}
	d.readings = append(d.readings, r)
	return r
}

// Begin starts to copy a tensor.
func (r *reading) Begin(src device.Tensor) {
	d := r.device
	defer d.enter("read", src.Len()).Leave()
	d.flush()
	if bytes := int64(src.Len() * 4); r.host.Len() < bytes {
		d.check(r.copied.Synchronize())
		d.check(r.free())
		var err error
		r.host, err = driver.AllocHost(bytes)
		d.check(err)
	}
	r.n = src.Len()
	if r.n > 0 {
		d.check(d.stream.Download(r.host.Part(0, int64(r.n)*4), floats(src)))
	}
	d.check(d.stream.Record(r.copied))
}

// Floats waits for the copy.
func (r *reading) Floats() []float32 {
	defer r.device.enter("read", r.n).Leave()
	r.device.check(r.copied.Synchronize())
	return driver.View[float32](r.host.Part(0, int64(r.n)*4))
}

func (r *reading) free() error {
	if r.host.Len() == 0 {
		return nil
	}
	was := r.host
	r.host = driver.Host{}
	return was.Free()
}

func (r *reading) close() error { return errors.Join(r.free(), r.copied.Close()) }
