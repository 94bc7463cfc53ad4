package dcp

import (
	"archive/zip"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
	"github.com/ddpbatch/ddpbatch/trainer/unpickle"
)

// fixture returns the files of a checkpoint that testdata/save.py has written.
func fixture(t testing.TB) map[string][]byte {
	t.Helper()
	z, err := zip.OpenReader("testdata/checkpoint.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	files := map[string][]byte{}
	for _, f := range z.File {
		if files[f.Name], err = fs.ReadFile(z, f.Name); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// directory writes files into a new directory.
func directory(t testing.TB, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func open(t *testing.T, dir string) *Checkpoint {
	t.Helper()
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// expected is an entry of testdata/checkpoint.json: a tensor or the repr of a value.
type expected struct {
	Path       []any
	DType, Hex string
	Shape      []int
	Value      string
}

func (e expected) name() string { return join(e.Path) }

func expectations(t *testing.T) []expected {
	t.Helper()
	text, err := os.ReadFile("testdata/checkpoint.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []expected
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// TestSafetensors checks that the file has the tensors that PyTorch reads from the checkpoint, bit
// for bit, and that all data are aligned.
func TestSafetensors(t *testing.T) {
	c := open(t, directory(t, fixture(t)))
	if err := c.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := c.WriteSafetensors(t.Context(), &file); err != nil {
		t.Fatal(err)
	}
	arrays, _, err := safetensors.ReadHeader(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, a := range arrays {
		raw, err := a.Read(bytes.NewReader(file.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if a.Begin%int64(a.DType.Size()) != 0 {
			t.Errorf("tensor %q at byte %d, want a multiple of %d", a.Name, a.Begin, a.DType.Size())
		}
		got[a.Name] = fmt.Sprint(a.DType, a.Shape, hex.EncodeToString(raw))
	}
	tensors := 0
	for _, e := range expectations(t) {
		if e.DType == "" {
			continue
		}
		tensors++
		if want := fmt.Sprint(dtypes[e.DType], e.Shape, e.Hex); got[e.name()] != want {
			t.Errorf("tensor %q is %s, want %s", e.name(), got[e.name()], want)
		}
	}
	if len(got) != tensors {
		t.Errorf("got %d tensors, want %d", len(got), tensors)
	}
}

// repr formats a value as Python does.
func repr(v any) string {
	words := func(list []any) string {
		var words []string
		for _, e := range list {
			words = append(words, repr(e))
		}
		return strings.Join(words, ", ")
	}
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return map[bool]string{true: "True", false: "False"}[v]
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case string:
		return "'" + v + "'"
	case []byte:
		return `b'\x` + strings.Join(strings.Fields(fmt.Sprintf("% x", v)), `\x`) + "'"
	case unpickle.Tuple:
		return "(" + words(v) + ")"
	case *unpickle.List:
		return "[" + words(v.Items) + "]"
	}
	return fmt.Sprint(v)
}

// leaves lists the tensors and values below a value that a file contains.
func leaves(t *testing.T, a *archive, path []any, v any, found *[]string) {
	t.Helper()
	switch v := v.(type) {
	case *unpickle.Dict:
		for i, k := range v.Keys {
			leaves(t, a, append(slices.Clone(path), k), v.Values[i], found)
		}
		return
	case *unpickle.List:
		if strings.HasSuffix(join(path), "versions") || strings.HasSuffix(join(path), "param_groups") {
			for i, e := range v.Items {
				leaves(t, a, append(slices.Clone(path), i), e, found)
			}
			return
		}
	case *unpickle.Object:
		key := v.Args[0].(*unpickle.Reference).ID.(unpickle.Tuple)[2].(string)
		raw, err := a.text("data/" + key)
		if err != nil {
			t.Fatal(err)
		}
		*found = append(*found, fmt.Sprintf("%s %v %x", join(path), v.Args[2], raw))
		return
	}
	*found = append(*found, fmt.Sprint(join(path), " ", repr(v)))
}

// TestTorch checks that the file has the tensors and other values that PyTorch reads from the
// checkpoint, in the same order and nested in the same way.
func TestTorch(t *testing.T) {
	c := open(t, directory(t, fixture(t)))
	if err := c.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	skipped, err := c.WriteTorch(t.Context(), &file)
	if err != nil || len(skipped) > 0 {
		t.Fatal(skipped, err)
	}
	a, err := openArchive(t.Context(), io.NewSectionReader(bytes.NewReader(file.Bytes()), 0, int64(file.Len())))
	if err != nil {
		t.Fatal(err)
	}
	v, err := unpickle.Decode(a.pickle, tensorClasses)
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	leaves(t, a, nil, v, &got)
	for _, e := range expectations(t) {
		if e.DType == "" {
			want = append(want, e.name()+" "+e.Value)
		} else {
			want = append(want, fmt.Sprintf("%s %v %s", e.name(), e.Shape, e.Hex))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestSelect checks which entries a path selects, and their names.
func TestSelect(t *testing.T) {
	for path, want := range map[string]string{
		"train":                    "versions.0 versions.1.a epoch name best losses seed raw offset",
		"train.versions":           "0 1.a",
		"train.versions.0":         "0",
		"model.0":                  "weight bias",
		"model.0.weight":           "0.weight", // the key in the state_dict
		"optimizer.state.1.weight": "exp_avg exp_avg_sq step",
		"model.0.weight.x":         "error",
		"mod":                      "error",
		"train.epoch":              "error", // not a tensor
		"":                         "error",
	} {
		c := open(t, directory(t, fixture(t)))
		got := "error"
		err := c.Select(path)
		if err == nil {
			var names []string
			for _, e := range c.Tensors {
				names = append(names, e.Name)
			}
			for _, e := range c.Values {
				names = append(names, e.Name)
			}
			got = strings.Join(names, " ")
		} else if hint := hints.Of(err); !strings.Contains(hint, `"model", "optimizer", "train"`) {
			t.Errorf("%q: hint %q does not list the parts", path, hint)
		}
		wanted, have := strings.Fields(want), strings.Fields(got)
		slices.Sort(wanted)
		slices.Sort(have)
		if !slices.Equal(have, wanted) {
			t.Errorf("%q selects %s, want %s", path, got, want)
		}
	}
}

// TestErrors checks that each kind of damage is an error that names the file and the tensor.
func TestErrors(t *testing.T) {
	replace := func(name, from, to string) func(map[string][]byte) {
		return func(files map[string][]byte) {
			if !bytes.Contains(files[name], []byte(from)) {
				panic(fmt.Sprintf("%s does not contain %q", name, from))
			}
			files[name] = bytes.Replace(files[name], []byte(from), []byte(to), 1)
		}
	}
	weight, err := hex.DecodeString("a52d933e6f9487be76aef9bd") // the first row of model.0.weight
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		damage func(files map[string][]byte)
		want   string // words of the error
		hint   string
	}{
		"no metadata":     {func(f map[string][]byte) { delete(f, ".metadata") }, "incomplete .metadata", "earlier checkpoint"},
		"no file":         {func(f map[string][]byte) { delete(f, "__1_0.distcp") }, `"__1_0.distcp" is missing model.0.weight`, "complete directory"},
		"truncated file":  {func(f map[string][]byte) { f["__0_0.distcp"] = f["__0_0.distcp"][:2000] }, `"__0_0.distcp" is truncated model.`, "complete directory"},
		"changed data":    {replace("__0_0.distcp", string(weight), strings.Repeat("x", 12)), `"model.0.weight" "__0_0.distcp" checksum`, "copy the file again"},
		"no archive":      {func(f map[string][]byte) { clear(f["__0_0.distcp"]) }, `"model.0.bias" "__0_0.distcp" archive`, "copy the file again"},
		"no pickle":       {func(f map[string][]byte) { f[".metadata"] = []byte("{}") }, `.metadata" pickle`, ""},
		"empty metadata":  {func(f map[string][]byte) { f[".metadata"] = nil }, ".metadata unexpected end", ""},
		"other pickle":    {func(f map[string][]byte) { f[".metadata"] = []byte("\x80\x04}.") }, ".metadata not the metadata", ""},
		"class":           {replace(".metadata", "\x8c\x0bStorageMeta", "\x8c\x06system"), `"torch.distributed.checkpoint.metadata.system" is not allowed`, ""},
		"other directory": {replace(".metadata", "__0_0.distcp", "../../secret"), `model.0.weight "../../secret" outside`, ""},
		"type":            {replace(".metadata", "\x8c\x08bfloat16", "\x8c\x09complex64"), `model.columns torch.complex64 not supported`, "--only"},
		"different type":  {replace(".metadata", "\x8c\x08bfloat16", "\x8c\x07float64"), `model.columns .metadata expects`, ""},
		"changed pickle":  {replace("__0_0.distcp", "K\x03K\x03\x86", "K\x01K\x09\x86"), `model.0.weight "__0_0.distcp" checksum`, "copy the file again"},
	} {
		t.Run(name, func(t *testing.T) {
			files := fixture(t)
			tt.damage(files)
			dir := directory(t, files)
			if !IsCheckpoint(dir) {
				t.Error("not recognized as a checkpoint")
			}
			err := export(t, dir)
			if err == nil {
				t.Fatal("no error")
			}
			for _, word := range strings.Fields(tt.want) {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("error %q does not contain %s", err, word)
				}
			}
			if hint := hints.Of(err); !strings.Contains(hint, tt.hint) {
				t.Errorf("hint %q does not contain %q", hint, tt.hint)
			}
		})
	}
}

// export writes a checkpoint in both formats and returns the first error.
func export(t *testing.T, dir string) error {
	t.Helper()
	c, err := Open(dir)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Check(t.Context()); err != nil {
		return err
	}
	if err := c.WriteSafetensors(t.Context(), io.Discard); err != nil {
		return err
	}
	_, err = c.WriteTorch(t.Context(), io.Discard)
	return err
}

// TestSkippedValue checks that values of other classes are skipped, and that tensors are not.
func TestSkippedValue(t *testing.T) {
	c := open(t, directory(t, fixture(t)))
	c.Values[0].at = c.Tensors[0].chunks[0].at
	skipped, err := c.WriteTorch(t.Context(), io.Discard)
	if err != nil || len(skipped) != 1 || skipped[0].Name != c.Values[0].Name || !strings.Contains(skipped[0].Cause.Error(), rebuildTyped) {
		t.Errorf("skipped %v (%v), want %s with its class", skipped, err, c.Values[0].Name)
	}
}

// TestSkippedValueDoesNotCount checks that a value that exceeds the limits does not count for other
// values.
func TestSkippedValueDoesNotCount(t *testing.T) {
	files := fixture(t)
	large := pack(t, []byte("\x80\x02"+nested(20)+"."), nil)
	files["large"] = large
	c := open(t, directory(t, files))
	c.Values[0].at = location{file: "large", length: int64(len(large))}
	if skipped, err := c.WriteTorch(t.Context(), io.Discard); err != nil || len(skipped) != 1 || skipped[0].Name != c.Values[0].Name {
		t.Errorf("skipped %v (%v), want only %s", skipped, err, c.Values[0].Name)
	}
}

// TestIsCheckpoint checks that other directories are not distributed checkpoints.
func TestIsCheckpoint(t *testing.T) {
	dir := directory(t, map[string][]byte{"model.safetensors": nil})
	for _, path := range []string{dir, filepath.Join(dir, "model.safetensors"), filepath.Join(dir, "none")} {
		if IsCheckpoint(path) {
			t.Errorf("%s is a checkpoint", path)
		}
	}
}

// TestCoverage checks that chunks that overlap or that miss elements are found.
func TestCoverage(t *testing.T) {
	type box [2][]int // offsets and sizes
	for name, tt := range map[string]struct {
		shape  []int
		chunks []box
		want   string // word of the error
	}{
		"one":                {[]int{2, 3}, []box{{{0, 0}, {2, 3}}}, ""},
		"number":             {[]int{}, []box{{{}, {}}}, ""},
		"no number":          {[]int{}, nil, "0 of 1"},
		"number twice":       {[]int{}, []box{{{}, {}}, {{}, {}}}, "overlap"},
		"empty":              {[]int{0, 3}, nil, ""},
		"rows":               {[]int{4, 3}, []box{{{3, 0}, {1, 3}}, {{0, 0}, {3, 3}}}, ""},
		"columns":            {[]int{4, 3}, []box{{{0, 0}, {4, 1}}, {{0, 1}, {4, 2}}}, ""},
		"quarters":           {[]int{2, 2}, []box{{{0, 0}, {1, 1}}, {{0, 1}, {1, 1}}, {{1, 0}, {1, 1}}, {{1, 1}, {1, 1}}}, ""},
		"missing row":        {[]int{4, 3}, []box{{{0, 0}, {3, 3}}}, "9 of 12"},
		"missing quarter":    {[]int{2, 2}, []box{{{0, 0}, {1, 1}}, {{0, 1}, {1, 1}}, {{1, 1}, {1, 1}}}, "3 of 4"},
		"overlap":            {[]int{4, 3}, []box{{{0, 0}, {3, 3}}, {{2, 0}, {2, 3}}}, "overlap"},
		"overlap and a hole": {[]int{4}, []box{{{0}, {2}}, {{1}, {2}}}, "overlap"},
		"overlap of three":   {[]int{6}, []box{{{0}, {4}}, {{4}, {2}}, {{2}, {2}}}, "overlap"},
	} {
		tensor := Tensor{Shape: tt.shape}
		for _, b := range tt.chunks {
			tensor.chunks = append(tensor.chunks, chunk{offsets: b[0], sizes: b[1]})
		}
		err := tensor.checkCoverage()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}

// TestRows checks, for random tensors, that the rows of chunks have the positions of their elements.
func TestRows(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		shape := make([]int, r.IntN(5))
		ch := chunk{}
		for i := range shape {
			shape[i] = 1 + r.IntN(4)
			offset := r.IntN(shape[i])
			ch.offsets = append(ch.offsets, offset)
			ch.sizes = append(ch.sizes, 1+r.IntN(shape[i]-offset))
		}
		var got, want []int
		if err := ch.rows(shape, func(from, n int) error {
			for i := range n {
				got = append(got, from+i)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for i := range elements(shape) {
			rest, inside := int(i), true
			for d := len(shape) - 1; d >= 0; d-- {
				j := rest%shape[d] - ch.offsets[d]
				rest /= shape[d]
				inside = inside && j >= 0 && j < ch.sizes[d]
			}
			if inside {
				want = append(want, int(i))
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("chunk at %v with size %v of shape %v: elements %v, want %v", ch.offsets, ch.sizes, shape, got, want)
		}
	}
}

// TestPaths checks which paths can be in one file.
func TestPaths(t *testing.T) {
	for name, tt := range map[string]struct {
		paths [][]any
		want  string // "error", or the value
	}{
		"nested":          {[][]any{{"a", "b"}, {"a", "c", int64(0)}, {"d"}}, "{a: {b: 0, c: [1]}, d: 2}"},
		"reverse list":    {[][]any{{"a", int64(1)}, {"a", int64(0)}}, "{a: [1, 0]}"},
		"hole":            {[][]any{{"a", int64(2)}}, "{a: [None, None, 0]}"},
		"large hole":      {[][]any{{"a", int64(1 << 40)}}, "error"},
		"same path":       {[][]any{{"a"}, {"a"}}, "error"},
		"value and dict":  {[][]any{{"a"}, {"a", "b"}}, "error"},
		"dict and value":  {[][]any{{"a", "b"}, {"a"}}, "error"},
		"dict and a list": {[][]any{{"a", "b"}, {"a", int64(0)}}, "error"},
	} {
		root := &node{children: map[any]*node{}}
		var err error
		for i, path := range tt.paths {
			if err == nil {
				err = root.add(path, int64(i))
			}
		}
		got := "error"
		if err == nil {
			holes := 10
			var v any
			if v, err = root.value(&holes); err == nil {
				got = formatTree(v)
			}
		}
		if got != tt.want {
			t.Errorf("%s: got %s (%v), want %s", name, got, err, tt.want)
		}
	}
}

func formatTree(v any) string {
	var words []string
	switch v := v.(type) {
	case *unpickle.Dict:
		for i, k := range v.Keys {
			words = append(words, fmt.Sprint(k, ": ", formatTree(v.Values[i])))
		}
		return "{" + strings.Join(words, ", ") + "}"
	case *unpickle.List:
		for _, e := range v.Items {
			words = append(words, formatTree(e))
		}
		return "[" + strings.Join(words, ", ") + "]"
	}
	return repr(v)
}

// TestValuesAreLimited checks that values that contain themselves, or one value many times, are
// skipped.
func TestValuesAreLimited(t *testing.T) {
	self := &unpickle.List{}
	self.Items = []any{self}
	var shared any = int64(1)
	for range 50 {
		shared = unpickle.Tuple{shared, shared}
	}
	for name, v := range map[string]any{"itself": self, "shared": shared} {
		var total extent
		if err := total.add(v, 0); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// FuzzMetadata checks that no metadata crash the parser and the checks.
func FuzzMetadata(f *testing.F) {
	f.Fuzz(func(t *testing.T, raw []byte) {
		var c Checkpoint
		if c.parse(raw, maxMetadataBudget) != nil {
			return
		}
		root := &node{children: map[any]*node{}}
		for _, tensor := range c.Tensors {
			if tensor.checkCoverage() == nil && root.add(tensor.path, nil) == nil {
				tensor.relativeTo("model")
			}
		}
		holes := 10
		_, _ = root.value(&holes)
	})
}

// FuzzArchive checks that no archive crashes the reader.
func FuzzArchive(f *testing.F) {
	f.Fuzz(func(t *testing.T, raw []byte) { readTensor(t, raw) })
}
