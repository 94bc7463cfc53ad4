package jobs

import (
	"fmt"
	"strings"
	"testing"
)

// TestSizes checks that sizes up to the trainer's limits are valid, and that larger sizes are
// rejected.
func TestSizes(t *testing.T) {
	const text, tokens = `kind = "text", path = "a"`, `kind = "tokens", path = "a"`
	dense := func(batch, model, data string) string {
		return fmt.Sprintf("name = \"x\"\n[train]\nepochs = 1\nbatch = %s\nmodel = { %s }\ndata = { %s }\noptimizer = { kind = \"sgd\", lr = 0.1 }\n", batch, model, data)
	}
	gpt := func(model, data string) string { return dense("1", `kind = "gpt", `+model, data) }
	const idx, fashion = `kind = "idx", path = "d"`, `kind = "idx", path = "builtin:fashion-mnist"`
	for _, c := range []struct{ src, want string }{
		{gpt(`size = "gpt2-xl"`, tokens+", vocabulary_size = 50257"), ""},
		{gpt(`size = "gpt2-xl"`, tokens+", vocabulary_size = 1048576"), ""},
		{gpt(`size = "gpt2", context = 2147483647`, text), "train.model.context: results in a matrix of at least 1.65e+12 "},
		{gpt(`layers = 32, heads = 32, width = 4096, context = 2048`, text), ""},  // 7e9
		{gpt(`layers = 80, heads = 64, width = 8192, context = 4096`, text), ""},  // 7e10
		{gpt(`layers = 96, heads = 96, width = 12288, context = 2048`, text), ""}, // 1.75e11
		{gpt(`layers = 1, heads = 1, width = 23170, context = 1`, text), ""},      // 4 w^2
		{gpt(`layers = 1, heads = 1, width = 23171, context = 1`, text), "train.model.width: results in a matrix of at least 2.15e+09 "},
		{gpt(`layers = 155125, heads = 1, width = 768, context = 1`, text), ""},
		{gpt(`layers = 155126, heads = 1, width = 768, context = 1`, text), "train.model.width: results in a model of at least 1.1e+12 "},
		{gpt(`size = "gpt2", layers = 155126`, text), "train.model.layers: results in a model"},
		{gpt(`layers = 2147483647, heads = 1, width = 2147483647, context = 1`, text), "train.model.width: results in a matrix of at least 1.84e+19 "},
		{gpt(`layers = 1, heads = 1, width = 8388608, context = 1`, text+`, vocabulary = "byte"`), "train.model.width: results in a matrix"},

		{dense("1", `kind = "mlp", hidden = [2739137]`, fashion), ""}, // with 784 inputs
		{dense("1", `kind = "mlp", hidden = [2739138]`, fashion), "train.model.hidden: results in a matrix"},
		{dense("1", `kind = "linear"`, `kind = "synthetic", task = "regression", samples = 1, inputs = 65536, outputs = 32768`), ""},
		{dense("1", `kind = "linear"`, `kind = "synthetic", task = "regression", samples = 1, inputs = 65537, outputs = 32768`), "train.data.inputs: results in a matrix"},
		{dense("1", `kind = "cnn", channels = [1, 4096], kernel = 723`, idx), ""},
		{dense("1", `kind = "cnn", channels = [4096, 65536]`, idx), "train.model.channels: results in a matrix"},
		{dense("1", `kind = "cnn", channels = [32768], hidden = [65536]`, idx), ""},
		{dense("1", `kind = "cnn", channels = [32768], hidden = [65537]`, idx), "train.model.hidden: results in a matrix"},

		{dense("67108864", `kind = "mlp", hidden = [1024]`, idx), ""},
		{dense("67108865", `kind = "mlp", hidden = [1024]`, idx), "train.batch: 67108865 samples result in 6.87e+10 "},
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
			t.Errorf("%s%v\nwant one error: %s", c.src, err, c.want)
		}
	}
}
