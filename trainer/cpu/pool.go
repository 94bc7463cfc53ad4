package cpu

import "sync"

// minPerThread is the number of elements that justifies another thread: waking a thread takes tens
// of microseconds on a virtual machine.
const minPerThread = 1 << 16

// job is an operation that can be divided among threads.
type job interface {
	// part runs one thread's part.
	part(thread, threads int)
}

// pool runs one job at a time. Its goroutines exit after each job.
type pool struct {
	threads []*thread
	wait    sync.WaitGroup
}

type thread struct {
	job           job
	index, number int
	run           func() // created once, because a go statement with arguments allocates
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

// do runs j on at most units threads, and on fewer if the job is small.
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

// share returns a thread's part of n items. Its boundaries are multiples of grain, except for the
// end.
func share(n, grain, thread, threads int) (first, end int) {
	grains := (n + grain - 1) / grain
	return min(n, grains*thread/threads*grain), min(n, grains*(thread+1)/threads*grain)
}
