package data

import (
	"encoding/hex"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// untouched marks values that a read must not change.
const untouched = -77

// checkDataset checks the guarantees of every dataset: consistent sizes, finite values, tokens and
// labels in range, and no writes beyond the batch.
func checkDataset(t *testing.T, d Dataset) {
	t.Helper()
	n, in, tokens, out := d.Len(), d.Inputs(), d.Tokens(), d.Outputs()
	if n < 1 || out < 1 || min(in, tokens) != 0 || max(in, tokens) < 1 || tokens > 0 && !d.Classes() {
		t.Fatalf("%d samples, %d inputs, %d tokens, %d outputs, classes %t", n, in, tokens, out, d.Classes())
	}
	if c, h, w := d.Image(); c*h*w != in && c+h+w != 0 {
		t.Errorf("an image of %d x %d x %d in %d inputs", c, h, w, in)
	}
	if digest, err := hex.DecodeString(d.Digest()); err != nil || len(digest) != 32 {
		t.Errorf("digest %q is no SHA-256", d.Digest())
	}
	perSample := max(1, tokens)
	b := Batch{make([]float32, in+1), make([]int32, tokens+1), make([]int32, perSample+1), make([]float32, out+1)}
	for i := range n {
		fill(b.X)
		fill(b.Tokens)
		fill(b.Labels)
		fill(b.Targets)
		d.Read([]int{i}, b)
		for k, v := range b.X[:in] {
			if v-v != 0 {
				t.Fatalf("sample %d: input %d is %v", i, k, v)
			}
		}
		inRange(t, i, b.Tokens[:tokens], out)
		labels, targets := 0, out
		if d.Classes() {
			labels, targets = perSample, 0
		}
		inRange(t, i, b.Labels[:labels], out)
		if b.X[in] != untouched || b.Tokens[tokens] != untouched || b.Labels[labels] != untouched || b.Targets[targets] != untouched {
			t.Fatalf("sample %d: wrote beyond what it has", i)
		}
	}
}

func fill[T int32 | float32](s []T) {
	for i := range s {
		s[i] = untouched
	}
}

func inRange(t *testing.T, sample int, values []int32, limit int) {
	t.Helper()
	for _, v := range values {
		if v < 0 || int(v) >= limit {
			t.Fatalf("sample %d: token or label %d of %d", sample, v, limit)
		}
	}
}

// openAll opens data of every kind.
func openAll(t *testing.T) map[string]Dataset {
	t.Helper()
	dir := t.TempDir()
	in := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		write(t, path, content)
		return path
	}
	prose := in("prose.txt", []byte(strings.Repeat("Ein schöner Tag.\n", 20)))
	squares := make([]uint32, 300)
	for i := range squares {
		squares[i] = uint32(i * i % 256)
	}
	arrays := in("arrays.safetensors", arraysBytes(30))
	all := map[string]Dataset{}
	for name, o := range map[string]Options{
		"builtin":         {Kind: KindIDX, Path: "builtin:fashion-mnist"},
		"synthetic":       {Kind: KindSynthetic, Samples: 100, Inputs: 20, Outputs: 2},
		"classes":         {Kind: KindSynthetic, Task: TaskClassification, Samples: 100, Inputs: 20, Outputs: 4},
		"csv":             {Kind: KindCSV, Path: in("f.csv", []byte(strings.Repeat("1,2,3\n4,5,6\n", 10))), Holdout: 0.3},
		"text":            {Kind: KindText, Path: prose, Context: 7, Holdout: 0.2},
		"text of bytes":   {Kind: KindText, Path: prose, Context: 7, Vocabulary: VocabularyByte},
		"tokens":          {Kind: KindTokens, Path: in("raw16.bin", tokenBytes(2, squares...)), Context: 9, Holdout: 0.2},
		"32-bit tokens":   {Kind: KindTokens, Path: in("raw32.bin", tokenBytes(4, squares...)), Context: 9, DType: DTypeUint32},
		"images":          {Kind: KindSafetensors, Path: arrays},
		"arrays":          {Kind: KindSafetensors, Path: arrays, Features: "halves", Target: "values"},
		"split of arrays": {Kind: KindSafetensors, Path: arrays, Holdout: 0.5},
	} {
		train, eval, err := Open(t.Context(), o)
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

// TestDatasets checks that data sets of every kind are consistent and have different digests.
func TestDatasets(t *testing.T) {
	digests := map[string]string{}
	for name, d := range openAll(t) {
		checkDataset(t, d)
		if other, ok := digests[d.Digest()]; ok {
			t.Errorf("%s and %s have the same digest", name, other)
		}
		digests[d.Digest()] = name
	}
	if len(digests) != 17 {
		t.Errorf("%d datasets, want 17", len(digests))
	}
}

// TestReadAllocatesNothing checks that Read does not allocate memory, because it runs for every
// batch.
func TestReadAllocatesNothing(t *testing.T) {
	for name, d := range openAll(t) {
		size := min(8, d.Len())
		indices := random.New(1).Perm(d.Len())[:size]
		b := NewBatch(d, size)
		if n := testing.AllocsPerRun(10, func() { d.Read(indices, b) }); n != 0 {
			t.Errorf("%s: %v allocations per read", name, n)
		}
	}
}

// TestReadPanicsOnInvalidArguments checks that Read panics on an invalid index or a short
// destination. Otherwise it would read a different sample.
func TestReadPanicsOnInvalidArguments(t *testing.T) {
	for name, d := range openAll(t) {
		short := NewBatch(d, 2)
		short.X = short.X[:max(0, len(short.X)-1):max(0, len(short.X)-1)]
		short.Tokens = short.Tokens[:max(0, len(short.Tokens)-1):max(0, len(short.Tokens)-1)]
		for what, read := range map[string]func(){
			"short destination": func() { d.Read([]int{0, 1}, short) },
			"index behind":      func() { d.Read([]int{d.Len()}, NewBatch(d, 1)) },
			"negative index":    func() { d.Read([]int{-1}, NewBatch(d, 1)) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: %s: no panic", name, what)
					}
				}()
				read()
			}()
		}
	}
}

// BenchmarkReadBuiltin measures the rate at which samples are read.
func BenchmarkReadBuiltin(b *testing.B) {
	d, _, err := Open(b.Context(), Options{Kind: KindIDX, Path: "builtin:fashion-mnist"})
	if err != nil {
		b.Fatal(err)
	}
	indices := random.New(1).Perm(d.Len())[:32]
	batch := NewBatch(d, 32)
	for range b.N {
		d.Read(indices, batch)
	}
	b.ReportMetric(32*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
}
