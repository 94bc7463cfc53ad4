package data

import "fmt"

// Loader prefetches batches in the background. It allocates its memory once. Its methods must be
// called from one goroutine.
type Loader struct {
	data    Dataset
	size    int
	buffers []Batch
	free    chan int    // indices of free buffers
	ready   chan loaded // batches in the order of the epoch, then one without samples
	quit    chan struct{}
	done    chan struct{} // closed when the goroutine has ended; nil before Start
	current int           // index of the caller's current buffer, or -1
}

// loaded is a batch of n samples in one of the buffers. A batch without samples is the last one;
// err is nil at the end of the epoch.
type loaded struct {
	buffer, n int
	err       error
}

// fallible is a dataset whose samples are not in memory, so that reading them can fail. tryRead
// returns the error with which Read panics.
type fallible interface {
	tryRead(indices []int, into Batch) error
}

// NewLoader returns a loader for batches of at most size samples. It prefetches up to ahead
// batches, at least 1.
func NewLoader(d Dataset, size, ahead int) *Loader {
	if size < 1 || ahead < 1 {
		panic(fmt.Sprintf("data: loader of batches of %d samples, %d ahead", size, ahead))
	}
	l := &Loader{data: d, size: size, free: make(chan int, ahead+1), ready: make(chan loaded, ahead+2)}
	for range ahead + 1 {
		l.buffers = append(l.buffers, NewBatch(d, size))
	}
	return l
}

// Start begins to read batches. Each is a list of at least one and at most size samples, which must
// not change until Stop. Start stops a previous Start.
func (l *Loader) Start(batches [][]int) {
	l.Stop()
	for i, b := range batches {
		if len(b) < 1 || len(b) > l.size {
			panic(fmt.Sprintf("data: batch %d has %d samples, want 1 to %d", i, len(b), l.size))
		}
	}
	for buffer := range l.buffers {
		l.free <- buffer
	}
	l.quit, l.done, l.current = make(chan struct{}), make(chan struct{}), -1
	go l.run(batches, l.quit, l.done)
}

// run reads batches until they end, one cannot be read, or quit is closed.
func (l *Loader) run(batches [][]int, quit <-chan struct{}, done chan<- struct{}) {
	defer close(done)
	for _, indices := range batches {
		select {
		case <-quit:
			return
		case buffer := <-l.free:
			// Sending never blocks: the channel has space for each buffer and the last batch.
			if err := l.read(indices, l.buffers[buffer]); err != nil {
				l.ready <- loaded{err: err}
				return
			}
			l.ready <- loaded{buffer: buffer, n: len(indices)}
		}
	}
	l.ready <- loaded{}
}

// read reads samples. It returns an error if they can no longer be read.
func (l *Loader) read(indices []int, into Batch) error {
	if d, ok := l.data.(fallible); ok {
		return d.tryRead(indices, into)
	}
	l.data.Read(indices, into)
	return nil
}

// Next returns the next batch with its n samples, or n = 0 after the last one. The previous batch
// becomes invalid: its memory is reused. Next returns an error if a token file can no longer be
// read or has a token outside of the vocabulary. The error names the file and the byte offset, has
// a method Hint() string, and is returned again until the next Start.
func (l *Loader) Next() (b Batch, n int, err error) {
	if l.done == nil {
		panic("data: Next of a loader that was not started")
	}
	if l.current >= 0 {
		l.free <- l.current
		l.current = -1
	}
	next := <-l.ready
	if next.n == 0 {
		l.ready <- next // for the next call
		return Batch{}, 0, next.err
	}
	l.current = next.buffer
	return l.buffers[next.buffer].first(next.n, l.size), next.n, nil
}

// Stop stops reading after the batch in progress and invalidates the last batch. Afterwards no
// goroutine is running, and Start can be called again.
func (l *Loader) Stop() {
	if l.done == nil {
		return
	}
	close(l.quit)
	<-l.done
	l.done = nil
	for len(l.free) > 0 {
		<-l.free
	}
	for len(l.ready) > 0 {
		<-l.ready
	}
}
