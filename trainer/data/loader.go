package data

import "fmt"

// Loader reads batches in the background, while the caller works on the one
// before. It allocates its memory once. Its methods are for one goroutine.
type Loader struct {
	data    Dataset
	size    int
	room    []Batch
	free    chan int    // places in room that can be read to
	ready   chan loaded // batches in the order of the epoch, then one of no samples
	quit    chan struct{}
	done    chan struct{} // closed when the goroutine has ended; nil before Start
	current int           // place of the batch that the caller has; -1: none
}

// loaded is a batch of n samples at a place in room. One of no samples is the last;
// err says why it is not the epoch's.
type loaded struct {
	place, n int
	err      error
}

// fallible is a dataset whose samples are not in memory: reading them can fail, as
// an error of tryRead, where Read panics.
type fallible interface {
	tryRead(indices []int, into Batch) error
}

// NewLoader returns a loader of batches of at most size samples, that reads up to
// ahead of them (at least 1) before they are asked for.
func NewLoader(d Dataset, size, ahead int) *Loader {
	if size < 1 || ahead < 1 {
		panic(fmt.Sprintf("data: loader of batches of %d samples, %d ahead", size, ahead))
	}
	l := &Loader{data: d, size: size, free: make(chan int, ahead+1), ready: make(chan loaded, ahead+2)}
	for range ahead + 1 {
		l.room = append(l.room, NewBatch(d, size))
	}
	return l
}

// Start begins to read batches, each a list of at most size samples of which none
// is empty. They must not change until Stop. What was started before is stopped.
func (l *Loader) Start(batches [][]int) {
	l.Stop()
	for i, b := range batches {
		if len(b) < 1 || len(b) > l.size {
			panic(fmt.Sprintf("data: batch %d has %d samples, want 1 to %d", i, len(b), l.size))
		}
	}
	for place := range l.room {
		l.free <- place
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
		case place := <-l.free:
			// Sending never waits: there is room for each place and the last.
			if err := l.read(indices, l.room[place]); err != nil {
				l.ready <- loaded{err: err}
				return
			}
			l.ready <- loaded{place: place, n: len(indices)}
		}
	}
	l.ready <- loaded{}
}

// read reads samples, or says why they cannot be read any more.
func (l *Loader) read(indices []int, into Batch) error {
	if d, ok := l.data.(fallible); ok {
		return d.tryRead(indices, into)
	}
	l.data.Read(indices, into)
	return nil
}

// Next returns the next batch, cut to its n samples, or n = 0 behind the last. The
// batch before it is given up: its memory is read to again. The error is that a
// file of tokens cannot be read any more; it names the file and the byte, has a
// method Hint() string, and comes again until Start.
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
		l.ready <- next // for a caller that asks again
		return Batch{}, 0, next.err
	}
	l.current = next.place
	return l.room[next.place].first(next.n, l.size), next.n, nil
}

// Stop ends the reading, at once but for the batch that is being read, and gives
// the last batch up. Afterwards there is no goroutine; Start can begin again.
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
