package communicator

import (
	"runtime"
	"time"
)

// thread is a goroutine with a thread of its own, on which a GPU's context is current:
// NCCL keeps groups by thread, and CUDA contexts. Between calls it looks after what is
// under way.
type thread struct {
	work   chan func()
	ended  chan struct{}
	poll   func() (progress, busy bool)
	ending bool
}

// startThread begins a thread that polls after each call and, while there is
// something to wait for, in between.
func startThread(gpu GPU, poll func() (progress, busy bool)) (*thread, error) {
	t := &thread{work: make(chan func(), 64), ended: make(chan struct{}), poll: poll}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		defer close(t.ended)
		err := gpu.Use()
		ready <- err
		if err == nil {
			t.serve()
		}
	}()
	return t, <-ready
}

func (t *thread) serve() {
	idle := time.NewTimer(0)
	defer idle.Stop()
	for still := 0; !t.ending; still++ {
		progress, busy := t.poll()
		if progress {
			still = 0
		}
		var wait <-chan time.Time
		if busy {
			pause := patience(still)
			if pause == 0 {
				select {
				case f := <-t.work:
					f()
					still = 0
				default:
					runtime.Gosched()
				}
				continue
			}
			idle.Reset(pause)
			wait = idle.C
		}
		select {
		case f := <-t.work:
			f()
			still = 0
		case <-wait:
		}
	}
}

// patience is how long to sleep after so many looks without a change: short operations
// take tens of microseconds, and a core is too much for long ones.
func patience(still int) time.Duration {
	switch {
	case still < 200:
		return 0
	case still < 1000:
		return 20 * time.Microsecond
	}
	return 500 * time.Microsecond
}

// do has f run on the thread and returns when it has; false if that takes too long.
func (t *thread) do(limit time.Duration, f func()) bool {
	done := make(chan struct{})
	expired := time.NewTimer(limit)
	defer expired.Stop()
	select {
	case t.work <- func() { f(); close(done) }:
	case <-t.ended:
		return false
	case <-expired.C:
		return false
	}
	select {
	case <-done:
		return true
	case <-expired.C:
		return false
	}
}
