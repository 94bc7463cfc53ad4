package random

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"
)

// readGolden decodes a file that PyTorch wrote.
func readGolden(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// TestPermEqualsTorchRandperm compares permutations with torch.randperm.
func TestPermEqualsTorchRandperm(t *testing.T) {
	var golden struct {
		Randperm []struct {
			Seed     uint64
			N        int
			Perm     []int
			Next     *uint32 `json:"next_randint_2147483647"`
			First    []int   `json:"first20"`
			Last     []int   `json:"last20"`
			Checksum *int    `json:"weighted_checksum"`
		}
	}
	readGolden(t, "testdata/random_golden.json", &golden)
	if len(golden.Randperm) != 49 {
		t.Fatalf("%d cases, want 49", len(golden.Randperm))
	}
	for _, c := range golden.Randperm {
		g := New(c.Seed)
		got := g.Perm(c.N)
		if c.Perm != nil && !slices.Equal(got, c.Perm) {
			t.Errorf("seed %d: Perm(%d) = %v, want %v", c.Seed, c.N, got, c.Perm)
		}
		if c.Next != nil {
			if next := g.Uint32() % 2147483647; next != *c.Next {
				t.Errorf("seed %d: draw after Perm(%d) = %d, want %d", c.Seed, c.N, next, *c.Next)
			}
		}
		if c.Checksum != nil {
			sum := 0
			for i, v := range got {
				sum += (i + 1) * v
			}
			if sum != *c.Checksum || !slices.Equal(got[:20], c.First) || !slices.Equal(got[c.N-20:], c.Last) {
				t.Errorf("seed %d: Perm(%d) has checksum %d, want %d", c.Seed, c.N, sum, *c.Checksum)
			}
		}
	}
}

// TestFloat32EqualsTorchRand compares values with torch.rand.
func TestFloat32EqualsTorchRand(t *testing.T) {
	var golden struct {
		Rand []struct {
			Seed uint64
			Want []float32 `json:"torch.rand(8)"`
		}
	}
	readGolden(t, "testdata/random_golden.json", &golden)
	if len(golden.Rand) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range golden.Rand {
		g := New(c.Seed)
		for i, want := range c.Want {
			if got := g.Float32(); got != want {
				t.Errorf("seed %d: number %d = %v, want %v", c.Seed, i, got, want)
			}
		}
	}
}

// TestUniformEqualsTorch compares uniform values with PyTorch's, bit for bit.
func TestUniformEqualsTorch(t *testing.T) {
	var golden []struct {
		Seed      int64
		Lo, Hi    float64
		N         int
		FirstBits []uint32 `json:"first_bits"`
		SHA256    string
	}
	readGolden(t, "testdata/uniform_golden.json", &golden)
	if len(golden) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range golden {
		got := make([]float32, c.N)
		New(uint64(c.Seed)).Uniform(c.Lo, c.Hi, got)
		for i, want := range c.FirstBits {
			if math.Float32bits(got[i]) != want {
				t.Errorf("seed %d in [%v, %v): number %d = %v, want %v", c.Seed, c.Lo, c.Hi, i, got[i], math.Float32frombits(want))
			}
		}
		h := sha256.New()
		if err := binary.Write(h, binary.LittleEndian, got); err != nil {
			t.Fatal(err)
		}
		if sum := hex.EncodeToString(h.Sum(nil)); sum != c.SHA256 {
			t.Errorf("seed %d in [%v, %v): digest of %d numbers differs", c.Seed, c.Lo, c.Hi, c.N)
		}
	}
}
