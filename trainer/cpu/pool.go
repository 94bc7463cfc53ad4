package cpu

import "sync"

// minPerThread is the number of elements for which another thread is used: to wake
// one takes tens of microseconds on a virtual machine.
const minPerThread = 1 << 16

// job is an operation that can be divided.
type job interface {
	// part does the part of one of several threads.
	part(thread, threads int)
}

// pool runs the parts of one job at a time. Its goroutines end with the job.
type pool struct {
	threads []*thread
	wait    sync.WaitGroup
}

type thread struct {
	job           job
	index, number int
	run           func() // made once, since a go statement with arguments allocates
}

func (p *pool) start(n int) {
	for i := range n {
		t := &thread{index: i}
		t.run = func() {
			t.job.part(t.index, t.number)
			t.job = nil
			p.wait.Done()
		}
		p.threads = append(p.threads, t)
	}
}

// do runs a job of so many elements on as many threads as pay, at most units.
func (p *pool) do(j job, units, elements int) {
	n := max(1, min(len(p.threads), units, elements/minPerThread))
	for _, t := range p.threads[1:n] {
		t.job, t.number = j, n
		p.wait.Add(1)
		go t.run()
	}
	j.part(0, n)
	p.wait.Wait()
}

// share is the part of n that a thread takes, in multiples of grain but at the end.
func share(n, grain, thread, threads int) (first, end int) {
	grains := (n + grain - 1) / grain
	return min(n, grains*thread/threads*grain), min(n, grains*(thread+1)/threads*grain)
}
