package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// TestLoadsTheFirstVersion checks that Load reads testdata/first, written by the first version of
// this package, whose manifests lack some fields.
func TestLoadsTheFirstVersion(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "first") // git does not store suitable modes
	if err := os.CopyFS(dir, os.DirFS("testdata/first")); err != nil {
		t.Fatal(err)
	}
	if err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Chmod(path, 0o700))
	}); err != nil {
		t.Fatal(err)
	}
	s, skipped, err := Load(t.Context(), dir)
	if err != nil || len(skipped) > 0 {
		t.Fatal(err, skipped)
	}
	if m := s.Manifest; m.Step != 12 || m.Epoch != 1 || m.Consumed != 64 || !m.OptimInit || m.Vocabulary != vocabulary || m.Metrics["loss"] != 0.1 || m.Unevaluated || m.Skipped != 0 {
		t.Errorf("manifest %+v", m)
	}
	// Tensors are stored in the order of their names.
	want := Files{
		ModelFile:     {{Name: "0.bias", Shape: []int{2}, Data: []float32{0, 8}}, {Name: "0.weight", Shape: []int{2, 2}, Data: []float32{1, -2, 0.5, 4}}},
		OptimizerFile: {{Name: "momentum.0.bias", Shape: []int{2}, Data: []float32{5, 6}}, {Name: "momentum.0.weight", Shape: []int{2, 2}, Data: []float32{4, 3, 2, 1}}},
	}
	if got := contents(t, s); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestReadTensorsInPieces checks that parts of a tensor can be read, from the verified file even
// if its path has been replaced, and that tensors that do not match are rejected.
func TestReadTensorsInPieces(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, 1)
	s, _, err := Load(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, c := range []struct {
		file   string
		shapes map[string][]int
		want   string
	}{
		{ModelFile, map[string][]int{"0.bias": {2, 2}}, `"model.safetensors": no tensor "0.bias"`},
		{ModelFile, map[string][]int{"0.weight": {4}}, `"model.safetensors": tensor "0.weight" has shape [2 2], want [4]`},
		{OptimizerFile, nil, `"optimizer.safetensors": unknown tensor "momentum.0.weight"`},
		{"other", nil, `no file "other"`},
	} {
		if _, err := s.Tensors(c.file, c.shapes); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	// Reads return the verified data, even if another file has the same path now.
	file := filepath.Join(s.Path, ModelFile)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	tensors, err := s.Tensors(ModelFile, map[string][]int{"0.weight": {2, 2}})
	if err != nil {
		t.Fatal(err)
	}
	for at := range 4 {
		into := make([]float32, 4-at)
		if err := tensors.Read("0.weight", at, into); err != nil || !slices.Equal(into, []float32{1, 2, 3, 4}[at:]) {
			t.Errorf("read %v from %d on, %v", into, at, err)
		}
	}
}

// TestLoadOneFile checks that Load of a single file does not depend on the other files of a
// checkpoint.
func TestLoadOneFile(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, 1)
	if err := os.Truncate(filepath.Join(save(t, dir, 2), OptimizerFile), 3); err != nil {
		t.Fatal(err)
	}
	s, skipped, err := Load(t.Context(), dir, ModelFile)
	if err != nil || s.Manifest.Step != 2 || len(skipped) > 0 || len(s.Files) != 1 {
		t.Fatalf("loaded %+v, passed over %v: %v", s, skipped, err)
	}
	s.Close()
	if s, _, err = Load(t.Context(), dir, OptimizerFile); err != nil || s.Manifest.Step != 1 {
		t.Fatalf("loaded %+v: %v", s, err)
	}
	s.Close()
	if _, _, err := Load(t.Context(), dir, "other"); err == nil || !strings.Contains(err.Error(), `checkpoint of step 2: its manifest has no file "other"`) {
		t.Errorf("got %v", err)
	}
}

// TestNoMemoryForTensors checks that neither Verify nor Read into given memory allocates memory
// for the tensors.
func TestNoMemoryForTensors(t *testing.T) {
	const n = 4 << 20
	dir := t.TempDir()
	m, _ := state(1)
	tensors := []safetensors.Tensor{{Name: "w", Shape: []int{n}, Data: make([]float32, n)}}
	path, err := Save(dir, m, Files{ModelFile: tensors})
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := Verify(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	s, _, err := Load(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	stored, err := s.Tensors(ModelFile, map[string][]int{"w": {n}})
	if err != nil {
		t.Fatal(err)
	}
	if err := stored.Read("w", 0, tensors[0].Data); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > n {
		t.Errorf("%d bytes for a checkpoint of %d", took, 4*n)
	}
}
