package data

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
)

// golden is PyTorch's output, as written by testdata/torch_data.py.
type golden struct {
	Splits []struct {
		N           int
		Share       float64
		Seed        int64
		Train, Eval []int
	}
	Batches []struct {
		N, Replicas, Batch, Len int
		DropSamples             bool `json:"drop_samples"`
		DropLast                bool `json:"drop_last"`
		Ranks                   [][][]int
	}
}

func readGolden(t *testing.T) golden {
	t.Helper()
	raw, err := os.ReadFile("testdata/torch_golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(raw, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Splits) != 5 || len(g.Batches) != 64 {
		t.Fatalf("%d splits, %d batches", len(g.Splits), len(g.Batches))
	}
	return g
}

// TestSplitEqualsRandomSplit compares held-out samples with PyTorch's random_split, and checks
// that digests depend on the seed.
func TestSplitEqualsRandomSplit(t *testing.T) {
	for _, c := range readGolden(t).Splits {
		rows := make([]float32, c.N)
		for i := range rows {
			rows[i] = float32(i)
		}
		whole := newValueTable("values", floatRows{rows, 1}, rows, 1)
		train, eval, err := whole.split("f", c.Share, c.Seed)
		if err != nil {
			t.Fatal(err)
		}
		for d, want := range map[Dataset][]int{train: c.Train, eval: c.Eval} {
			if d.Len() != len(want) {
				t.Fatalf("%d samples, share %v: %d, want %d", c.N, c.Share, d.Len(), len(want))
			}
			b := NewBatch(d, 1)
			for i, row := range want {
				if d.Read([]int{i}, b); b.X[0] != float32(row) || b.Targets[0] != float32(row) {
					t.Fatalf("%d samples, share %v: sample %d is %v, want %d", c.N, c.Share, i, b.X[0], row)
				}
			}
		}
		_, other, err := whole.split("f", c.Share, c.Seed+1)
		if err != nil {
			t.Fatal(err)
		}
		if other.Digest() == eval.Digest() || train.Digest() == whole.Digest() {
			t.Errorf("%d samples: the digest does not see the choice of rows", c.N)
		}
	}
}

// TestBatchSamplerEqualsPyTorch compares batches with PyTorch's, for each rank.
func TestBatchSamplerEqualsPyTorch(t *testing.T) {
	for _, c := range readGolden(t).Batches {
		for rank, want := range c.Ranks {
			s := BatchSampler{Sampler{N: c.N, Replicas: c.Replicas, Rank: rank, Shuffle: true, DropLast: c.DropSamples, Seed: 5}, c.Batch, c.DropLast}
			got := s.Rest(State{Seed: 5, Epoch: 2})
			if !slices.EqualFunc(got, want, slices.Equal) || len(got) != c.Len {
				t.Errorf("%+v: %v, want %v", s, got, want)
			}
		}
	}
}
