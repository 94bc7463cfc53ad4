package data

import (
	"encoding/hex"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// checkDataset checks what every dataset promises: consistent sizes, finite
// values, labels in range, destinations untouched beyond the batch.
func checkDataset(t *testing.T, d Dataset) {
	t.Helper()
	n, in, out := d.Len(), d.Inputs(), d.Outputs()
	if n < 1 || in < 1 || out < 1 {
		t.Fatalf("%d samples, %d inputs, %d outputs", n, in, out)
	}
	if digest, err := hex.DecodeString(d.Digest()); err != nil || len(digest) != 32 {
		t.Errorf("digest %q is no SHA-256", d.Digest())
	}
	const untouched = -77
	x := make([]float32, in+1)
	labels := []int32{untouched, untouched}
	targets := make([]float32, out+1)
	for i := range n {
		for k := range x {
			x[k] = untouched
		}
		for k := range targets {
			targets[k] = untouched
		}
		labels[0] = untouched
		d.Read([]int{i}, x, labels, targets)
		for k, v := range x[:in] {
			if v-v != 0 {
				t.Fatalf("sample %d: input %d is %v", i, k, v)
			}
		}
		if d.Classes() && (labels[0] < 0 || int(labels[0]) >= out) {
			t.Fatalf("sample %d: label %d of %d classes", i, labels[0], out)
		}
		if !d.Classes() && labels[0] != untouched || d.Classes() && targets[0] != untouched {
			t.Fatalf("sample %d: wrote both labels and targets, or the wrong ones", i)
		}
		if x[in] != untouched || labels[1] != untouched || targets[out] != untouched {
			t.Fatalf("sample %d: wrote beyond its row", i)
		}
	}
}

func openAll(t *testing.T) map[string]Dataset {
	t.Helper()
	all := map[string]Dataset{}
	for name, o := range map[string]Options{
		"builtin": {Kind: KindIDX, Path: "builtin:fashion-mnist"},
		"values":  {Kind: KindSynthetic, Samples: 100, Inputs: 20, Outputs: 2},
		"classes": {Kind: KindSynthetic, Task: TaskClassification, Samples: 100, Inputs: 20, Outputs: 4},
	} {
		train, eval, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = train
		if eval != nil {
			all[name+" held out"] = eval
		}
	}
	return all
}

func TestDatasets(t *testing.T) {
	digests := map[string]string{}
	for name, d := range openAll(t) {
		checkDataset(t, d)
		if other, ok := digests[d.Digest()]; ok {
			t.Errorf("%s and %s have the same digest", name, other)
		}
		digests[d.Digest()] = name
	}
	if len(digests) != 5 {
		t.Errorf("%d datasets, want 5", len(digests))
	}
}

func TestReadAllocatesNothing(t *testing.T) {
	for name, d := range openAll(t) {
		indices := random.New(1).Perm(d.Len())[:8]
		x := make([]float32, 8*d.Inputs())
		labels := make([]int32, 8)
		targets := make([]float32, 8*d.Outputs())
		if n := testing.AllocsPerRun(10, func() { d.Read(indices, x, labels, targets) }); n != 0 {
			t.Errorf("%s: %v allocations per read", name, n)
		}
	}
}

func TestReadRefusesShortDestination(t *testing.T) {
	for name, d := range openAll(t) {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			d.Read([]int{0, 1}, make([]float32, 2*d.Inputs()-1, 4*d.Inputs())[:2*d.Inputs()-1:2*d.Inputs()-1], make([]int32, 2), make([]float32, 2*d.Outputs()))
		}()
	}
}

func BenchmarkReadBuiltin(b *testing.B) {
	d, _, err := Open(Options{Kind: KindIDX, Path: "builtin:fashion-mnist"})
	if err != nil {
		b.Fatal(err)
	}
	indices := random.New(1).Perm(d.Len())[:32]
	x, labels := make([]float32, 32*d.Inputs()), make([]int32, 32)
	for range b.N {
		d.Read(indices, x, labels, nil)
	}
	b.ReportMetric(32*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
}
