package data

import (
	"runtime"
	"slices"
	"testing"
	"time"
)

// batchesOf divides an epoch of d into batches of size samples, with a short last one.
func batchesOf(d Dataset, size int) [][]int {
	return BatchSampler{Sampler: Sampler{N: d.Len(), Replicas: 1, Shuffle: true, Seed: 1}, Batch: size}.Rest(State{Seed: 1})
}

// TestLoaderEqualsRead checks that the loader returns the same batches as Read, over two epochs.
func TestLoaderEqualsRead(t *testing.T) {
	for name, d := range openAll(t) {
		const size = 7
		l := NewLoader(d, size, 2)
		batches := batchesOf(d, size)
		for range 2 { // epochs
			l.Start(batches)
			for i, indices := range batches {
				got, n, err := l.Next()
				want := NewBatch(d, len(indices))
				d.Read(indices, want)
				if err != nil || n != len(indices) || !equalBatches(got, want) {
					t.Fatalf("%s: batch %d of %d samples is not what they are, %v", name, i, n, err)
				}
			}
			for range 2 {
				if _, n, err := l.Next(); n != 0 || err != nil {
					t.Fatalf("%s: %d samples after the last batch, %v", name, n, err)
				}
			}
		}
		l.Stop()
	}
}

func equalBatches(a, b Batch) bool {
	return slices.Equal(a.X, b.X) && slices.Equal(a.Tokens, b.Tokens) && slices.Equal(a.Labels, b.Labels) && slices.Equal(a.Targets, b.Targets)
}

// TestLoaderAllocatesNothing checks that Next does not allocate memory, because it runs for every
// batch.
func TestLoaderAllocatesNothing(t *testing.T) {
	d, _, err := Open(t.Context(), Options{Kind: KindSynthetic, Samples: 1000, Inputs: 5, Outputs: 1})
	if err != nil {
		t.Fatal(err)
	}
	l := NewLoader(d, 4, 1)
	defer l.Stop()
	l.Start(batchesOf(d, 4))
	if n := testing.AllocsPerRun(200, func() {
		if _, n, _ := l.Next(); n != 4 {
			t.Fatalf("batch of %d", n)
		}
	}); n != 0 {
		t.Errorf("%v allocations per batch", n)
	}
}

// TestLoaderKeepsTheCurrentBatch checks that a batch stays unchanged until the next call of Next,
// however far the loader prefetches.
func TestLoaderKeepsTheCurrentBatch(t *testing.T) {
	d, _, err := Open(t.Context(), Options{Kind: KindSynthetic, Samples: 100, Inputs: 5, Outputs: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, ahead := range []int{1, 3} {
		l := NewLoader(d, 2, ahead)
		l.Start(batchesOf(d, 2))
		b, _, _ := l.Next()
		before := slices.Clone(b.X)
		for len(l.ready) < ahead {
			runtime.Gosched()
		}
		if len(l.free) != 0 || !slices.Equal(b.X, before) {
			t.Errorf("%d ahead: %d places free, batch %v was %v", ahead, len(l.free), b.X, before)
		}
		l.Stop()
	}
}

// TestLoaderStopLeavesNoGoroutine checks that Stop ends the goroutine of the loader at any time,
// also if it is called twice.
func TestLoaderStopLeavesNoGoroutine(t *testing.T) {
	d, _, err := Open(t.Context(), Options{Kind: KindSynthetic, Samples: 100, Inputs: 5, Outputs: 1})
	if err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	batches := batchesOf(d, 3)
	l := NewLoader(d, 3, 2)
	l.Stop() // before any start
	for taken := range len(batches) + 2 {
		l.Start(batches)
		for range taken {
			l.Next()
		}
		if taken%2 == 0 { // otherwise Start stops the previous one
			l.Stop()
			l.Stop()
		}
	}
	l.Stop()
	// The goroutine closes a channel as its last action, and may still exist shortly after.
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if runtime.NumGoroutine() <= before {
			return
		}
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

// TestLoaderMisusePanics checks that the loader panics on invalid sizes and batches, and if it has
// not been started.
func TestLoaderMisusePanics(t *testing.T) {
	d, _, err := Open(t.Context(), Options{Kind: KindSynthetic, Samples: 10, Inputs: 5, Outputs: 1})
	if err != nil {
		t.Fatal(err)
	}
	for name, misuse := range map[string]func(){
		"no size":     func() { NewLoader(d, 0, 1) },
		"none ahead":  func() { NewLoader(d, 1, 0) },
		"large batch": func() { NewLoader(d, 1, 1).Start([][]int{{1, 2}}) },
		"empty batch": func() { NewLoader(d, 1, 1).Start([][]int{{}}) },
		"not started": func() { NewLoader(d, 1, 1).Next() },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			misuse()
		}()
	}
}
