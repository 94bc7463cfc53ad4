package jobs

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// withGPT returns a job file for a GPT with the given keys of the model and the data.
func withGPT(model, data string) string {
	return fmt.Sprintf("name = \"x\"\n[train]\nepochs = 1\nbatch = 2\nmodel = { kind = \"gpt\", %s }\n"+
		"data = { %s }\noptimizer = { kind = \"sgd\", lr = 0.1 }\n", model, data)
}

// TestGPTSizes checks the dimensions of named sizes, and that keys override them.
func TestGPTSizes(t *testing.T) {
	for _, c := range []struct {
		keys                          string
		layers, heads, width, context int
	}{
		{`size = "gpt2"`, 12, 12, 768, 1024},
		{`size = "gpt2-medium"`, 24, 16, 1024, 1024},
		{`size = "gpt2-large"`, 36, 20, 1280, 1024},
		{`size = "gpt2-xl"`, 48, 25, 1600, 1024},
		{`size = "gpt2", context = 256, layers = 6`, 6, 12, 768, 256},
		{`size = "gpt2", heads = 5, width = 10`, 12, 5, 10, 1024},
		{`layers = 1, heads = 2, width = 4, context = 8`, 1, 2, 4, 8},
	} {
		m := parse(t, withGPT(c.keys, `kind = "text", path = "a"`)).Train.Model
		if m.Layers != c.layers || m.Heads != c.heads || m.Width != c.width || m.Context != c.context || m.Activation != "" {
			t.Errorf("%s is %+v", c.keys, m)
		}
	}
	if len(gptSizes) != 4 {
		t.Errorf("%d sizes, of which 4 are tested", len(gptSizes))
	}
	for name, size := range gptSizes {
		if size.width%size.heads != 0 {
			t.Errorf("%s cannot share its width", name)
		}
	}
}

// TestModelAndDataDefaults checks the defaults that depend on the kinds of model and data.
func TestModelAndDataDefaults(t *testing.T) {
	shuffle := new(true)
	cnn := load(t, "examples/cnn.toml").Train
	if want := (Model{Kind: ModelCNN, Channels: []int{32, 64}, Hidden: []int{128}, Kernel: 3, Activation: ActivationReLU, Dropout: 0.25}); !reflect.DeepEqual(cnn.Model, want) {
		t.Errorf("got  %+v\nwant %+v", cnn.Model, want)
	}
	if bare := load(t, "testdata/good/cnn.toml").Train; bare.Model.Hidden != nil || bare.Model.Kernel != 5 || bare.Accumulate != 8 || bare.NonFinite != NonFiniteSkip || bare.Precision != PrecisionBF16 {
		t.Errorf("got %+v", bare)
	}
	small := `layers = 1, heads = 1, width = 1, context = 1`
	for _, c := range []struct {
		src  string
		want Data
	}{
		{withGPT(small, `kind = "text", path = "a"`), Data{Kind: DataText, Path: "a", Vocabulary: VocabularyChar}},
		{withGPT(small, `kind = "text", path = "a", holdout = 0.5, drop_last = true`),
			Data{Kind: DataText, Path: "a", Vocabulary: VocabularyChar, Holdout: 0.5, DropLast: true}},
		{withGPT(small, `kind = "tokens", path = "a"`), Data{Kind: DataTokens, Path: "a", DType: DTypeUint16}},
		{withGPT(small, `kind = "tokens", path = "a", dtype = "uint32", vocabulary_size = 7, eval_path = "b", holdout = 0`),
			Data{Kind: DataTokens, Path: "a", EvalPath: "b", DType: DTypeUint32, VocabularySize: 7}},
		{strings.Replace(minimal, `kind = "idx"`, `kind = "safetensors", task = "regression"`, 1),
			Data{Kind: DataSafetensors, Path: "d", Features: "x", Target: "y", Task: TaskRegression}},
		{strings.Replace(minimal, `kind = "idx"`, `kind = "csv", task = "regression"`, 1), Data{Kind: DataCSV, Path: "d", Task: TaskRegression}},
	} {
		c.want.Shuffle = shuffle
		if c.want.Uneven = UnevenPad; c.want.DropLast {
			c.want.Uneven = UnevenDrop
		}
		if got := parse(t, c.src).Train.Data; !reflect.DeepEqual(got, c.want) {
			t.Errorf("got  %+v\nwant %+v", got, c.want)
		}
	}
}

// TestKinds checks that every model lists the kinds of data that it accepts, and that every kind
// of data has a model.
func TestKinds(t *testing.T) {
	kinds := func(table string) []string {
		return fieldAt(reflect.TypeFor[Job](), []string{"train", table, "kind"}).rules.choices
	}
	accepted := map[DataKind]bool{}
	for _, model := range kinds("model") {
		if len(modelData[ModelKind(model)]) == 0 {
			t.Errorf("no data for %s", model)
		}
		for _, data := range modelData[ModelKind(model)] {
			accepted[data] = true
		}
	}
	for _, data := range kinds("data") {
		if !accepted[DataKind(data)] {
			t.Errorf("no model for %s", data)
		}
	}
	if len(accepted) != len(kinds("data")) || len(modelData) != len(kinds("model")) {
		t.Errorf("data %v, models %v", accepted, modelData)
	}
}
