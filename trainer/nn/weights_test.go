package nn

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// file returns a safetensors file of tensors.
func file(t testing.TB, tensors []safetensors.Tensor) *bytes.Reader {
	t.Helper()
	var b bytes.Buffer
	if err := safetensors.Write(&b, tensors, map[string]string{"format": "pt"}); err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(b.Bytes())
}

func open(t testing.TB, r *bytes.Reader) *Weights {
	t.Helper()
	w, err := OpenWeights(r, r.Size())
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// tensors returns PyTorch's initial weights.
func (g tinyGPT) tensors() []safetensors.Tensor {
	var list []safetensors.Tensor
	for _, p := range g.Params {
		list = append(list, safetensors.Tensor{Name: p.Name, Shape: p.Shape, Data: p.Values})
	}
	return list
}

// check loads weights and compares the model's logits with PyTorch's. It returns the model.
func (g tinyGPT) check(t *testing.T, w *Weights, d device.Device, most float64) *GPT {
	t.Helper()
	m := newGPT(t, d, g.Config)
	if err := w.Load(m, d); err != nil {
		t.Fatal(err)
	}
	checkClose(t, "logits", m.NewGenerator(d, device.FP32).Feed(g.sequence()), g.logitsAfter(g.Config.Context-1), most)
	return m
}

// TestWeightsFollowTorch checks that a model with weights from PyTorch, with any of the names and
// extras of such files, has PyTorch's logits, and that it is written as an equal file.
func TestWeightsFollowTorch(t *testing.T) {
	tiny := readTinyGPT(t)
	tensors := tiny.tensors()
	prefixed := slices.Clone(tensors)
	for i := range prefixed {
		prefixed[i].Name = "transformer." + prefixed[i].Name
	}
	head := tensors[0]
	head.Name = "lm_head.weight"
	for name, given := range map[string][]safetensors.Tensor{
		"GPT2Model":       tensors,
		"GPT2LMHeadModel": prefixed,
		"with a head":     append(slices.Clone(prefixed), head),
		"with masks": append(slices.Clone(tensors),
			safetensors.Tensor{Name: "h.0.attn.bias", Shape: []int{1, 1, 8, 8}, Data: make([]float32, 64)},
			safetensors.Tensor{Name: "h.1.attn.masked_bias", Data: make([]float32, 1)}),
	} {
		t.Run(name, func(t *testing.T) {
			w := open(t, file(t, given))
			o, err := w.Options(3)
			if err != nil || o != tiny.Config {
				t.Fatalf("options %+v, %v", o, err)
			}
			d := cpu.New(1)
			m := tiny.check(t, w, d, logitsMost)
			again, first := file(t, Tensors(d, m.Params())), file(t, tensors)
			if !bytes.Equal(content(again), content(first)) {
				t.Error("the model is written as another file")
			}
		})
	}
}

func content(r *bytes.Reader) []byte {
	b := make([]byte, r.Size())
	if _, err := r.ReadAt(b, 0); err != nil {
		panic(err)
	}
	return b
}

// as16 converts a file of F32 to 16-bit elements.
func as16(tensors []safetensors.Tensor, dtype string, bits func(float32) uint16) *bytes.Reader {
	header, data := []string{}, []byte{}
	for _, x := range tensors {
		begin := len(data)
		for _, v := range x.Data {
			data = binary.LittleEndian.AppendUint16(data, bits(v))
		}
		shape := strings.ReplaceAll(fmt.Sprint(x.Shape), " ", ",")
		header = append(header, fmt.Sprintf(`%q:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}`, x.Name, dtype, shape, begin, len(data)))
	}
	text := "{" + strings.Join(header, ",") + "}"
	return bytes.NewReader(slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), []byte(text), data))
}

// TestWeightsIn16Bits checks that weights in float16 and bfloat16 are loaded, and that integers
// are rejected.
func TestWeightsIn16Bits(t *testing.T) {
	tiny := readTinyGPT(t)
	tensors := tiny.tensors()
	// Normal binary16 values only, truncated.
	half := func(v float32) uint16 {
		b := math.Float32bits(v)
		if exponent := int(b>>23&0xff) - 127 + 15; exponent > 0 {
			return uint16(b>>16&0x8000) | uint16(exponent)<<10 | uint16(b>>13&0x3ff)
		}
		return uint16(b >> 16 & 0x8000)
	}
	bfloat := func(v float32) uint16 { return uint16(math.Float32bits(v) >> 16) }
	for _, c := range []struct {
		dtype string
		bits  func(float32) uint16
		most  float64 // tolerance of logits, from the precision of weights
	}{{"F16", half, 2e-3}, {"BF16", bfloat, 2e-2}} {
		tiny.check(t, open(t, as16(tensors, c.dtype, c.bits)), cpu.New(1), c.most)
	}
	w := open(t, as16(tensors, "I16", half))
	d := cpu.New(1)
	if err := w.Load(newGPT(t, d, tiny.Config), d); err == nil || !strings.Contains(err.Error(), `tensor "wte.weight" has type I16, want F32, F16 or BF16`) {
		t.Errorf("weights that are whole numbers: %v", err)
	}
}

// TestWeightsThatDoNotMatch checks that the error names tensors that do not match the model, with
// a hint about the likely cause.
func TestWeightsThatDoNotMatch(t *testing.T) {
	tiny := readTinyGPT(t)
	without := func(tensors []safetensors.Tensor, part string) []safetensors.Tensor {
		return slices.DeleteFunc(tensors, func(x safetensors.Tensor) bool { return strings.Contains(x.Name, part) })
	}
	for _, c := range []struct {
		name       string
		model      func(o *GPTOptions)
		weights    func(tensors []safetensors.Tensor) []safetensors.Tensor
		want, hint string
	}{
		{
			name: "vocabulary", model: func(o *GPTOptions) { o.Vocabulary = 65 },
			want: `tensor "wte.weight" has shape [11 12], want [65 12]`, hint: "a vocabulary of 11, not 65",
		},
		{
			name: "context", model: func(o *GPTOptions) { o.Context = 4 },
			want: `tensor "wpe.weight" has shape [8 12], want [4 12]`, hint: "a context of 8, not 4",
		},
		{
			name: "width", model: func(o *GPTOptions) { o.Width = 24; o.Context = 9 },
			want: `tensor "wte.weight" has shape [11 12], want [11 24]`, hint: "a context of 8, not 9, a width of 12, not 24",
		},
		{
			name: "more layers", model: func(o *GPTOptions) { o.Layers = 3 },
			want: `no tensor "h.2.ln_1.weight", want it with shape [12]`, hint: "a number of layers of 2, not 3",
		},
		{
			name: "fewer layers", model: func(o *GPTOptions) { o.Layers = 1 },
			want: `tensor "h.1.attn.c_attn.bias" with shape [36] is not a parameter of the model`, hint: "a number of layers of 2, not 1",
		},
		{
			name: "missing", weights: func(x []safetensors.Tensor) []safetensors.Tensor { return without(x, "h.1.mlp.c_fc.bias") },
			want: `no tensor "h.1.mlp.c_fc.bias", want it with shape [48]`,
		},
		{
			name: "no embedding", weights: func(x []safetensors.Tensor) []safetensors.Tensor { return without(x, "wte") },
			want: `no tensor "wte.weight"`, hint: "use the weights of a GPT-2",
		},
		{
			name: "unknown", weights: func(x []safetensors.Tensor) []safetensors.Tensor {
				return append(x, safetensors.Tensor{Name: "score.weight", Shape: []int{1}, Data: []float32{1}})
			},
			want: `tensor "score.weight" with shape [1] is not a parameter of the model`,
		},
		{
			name: "transposed", weights: func(x []safetensors.Tensor) []safetensors.Tensor {
				at := slices.IndexFunc(x, func(x safetensors.Tensor) bool { return x.Name == "h.0.attn.c_attn.weight" })
				x[at].Shape = []int{36, 12}
				return x
			},
			want: `tensor "h.0.attn.c_attn.weight" has shape [36 12], want [12 36]`, hint: "it is transposed",
		},
		{
			name: "a vector as a matrix", weights: func(x []safetensors.Tensor) []safetensors.Tensor {
				x[len(x)-1].Shape = []int{3, 4}
				return x
			},
			want: `tensor "ln_f.bias" has shape [3 4], want [12]`,
		},
		{
			name: "an embedding of one dimension", weights: func(x []safetensors.Tensor) []safetensors.Tensor {
				x[1].Shape = []int{96}
				return x
			},
			want: `tensor "wpe.weight" has shape [96], want [8 12]`,
		},
		{
			name: "another head", weights: func(x []safetensors.Tensor) []safetensors.Tensor {
				other := slices.Clone(x[0].Data)
				other[5] = 3
				return append(x, safetensors.Tensor{Name: "lm_head.weight", Shape: x[0].Shape, Data: other})
			},
			want: `tensor "lm_head.weight" differs from "wte.weight": element 5 is 3, not `, hint: "a separate head is not supported",
		},
		{
			name: "a head of another shape", weights: func(x []safetensors.Tensor) []safetensors.Tensor {
				return append(x, safetensors.Tensor{Name: "lm_head.weight", Shape: []int{1}, Data: []float32{1}})
			},
			want: `tensor "lm_head.weight" has shape [1], want [11 12]`,
		},
		{
			name: "duplicate", weights: func(x []safetensors.Tensor) []safetensors.Tensor {
				twice := x[1]
				twice.Name = "transformer." + twice.Name
				return append(x, twice)
			},
			want: `tensors "transformer.wpe.weight" and "wpe.weight" are the same parameter`,
		},
		{
			name: "not a number", weights: func(x []safetensors.Tensor) []safetensors.Tensor {
				x[0].Data = slices.Clone(x[0].Data)
				x[0].Data[7] = float32(math.NaN())
				return x
			},
			want: `tensor "wte.weight": element 7 is NaN`, hint: "diverged",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, tensors := tiny.Config, tiny.tensors()
			if c.model != nil {
				c.model(&o)
			}
			if c.weights != nil {
				tensors = c.weights(tensors)
			}
			r := file(t, tensors)
			w, err := OpenWeights(r, r.Size())
			if err == nil {
				d := cpu.New(1)
				err = w.Load(newGPT(t, d, o), d)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v\nwant %s", err, c.want)
			}
			hint := ""
			if h, ok := err.(interface{ Hint() string }); ok {
				hint = h.Hint()
			}
			if (hint == "") != (c.hint == "") || !strings.Contains(hint, c.hint) {
				t.Errorf("hint %q, want %q", hint, c.hint)
			}
		})
	}
}

// TestHeadsAreEstimated checks that the number of heads, which a weights file does not contain, is
// estimated from the width unless it is given.
func TestHeadsAreEstimated(t *testing.T) {
	shape := GPTOptions{Vocabulary: 5, Context: 4, Layers: 1, Heads: 1, Width: 128}
	d := cpu.New(1)
	weights := func(o GPTOptions) *Weights {
		return open(t, file(t, Tensors(d, newGPT(t, d, o).Params())))
	}
	if o, err := weights(shape).Options(0); err != nil || o.Heads != 2 {
		t.Errorf("a width of 128 has %d heads, %v", o.Heads, err)
	}
	if o, err := weights(shape).Options(8); err != nil || o.Heads != 8 {
		t.Errorf("8 heads were given, not %d, %v", o.Heads, err)
	}
	if _, err := weights(shape).Options(3); err == nil || !strings.Contains(err.Error(), "cannot be divided among 3 heads") {
		t.Errorf("3 heads: %v", err)
	}
	shape.Width = 100
	if _, err := weights(shape).Options(0); err == nil || !strings.Contains(err.Error(), "a width of 100") {
		t.Errorf("a width of 100: %v", err)
	}
}

// FuzzWeights checks that any file is rejected or results in a model that generates a token.
func FuzzWeights(f *testing.F) {
	d := cpu.New(1)
	o := GPTOptions{Vocabulary: 2, Context: 1, Layers: 1, Heads: 1, Width: 1}
	whole := content(file(f, Tensors(d, newGPT(f, d, o).Params())))
	n := 8 + binary.LittleEndian.Uint64(whole)
	header, values := string(whole[8:n]), whole[n:]
	f.Add(header, values)
	f.Add(strings.ReplaceAll(header, "h.0.", "h.1."), values)
	f.Add(strings.ReplaceAll(header, `[2,1]`, `[1,2]`), values)
	f.Add(strings.ReplaceAll(header, "wte.weight", "wpe.weighs"), values)
	f.Add(strings.ReplaceAll(header, "F32", "I32"), values)
	f.Fuzz(func(t *testing.T, header string, values []byte) {
		// With the length that every file must have.
		raw := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
		raw = append(raw, values...)
		w, err := OpenWeights(bytes.NewReader(raw), int64(len(raw)))
		if err != nil {
			return
		}
		o, err := w.Options(1)
		if err != nil {
			return
		}
		m := newGPT(t, d, o)
		if err := w.Load(m, d); err != nil {
			return
		}
		m.NewGenerator(d, device.FP32).Feed([]int32{0})
	})
}
