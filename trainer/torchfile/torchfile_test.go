package torchfile

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func tensor(name string, shape []int, values ...float32) Tensor {
	t := Tensor{Name: name, Shape: shape}
	raw := make([]byte, 0, 4*t.len())
	for i := range int(t.len()) {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(values[i%len(values)]))
	}
	t.Data = section(raw)
	return t
}

func samples() []Tensor {
	return []Tensor{
		tensor("0.weight", []int{2, 3}, 1, -2, 0.5, 3e-30, 5, -0.25),
		tensor("0.bias", []int{3}, 7, 8, 9),
		tensor("größe", []int{}, 4),
		tensor("h.0.attn.c_attn.weight", []int{64, 3, 32}, 0.125, 2),
		tensor("none", []int{0, 4}, 1),
	}
}

// TestPyTorchReadsFile checks that torch.load with weights_only=True reads the written files.
func TestPyTorchReadsFile(t *testing.T) {
	const python = "/usr/bin/python3"
	if exec.Command(python, "-c", "import torch").Run() != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("PyTorch is missing: run tests/setup.sh")
		}
		t.Skip("PyTorch is missing: run tests/setup.sh")
	}
	var file bytes.Buffer
	if err := Write(&file, samples()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.pt")
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "testdata/load.py", path)
	cmd.Stderr = os.Stderr
	raw, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Type    string
		Tensors []struct {
			Name   string
			Shape  []int
			Values []float32
			Last   float32
		}
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	want := samples()
	if got.Type != "OrderedDict" || len(got.Tensors) != len(want) {
		t.Fatalf("torch.load gives %s", raw)
	}
	for i, g := range got.Tensors {
		w := want[i]
		values := make([]float32, w.len())
		if err := binary.Read(w.Data, binary.LittleEndian, values); err != nil && len(values) > 0 {
			t.Fatal(err)
		}
		last := float32(0)
		if len(values) > 0 {
			last = values[len(values)-1]
		}
		if g.Name != w.Name || !slices.Equal(g.Shape, w.Shape) || !slices.Equal(g.Values, values[:min(8, len(values))]) || g.Last != last {
			t.Errorf("torch.load gives %+v, want %q %v %v", g, w.Name, w.Shape, values[:min(8, len(values))])
		}
	}
}

// TestAlignment checks that every tensor's bytes are aligned and uncompressed, and that equal
// tensors result in equal files.
func TestAlignment(t *testing.T) {
	var file bytes.Buffer
	if err := Write(&file, samples()); err != nil {
		t.Fatal(err)
	}
	r, err := zip.NewReader(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range r.File {
		names = append(names, f.Name)
		at, err := f.DataOffset()
		if err != nil {
			t.Fatal(err)
		}
		if at%alignment != 0 || f.Method != zip.Store {
			t.Errorf("%s: at byte %d by method %d, want a multiple of %d, uncompressed", f.Name, at, f.Method, alignment)
		}
	}
	want := "archive/data.pkl archive/byteorder archive/data/0 archive/data/1 archive/data/2 archive/data/3 archive/data/4 archive/version"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("entries %s, want %s", got, want)
	}
	var again bytes.Buffer
	if err := Write(&again, samples()); err != nil || !bytes.Equal(again.Bytes(), file.Bytes()) {
		t.Errorf("the same tensors give other bytes (%v)", err)
	}
}

// TestWrongSize checks that a tensor whose data does not match its shape is rejected.
func TestWrongSize(t *testing.T) {
	bad := tensor("w", []int{2}, 1)
	bad.Shape = []int{3}
	err := Write(new(bytes.Buffer), []Tensor{bad})
	if err == nil || err.Error() != `tensor "w" of shape [3] has 8 bytes, want 12` {
		t.Errorf("got %v", err)
	}
}

// TestLargeNumbers checks that values above 32 bits are written as Python long integers.
func TestLargeNumbers(t *testing.T) {
	for v, want := range map[int64]string{
		5:             "J\x05\x00\x00\x00",
		math.MaxInt32: "J\xff\xff\xff\x7f",
		1 << 31:       "\x8a\x08\x00\x00\x00\x80\x00\x00\x00\x00",
	} {
		var p pickle
		p.integer(v)
		if string(p.out) != want {
			t.Errorf("%d is %q, want %q", v, p.out, want)
		}
	}
}
