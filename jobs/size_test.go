package jobs

import (
	"fmt"
	"strings"
	"testing"
)

// TestSizes: what the trainer can hold is good up to its limit, and one more is not.
func TestSizes(t *testing.T) {
	const text, tokens = `kind = "text", path = "a"`, `kind = "tokens", path = "a"`
	dense := func(batch, model, data string) string {
		return fmt.Sprintf("name = \"x\"\n[train]\nepochs = 1\nbatch = %s\nmodel = { %s }\ndata = { %s }\noptimizer = { kind = \"sgd\", lr = 0.1 }\n", batch, model, data)
	}
	gpt := func(model, data string) string { return dense("1", `kind = "gpt", `+model, data) }
	const idx, fashion = `kind = "idx", path = "d"`, `kind = "idx", path = "builtin:fashion-mnist"`
	for _, c := range []struct{ src, want string }{
		{gpt(`size = "gpt2-xl"`, tokens+", vocabulary_size = 50257"), ""},
		{gpt(`size = "gpt2-xl"`, tokens+", vocabulary_size = 1048576"), "train.model.size: makes a model of 3.15e+09 parameters or more"},
		{gpt(`size = "gpt2", context = 2147483647`, text), "train.model.context: makes"},
		{gpt(`size = "gpt2", layers = 400`, text), "train.model.layers: makes"},
		{gpt(`layers = 2147483647, heads = 1, width = 2147483647, context = 1`, text), "train.model.width: makes a model of 1.19e+29 "},
		// w (1 + context) + 25 + 2 with a width of 1: at the limit, and one above.
		{gpt(`layers = 1, heads = 1, width = 1, context = 2147483620`, text), ""},
		{gpt(`layers = 1, heads = 1, width = 1, context = 2147483621`, text), "train.model.width: makes"},
		{gpt(`layers = 1, heads = 1, width = 1, context = 2147483621`, text+`, vocabulary = "byte"`), "train.model.width: makes"},
		{gpt(`layers = 1, heads = 1, width = 1, context = 2147483365`, text+`, vocabulary = "byte"`), ""},
		{gpt(`layers = 1, heads = 1, width = 1, context = 2147483366`, text+`, vocabulary = "byte"`), "train.model.width: makes"},

		// (1 + 1) h + (h + 1), where the inputs and classes are not known.
		{dense("1", `kind = "mlp", hidden = [715827882]`, idx), ""},
		{dense("1", `kind = "mlp", hidden = [715827883]`, idx), "train.model.hidden: makes"},
		{dense("1", `kind = "mlp", hidden = [2701237]`, fashion), ""},
		{dense("1", `kind = "mlp", hidden = [2701238]`, fashion), "train.model.hidden: makes"},
		{dense("1", `kind = "linear"`, `kind = "synthetic", task = "regression", samples = 1, inputs = 65535, outputs = 32768`), ""},
		{dense("1", `kind = "linear"`, `kind = "synthetic", task = "regression", samples = 1, inputs = 65536, outputs = 32768`), "train.data.inputs: makes"},
		{dense("1", `kind = "cnn", channels = [1, 4096], kernel = 513`, idx), ""},
		{dense("1", `kind = "cnn", channels = [4096, 65536]`, idx), "train.model.channels: makes"},
		{dense("1", `kind = "cnn", channels = [32768], hidden = [65522]`, idx), ""},
		{dense("1", `kind = "cnn", channels = [32768], hidden = [65523]`, idx), "train.model.hidden: makes"},

		{dense("67108864", `kind = "mlp", hidden = [1024]`, idx), ""},
		{dense("67108865", `kind = "mlp", hidden = [1024]`, idx), "train.batch: 67108865 samples make 6.87e+10 numbers in a single layer, 256 GiB"},
		{dense("2147483647", `kind = "linear"`, fashion), "train.batch: "},
		{dense("2147483647", `kind = "cnn", channels = [33]`, idx), "train.batch: "},
		{dense("1048576", `kind = "gpt", layers = 1, heads = 1, width = 128, context = 128`, text), ""},
		{dense("1048577", `kind = "gpt", layers = 1, heads = 1, width = 128, context = 128`, text), "train.batch: "},
		{gpt(`size = "gpt2"`, tokens+", vocabulary_size = 1048576"), ""},
		{gpt(`size = "gpt2"`, tokens+", vocabulary_size = 1048577"), "train.data.vocabulary_size: must be 1048576 or less"},
	} {
		_, err := Parse("job.toml", []byte(c.src))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%v", err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), "job.toml:") != 1):
			t.Errorf("%s%v\nwant one mistake: %s", c.src, err, c.want)
		}
	}
}
