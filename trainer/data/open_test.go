package data

import (
	"math"
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// TestBuiltinIsBalanced checks that the built-in data have the same number of samples in each
// class, and that their digest is stable. With a different digest, runs of older versions could
// not resume.
func TestBuiltinIsBalanced(t *testing.T) {
	train, eval, err := Open(t.Context(), Options{Kind: KindIDX, Path: "builtin:fashion-mnist"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		d        Dataset
		perClass int
		digest   string
	}{
		{train, 360, "36bcabbfca868652e19773195ed18c2db5c348986d38ff8d39df7879e941a113"},
		{eval, 80, "c31002a2d1767c9105e8c3db0a432e7e257458a192a845c07365ddd329795906"},
	} {
		if c.d.Len() != 10*c.perClass || c.d.Inputs() != 784 || c.d.Outputs() != 10 || !c.d.Classes() {
			t.Fatalf("%d samples of %d inputs, %d outputs", c.d.Len(), c.d.Inputs(), c.d.Outputs())
		}
		count := make([]int, 10)
		x, label := make([]float32, 784), make([]int32, 1)
		for i := range c.d.Len() {
			c.d.Read([]int{i}, Batch{X: x, Labels: label})
			count[label[0]]++
		}
		if slices.Min(count) != c.perClass || slices.Max(count) != c.perClass {
			t.Errorf("samples per class %v, want %d", count, c.perClass)
		}
		if c.d.Digest() != c.digest {
			t.Errorf("digest %s, want %s: a resumed run would see other data", c.d.Digest(), c.digest)
		}
	}
}

// TestSyntheticValuesAreSampledInSequence checks that a synthetic data set samples inputs and
// targets in the same order as pairs of torch.rand(20) and torch.rand(1) in PyTorch's DDP
// tutorial.
func TestSyntheticValuesAreSampledInSequence(t *testing.T) {
	const seed, samples, inputs, outputs = 3, 50, 20, 2
	d, eval, err := Open(t.Context(), Options{Kind: KindSynthetic, Samples: samples, Inputs: inputs, Outputs: outputs, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	if eval != nil || d.Classes() || d.Len() != samples || d.Inputs() != inputs || d.Outputs() != outputs {
		t.Errorf("%d samples %d -> %d, classes %t, held out %v", d.Len(), d.Inputs(), d.Outputs(), d.Classes(), eval)
	}
	g := random.New(seed)
	x, targets := make([]float32, inputs), make([]float32, outputs)
	for i := range samples {
		d.Read([]int{i}, Batch{X: x, Targets: targets})
		for k, v := range append(slices.Clone(x), targets...) {
			if want := g.Float32(); v != want {
				t.Fatalf("sample %d value %d = %v, want %v", i, k, v, want)
			}
		}
	}
}

// TestSyntheticClasses checks that generated classes are not rare and depend only on the seed.
func TestSyntheticClasses(t *testing.T) {
	o := Options{Kind: KindSynthetic, Task: TaskClassification, Samples: 2001, Inputs: 10, Outputs: 5, Seed: 1}
	train, eval, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if train.Len() != 2001 || eval.Len() != 401 || eval.Outputs() != 5 {
		t.Errorf("%d samples, %d held out of %d classes", train.Len(), eval.Len(), eval.Outputs())
	}
	count := make([]int, 5)
	x, label := make([]float32, 10), make([]int32, 1)
	for i := range train.Len() {
		train.Read([]int{i}, Batch{X: x, Labels: label})
		count[label[0]]++
	}
	if slices.Min(count) < 100 {
		t.Errorf("samples per class %v: one is too rare to learn", count)
	}
	again, _, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	o.Seed++
	other, _, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if again.Digest() != train.Digest() || other.Digest() == train.Digest() {
		t.Error("data do not depend on the seed, or on more than it")
	}
}

// TestOpenErrors checks the errors for invalid options of data sets.
func TestOpenErrors(t *testing.T) {
	for _, c := range []struct {
		name, want string
		o          Options
	}{
		{"kind", `open data: unknown kind "parquet", want one of idx, csv, text, tokens, safetensors, synthetic`, Options{Kind: "parquet"}},
		{"task", `open data: unknown task "ranking", want "regression" or "classification"`, Options{Kind: KindCSV, Task: "ranking"}},
		{"images for regression", `open data: idx data have classes, so the task cannot be "regression"`, Options{Kind: KindIDX, Task: TaskRegression}},
		{"builtin", `open data "builtin:imagenet": no such builtin data`, Options{Kind: KindIDX, Path: "builtin:imagenet"}},
		{"builtin with others", `open data "builtin:fashion-mnist": builtin data have their own held-out samples, so eval_path "/d" cannot be used`, Options{Kind: KindIDX, Path: "builtin:fashion-mnist", EvalPath: "/d"}},
		{"share of images", `open data: holdout is not supported for idx data`, Options{Kind: KindIDX, Path: "builtin:fashion-mnist", Holdout: 0.1}},
		{"negative share", `open data: holding out a share of -0.1, want from 0 to less than 1`, Options{Kind: KindCSV, Holdout: -0.1}},
		{"share that is no number", `open data: holding out a share of NaN, want from 0 to less than 1`, Options{Kind: KindCSV, Holdout: math.NaN()}},
		{"no samples", `generate data: 0 samples, want at least 1`, Options{Kind: KindSynthetic, Inputs: 1, Outputs: 1}},
		{"no inputs", `generate data: 0 inputs, want at least 1`, Options{Kind: KindSynthetic, Samples: 1, Outputs: 1}},
		{"no outputs", `generate data: 0 outputs, want at least 1`, Options{Kind: KindSynthetic, Samples: 1, Inputs: 1}},
		{"one class", `generate data: 1 outputs, want at least 2`, Options{Kind: KindSynthetic, Task: TaskClassification, Samples: 1, Inputs: 1, Outputs: 1}},
		{"many classes", `generate data: 10001 classes, want at most 10000`, Options{Kind: KindSynthetic, Task: TaskClassification, Samples: 1, Inputs: 1, Outputs: 10001}},
		{"large", `generate data: 107374182 samples of 20 inputs and 1 outputs, together more than 2147483648 values`, Options{Kind: KindSynthetic, Samples: 107374182, Inputs: 20, Outputs: 1}},
		{"large linear map", `generate data: 2000000000 inputs and 10000 classes, together more than 2147483648 values`, Options{Kind: KindSynthetic, Task: TaskClassification, Samples: 1, Inputs: 2e9, Outputs: 10_000}},
		{"more than a permutation", `generate data: 214748364 samples, want at most 214748363`, Options{Kind: KindSynthetic, Samples: 214748364, Inputs: 1, Outputs: 1}},
		{"overflow", `generate data: 1 samples of 9223372036854775807 inputs and 1 outputs, together more than 2147483648 values`, Options{Kind: KindSynthetic, Samples: 1, Inputs: 1<<63 - 1, Outputs: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, _, err := Open(t.Context(), c.o); err == nil || err.Error() != c.want {
				t.Errorf("error %v,\nwant  %s", err, c.want)
			}
		})
	}
}
