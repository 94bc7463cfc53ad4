package communicator

import (
	"runtime"
	"time"
)

// A thread is a goroutine that is locked to an OS thread with a current GPU context. NCCL
// tracks groups per thread, and CUDA tracks contexts per thread. Between calls, the thread
// polls the operations in progress.
type thread struct {
	work   chan func()
	ended  chan struct{}
	poll   func() (progress, busy bool)
	ending bool
}

// startThread starts a thread that polls after each call, and repeatedly while operations are
// in progress.
func startThread(gpu GPU, poll func() (progress, busy bool)) (*thread, error) {
	t := &thread{work: make(chan func(), 64), ended: make(chan struct{}), poll: poll}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread exits with the goroutine
		defer close(t.ended)
		err := gpu.Use()
		ready <- err
		if err == nil {
			t.serve()
		}
	}()
	return t, <-ready
}

// serve calls the functions from work and polls after each call. While operations are in progress, it
// also polls after the delays of pollDelay.
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
			pause := pollDelay(still)
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

// pollDelay returns the delay after the given number of polls without a change. Short
// operations take tens of microseconds, but long ones must not occupy a core.
func pollDelay(still int) time.Duration {
	switch {
	case still < 200:
		return 0
	case still < 1000:
		return 20 * time.Microsecond
	}
	return 500 * time.Microsecond
}

// do runs f on the thread and waits for it. It returns false after the time limit.
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
