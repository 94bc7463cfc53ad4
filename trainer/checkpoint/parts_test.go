package checkpoint

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// divided saves a state in parts, as two ranks do.
func divided(t *testing.T, dir string) (s Writer, m *Manifest, whole Files, files []File) {
	t.Helper()
	m, whole = state(4)
	s, files, err := divide(dir, m, whole)
	if err != nil || s.Exists {
		t.Fatal(s, err)
	}
	return s, m, whole, files
}

func divide(dir string, m *Manifest, whole Files) (s Writer, files []File, err error) {
	m.Sharded = map[string]map[string][]int{"model.safetensors": {"0.weight": {2, 2}}, "optimizer.safetensors": {"momentum.0.weight": {2, 2}}}
	if s, err = Begin(dir, m); err != nil || s.Exists {
		return s, nil, err
	}
	for rank, cut := range [][2]int{{0, 3}, {3, 4}} {
		parts := map[string][]Part{}
		for name, tensors := range whole {
			for _, w := range tensors {
				parts[name] = append(parts[name], Part{w.Name, cut[0], w.Data[cut[0]:cut[1]]})
			}
		}
		written, err := WriteParts(s.TempDir, rank, parts)
		if err != nil {
			s.Abort()
			return s, nil, err
		}
		files = append(files, written...)
	}
	return s, files, nil
}

// TestConsolidate checks that consolidated parts are byte-identical to a file that one rank
// writes.
func TestConsolidate(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	s, m, _, parts := divided(t, dir)
	files, err := s.Consolidate(parts)
	if err != nil {
		t.Fatal(err)
	}
	path, err := s.Commit(files)
	if err != nil {
		t.Fatal(err)
	}
	want := save(t, other, 4)
	left, err := os.ReadDir(path)
	if err != nil || len(left) != 3 || m.Sharded != nil {
		t.Errorf("files %v, %v, divided %v", left, err, m.Sharded)
	}
	for _, name := range []string{ModelFile, OptimizerFile} {
		a, aerr := os.ReadFile(filepath.Join(path, name))
		b, berr := os.ReadFile(filepath.Join(want, name))
		if aerr != nil || berr != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: %d and %d bytes, %v, %v", name, len(a), len(b), aerr, berr)
		}
	}
	if err := Verify(t.Context(), path); err != nil {
		t.Error(err)
	}
}

// TestConsolidateCorruptPart checks that Consolidate detects a part that differs from the part
// that its rank wrote, and removes all files.
func TestConsolidateCorruptPart(t *testing.T) {
	dir := t.TempDir()
	s, _, _, parts := divided(t, dir)
	file := filepath.Join(s.TempDir, partName(ModelFile, 1))
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Consolidate(parts); err == nil || !strings.Contains(err.Error(), "model-rank-00001.safetensors\" is corrupt") {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}

// TestPartsRoundTrip checks that Load reads the parts of several ranks as one file, from any
// offset.
func TestPartsRoundTrip(t *testing.T) {
	dir := t.TempDir()
	s, m, whole, files := divided(t, dir)
	path, err := s.Commit(files)
	if err != nil || path != s.Path() {
		t.Fatal(path, err)
	}
	got, skipped, err := Load(t.Context(), dir)
	if err != nil || len(skipped) > 0 {
		t.Fatal(skipped, err)
	}
	defer got.Close()
	for name, want := range whole {
		f := got.Files[name]
		tensors, _, err := safetensors.Read(f, f.Size())
		if err != nil || !reflect.DeepEqual(tensors, want) {
			t.Errorf("%s: %v, %v", name, tensors, err)
		}
		var file bytes.Buffer
		if err := safetensors.Write(&file, want, metadata); err != nil {
			t.Fatal(err)
		}
		// Any range of bytes equals the range of the whole file.
		for from := range file.Len() {
			part := make([]byte, file.Len()-from)
			if n, err := f.ReadAt(part, int64(from)); n != len(part) || err != nil && err != io.EOF || !bytes.Equal(part, file.Bytes()[from:]) {
				t.Fatalf("%s from %d: %d bytes, %v", name, from, n, err)
			}
		}
	}
	if one, _, err := Load(t.Context(), dir, ModelFile); err != nil || len(one.Files) != 1 || one.Files[ModelFile] == nil {
		t.Errorf("the model alone: %v, %v", one, err)
	} else {
		one.Close()
	}
	if s, err = Begin(dir, m); err != nil || !s.Exists || s.Path() != path {
		t.Errorf("again: %+v, %v", s, err)
	}
}

// TestPartsThatDoNotMatch checks that the error names missing, duplicated, and surplus elements of
// a tensor in parts, and invalid names.
func TestPartsThatDoNotMatch(t *testing.T) {
	shapes := map[string][]int{"a": {2, 3}, "one": nil}
	one := "one@0 1,"
	for parts, want := range map[string]string{
		"a@0 6," + one:                    "",
		"a@4 2,a@0 4," + one:              "",
		"a@0 6":                           `tensor "one" with shape [] has 0 elements`,
		"a@0 4,a@5 1," + one:              "elements 4 to 5 are missing or duplicated",
		"a@0 4,a@3 3," + one:              "elements 3 to 4 are missing or duplicated",
		"a@0 5," + one:                    "with shape [2 3] has 5 elements",
		"a@0 7," + one:                    "with shape [2 3] has 7 elements",
		"a 6," + one:                      "not a valid name",
		"a@-1 6," + one:                   "not a valid name",
		"a@99999999999999999999 6," + one: "not a valid name",
	} {
		of := map[string][]storedRange{}
		var err error
		for _, p := range strings.Split(strings.TrimSuffix(parts, ","), ",") {
			var name string
			var n int
			if _, err := fmt.Sscan(p, &name, &n); err != nil {
				t.Fatal(err)
			}
			tensor, offset, perr := parsePartName(safetensors.Array{Name: name, DType: safetensors.F32})
			if err == nil {
				err = perr
			}
			of[tensor] = append(of[tensor], storedRange{offset: offset, n: n, file: io.NewSectionReader(bytes.NewReader(nil), 0, 0)})
		}
		if err == nil {
			_, err = joinTensors(of, shapes)
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", parts, err, want)
		}
	}
}

// TestPartsAreLimited checks the limit of the number of ranges in all part files. They can be links to one
// file, with a header of 16 MiB.
func TestPartsAreLimited(t *testing.T) {
	var file bytes.Buffer
	if err := safetensors.Write(&file, []safetensors.Tensor{{Name: "a@0", Shape: []int{1}, Data: []float32{1}}, {Name: "a@1", Shape: []int{1}, Data: []float32{2}}}, nil); err != nil {
		t.Fatal(err)
	}
	files := []File{{Name: "one"}, {Name: "two"}, {Name: "three"}}
	for limit, want := range map[int]string{6: "", 5: `"three": the parts have more than`} {
		s := &Snapshot{Files: map[string]*io.SectionReader{}}
		for _, f := range files {
			s.Files[f.Name] = io.NewSectionReader(bytes.NewReader(file.Bytes()), 0, int64(file.Len()))
		}
		parts, err := s.readParts(map[string][]int{"a": {6}}, files, limit)
		if want == "" && (err != nil || len(parts["a"]) != 6) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("limit %d: got %d ranges, %v, want %q", limit, len(parts["a"]), err, want)
		}
	}
}

// FuzzParts checks that any parts result in a file of whole tensors or in an error.
func FuzzParts(f *testing.F) {
	f.Add("a@0", "a@2", uint8(2), uint8(4), 2, 3)
	f.Add("a@0", "b@1", uint8(2), uint8(4), 1<<62, 4)
	f.Fuzz(func(t *testing.T, first, second string, n, m uint8, rows, cols int) {
		of := map[string][]storedRange{}
		for i, name := range []string{first, second} {
			tensor, offset, err := parsePartName(safetensors.Array{Name: name, DType: safetensors.F32})
			if err != nil {
				return
			}
			size := int([]uint8{n, m}[i])
			of[tensor] = append(of[tensor], storedRange{offset: offset, n: size, file: io.NewSectionReader(bytes.NewReader(make([]byte, 4*size)), 0, int64(4*size))})
		}
		j, err := joinTensors(of, map[string][]int{"a": {rows, cols}})
		if err != nil {
			return
		}
		tensors, _, err := safetensors.Read(io.NewSectionReader(j, 0, j.size), j.size)
		if err != nil || len(tensors) != 1 || len(tensors[0].Data) != rows*cols {
			t.Errorf("%v, %v", tensors, err)
		}
	})
}
