package nn

import (
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// Weights are the tensors of a GPT-2 with the names of Hugging Face's GPT2Model. Files of
// GPT2LMHeadModel are supported as well: the prefix "transformer." is removed, and "lm_head.weight"
// must equal "wte.weight". The attention masks in old files are ignored.
type Weights struct {
	found map[string]storedTensor
	names []string // keys of found, in the order of the file
	head  *storedTensor
}

// storedTensor is a tensor that has not been read yet.
type storedTensor struct {
	name  string // in the file
	shape []int
	read  func() ([]float32, error)
}

const (
	modelPrefix   = "transformer."
	headName      = "lm_head.weight"
	tokensName    = "wte.weight"
	positionsName = "wpe.weight"
)

var (
	maskName  = regexp.MustCompile(`^h\.[0-9]+\.attn\.(bias|masked_bias)$`)
	blockName = regexp.MustCompile(`^h\.(0|[1-9][0-9]{0,6})\.`)
)

// OpenWeights reads the header of a safetensors file of size bytes. Load reads the tensors, which
// must be F32, F16, or BF16; the file must stay open until then. Errors that a user can fix have a
// method Hint() string, here and in the other functions for weights.
func OpenWeights(file io.ReaderAt, size int64) (*Weights, error) {
	arrays, _, err := safetensors.ReadHeader(io.NewSectionReader(file, 0, size), size)
	if err != nil {
		return nil, err
	}
	w := &Weights{found: map[string]storedTensor{}}
	for _, a := range arrays {
		if err := w.add(a.Name, a.Shape, func() ([]float32, error) {
			switch a.DType {
			case safetensors.F32, safetensors.F16, safetensors.BF16:
				return a.Float32s(file)
			}
			return nil, fmt.Errorf("tensor %q has type %s, want %s, %s or %s", a.Name, a.DType, safetensors.F32, safetensors.F16, safetensors.BF16)
		}); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *Weights) add(name string, shape []int, read func() ([]float32, error)) error {
	s := storedTensor{name, shape, read}
	key := strings.TrimPrefix(name, modelPrefix)
	switch {
	case maskName.MatchString(key):
		return nil
	case name == headName:
		w.head = &s
		return nil
	}
	if before, twice := w.found[key]; twice {
		return fmt.Errorf("tensors %q and %q are the same parameter", before.name, name)
	}
	w.found[key] = s
	w.names = append(w.names, key)
	return nil
}

// Options returns the shape of the model that has these weights. The file does not contain the
// number of heads: if heads is 0, it is Width/64, as in every published GPT-2. Missing and unknown
// tensors are errors, as in Load, so a model with these options needs no more memory than the
// weights in float32.
func (w *Weights) Options(heads int) (GPTOptions, error) {
	o, err := w.guess()
	if err != nil {
		return o, err
	}
	if o.Heads = heads; heads <= 0 {
		const headSize = 64
		if o.Width%headSize != 0 {
			return o, hints.Errorf("give the number of heads",
				"cannot derive the number of heads from a width of %d, which is not a multiple of %d", o.Width, headSize)
		}
		o.Heads = o.Width / headSize
	}
	m, err := NewGPT(o)
	if err != nil {
		return o, err
	}
	_, err = w.match(m)
	return o, err
}

// guess returns the shape, except for Heads, from the shapes of the embeddings and the names of the
// blocks.
func (w *Weights) guess() (o GPTOptions, err error) {
	for _, name := range []string{tokensName, positionsName} {
		s, found := w.found[name]
		if !found {
			return o, hints.Errorf("use the weights of a GPT-2 with Hugging Face's names",
				"no tensor %q", name)
		}
		if len(s.shape) != 2 {
			return o, fmt.Errorf("tensor %q has shape %v, want two dimensions", s.name, s.shape)
		}
	}
	tokens, positions := w.found[tokensName].shape, w.found[positionsName].shape
	blocks := map[string]bool{}
	for _, name := range w.names {
		if number := blockName.FindStringSubmatch(name); number != nil {
			blocks[number[1]] = true
		}
	}
	return GPTOptions{Vocabulary: tokens[0], Context: positions[0], Width: tokens[1], Layers: len(blocks)}, nil
}

// Load writes the weights to the parameters of m, which must have memory. The file must have
// exactly one tensor per parameter, with its shape. Otherwise the error names the tensor.
func (w *Weights) Load(m *GPT, memory device.Memory) error {
	tensors, err := w.match(m)
	if err != nil {
		return err
	}
	var embedding []float32
	for i, p := range m.params {
		values, err := tensors[i].read()
		if err != nil {
			return err
		}
		for k, v := range values {
			if v-v != 0 { // infinite or NaN
				return hints.Errorf("the training run diverged, or the file is corrupt",
					"tensor %q: element %d is %v", tensors[i].name, k, v)
			}
		}
		memory.Write(p.Data, values)
		if p == m.head.weight {
			embedding = values
		}
	}
	if w.head == nil {
		return nil
	}
	head, err := w.head.read()
	if err != nil {
		return err
	}
	for i, v := range head {
		if math.Float32bits(v) != math.Float32bits(embedding[i]) {
			return hints.Errorf("GPT-2's head shares its weights with the embedding; a separate head is not supported",
				"tensor %q differs from %q: element %d is %v, not %v", headName, w.found[tokensName].name, i, v, embedding[i])
		}
	}
	return nil
}

// match returns the tensors of the parameters of m, in their order.
func (w *Weights) match(m *GPT) ([]storedTensor, error) {
	tensors := make([]storedTensor, len(m.params))
	known := map[string]bool{}
	missing := ""
	for i, p := range m.params {
		known[p.Name] = true
		s, found := w.found[p.Name]
		switch {
		case found && !slices.Equal(s.shape, p.Shape):
			return nil, w.shapeError(s, p.Shape, m)
		case !found && missing == "":
			missing = fmt.Sprintf("no tensor %q, want it with shape %v", p.Name, p.Shape)
		}
		tensors[i] = s
	}
	if missing != "" {
		return nil, hints.Add(errors.New(missing), w.shapeHint(m))
	}
	for _, name := range w.names {
		if !known[name] {
			s := w.found[name]
			return nil, hints.Errorf(w.shapeHint(m), "tensor %q with shape %v is not a parameter of the model", s.name, s.shape)
		}
	}
	if want := m.head.weight.Shape; w.head != nil && !slices.Equal(w.head.shape, want) {
		return nil, w.shapeError(*w.head, want, m)
	}
	return tensors, nil
}

func (w *Weights) shapeError(s storedTensor, want []int, m *GPT) error {
	hint := w.shapeHint(m)
	if hint == "" && len(want) == 2 && slices.Equal(s.shape, []int{want[1], want[0]}) {
		hint = "it is transposed: Hugging Face's GPT-2 stores [inputs, outputs], nanoGPT [outputs, inputs]"
	}
	return hints.Errorf(hint, "tensor %q has shape %v, want %v", s.name, s.shape, want)
}

// shapeHint returns a hint that lists the dimensions in which the weights differ from m, or "" if
// they do not differ.
func (w *Weights) shapeHint(m *GPT) string {
	is, err := w.guess()
	if err != nil {
		return hints.Of(err)
	}
	var others []string
	for _, n := range []struct {
		name     string
		is, want int
	}{
		{"vocabulary", is.Vocabulary, m.Vocabulary}, {"context", is.Context, m.Context},
		{"width", is.Width, m.Width}, {"number of layers", is.Layers, m.Layers},
	} {
		if n.is != n.want {
			others = append(others, "a "+n.name+" of "+strconv.Itoa(n.is)+", not "+strconv.Itoa(n.want))
		}
	}
	if others == nil {
		return ""
	}
	return "the weights belong to a model with " + strings.Join(others, ", ") + ": use the same settings"
}

// Tensors returns the values of parameters with their names, for a safetensors file. For a GPT,
// Hugging Face's from_pretrained can read that file. On the host they are the parameters' own
// memory.
func Tensors(m device.Memory, params []*Param) []safetensors.Tensor {
	tensors := make([]safetensors.Tensor, len(params))
	for i, p := range params {
		tensors[i] = safetensors.Tensor{Name: p.Name, Shape: p.Shape, Data: device.Floats(m, p.Data)}
	}
	return tensors
}
