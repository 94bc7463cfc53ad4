package jobs

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestFingerprint checks which keys and values describe a training run.
func TestFingerprint(t *testing.T) {
	got := parse(t, minimal).Train.Fingerprint()
	want := map[string]string{
		"device": `"cpu"`, "strategy": `"ddp"`, "precision": `"fp32"`, "batch": "2",
		"model.kind": `"mlp"`, "model.hidden": "[3]", "model.activation": `"relu"`,
		"data.kind": `"idx"`, "data.path": `"d"`, "data.task": `"classification"`, "data.shuffle": "true",
		"optimizer.kind": `"sgd"`, "optimizer.lr": "0.1",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if off := parse(t, strings.Replace(minimal, `path = "d"`, `path = "d", shuffle = false`, 1)); off.Train.Fingerprint()["data.shuffle"] != "false" {
		t.Error("shuffle = false is left out")
	}
	all := load(t, "testdata/good/every-train-key.toml").Train.Fingerprint()
	for _, key := range []string{"seed", "optimizer.momentum", "optimizer.nesterov", "data.eval_path", "data.target"} {
		if all[key] == "" {
			t.Errorf("%s is not in %v", key, all)
		}
	}
}

// TestTrainDigest checks that the digest of a spec never changes, because newer versions could
// otherwise not resume a run. A change of any field that affects a step must change the
// digest.
func TestTrainDigest(t *testing.T) {
	const golden = "87363db6cb13e90d7ea2cc9b2f932bc37a910759ea1f9f3e55e7c5acefa24acc"
	base := load(t, "examples/demo.toml").TrainDigest()
	if base != golden {
		t.Errorf("the digest of the demo is %s, want %s", base, golden)
	}
	if d := parse(t, "name = \"x\"\ncommand.argv = [\"true\"]\n").TrainDigest(); d != "" {
		t.Errorf("a command has the digest %q", d)
	}
	seen := map[string]string{}
	for _, change := range []struct {
		name string
		f    func(*Job)
		same bool
	}{
		{"nothing", func(*Job) {}, true},
		{"epochs", func(j *Job) { j.Train.Epochs++ }, true},
		{"log_every", func(j *Job) { j.Train.LogEvery = Interval{7, Steps} }, true},
		{"name", func(j *Job) { j.Name = "other" }, true},
		{"time", func(j *Job) { j.Slurm.Time = "9" }, true},
		{"nonfinite", func(j *Job) { j.Train.NonFinite = NonFiniteSkip }, true},
		{"no accumulate", func(j *Job) { j.Train.Accumulate = 0 }, true},
		{"accumulate", func(j *Job) { j.Train.Accumulate = 2 }, false},
		{"buckets", func(j *Job) { j.Train.Bucket, j.Train.FirstBucket = mebi, kibi }, true},
		{"no reduce", func(j *Job) { j.Train.Reduce = "" }, true},
		{"reduce", func(j *Job) { j.Train.Reduce = ReduceBF16 }, false},
		{"decay without weight_decay", func(j *Job) { j.Train.Optimizer.Decay = DecayMatrices }, true},
		{"weight_decay", func(j *Job) { j.Train.Optimizer.WeightDecay = 0.1 }, false},
		{"weight_decay of matrices", func(j *Job) { j.Train.Optimizer.WeightDecay, j.Train.Optimizer.Decay = 0.1, DecayMatrices }, false},
		{"strategy", func(j *Job) { j.Train.Strategy = StrategyZeRO3 }, true},
		{"device", func(j *Job) { j.Train.Device = DeviceCUDA }, true},
		{"precision", func(j *Job) { j.Train.Precision = PrecisionBF16 }, false},
		{"dropout", func(j *Job) { j.Train.Model.Dropout = 0.1 }, false},
		{"weights", func(j *Job) { j.Train.Model.Weights = "w" }, false},
		{"holdout", func(j *Job) { j.Train.Data.Holdout = 0.1 }, false},
		{"uneven", func(j *Job) { j.Train.Data.Uneven = UnevenJoin }, false},
		{"drop_last", func(j *Job) { j.Train.Data.DropLast = true }, false},
		{"seed", func(j *Job) { j.Train.Seed++ }, false},
		{"lr", func(j *Job) { j.Train.Optimizer.LR *= 1 + 1e-15 }, false},
		{"hidden", func(j *Job) { j.Train.Model.Hidden = []int{12, 8} }, false},
		{"path", func(j *Job) { j.Train.Data.Path = "x" }, false},
		{"shuffle", func(j *Job) { j.Train.Data.Shuffle = new(false) }, false},
	} {
		job := load(t, "examples/demo.toml")
		change.f(job)
		digest := job.TrainDigest()
		if (digest == base) != change.same {
			t.Errorf("%s: the same digest: %v", change.name, digest == base)
		}
		if other, ok := seen[digest]; ok && !change.same {
			t.Errorf("%s and %s have one digest", change.name, other)
		}
		seen[digest] = change.name
	}
	if len(seen) != 16 {
		t.Errorf("digests of %q", slices.Sorted(maps.Values(seen)))
	}
}

// TestDecayOfOlderRuns checks checkpoints of versions without optimizer.decay, which applied
// weight decay to all parameters. Every job can resume from them unless it sets another value,
// and a job without the key keeps the behavior of the checkpoint.
func TestDecayOfOlderRuns(t *testing.T) {
	gpt := withGPT(`size = "gpt2"`, `kind = "text", path = "a"`)
	for _, c := range []struct {
		optimizer string
		keeps     bool
		changed   bool
	}{
		{`kind = "adamw", lr = 0.1`, true, false},
		{`kind = "adamw", lr = 0.1, decay = "matrices"`, false, true},
		{`kind = "adamw", lr = 0.1, decay = "all"`, false, false},
		{`kind = "adamw", lr = 0.1, weight_decay = 0`, false, false},
		{`kind = "sgd", lr = 0.1`, false, false},
	} {
		job := parse(t, strings.Replace(gpt, `kind = "sgd", lr = 0.1`, c.optimizer, 1))
		was := job.WithDecayOfAll()
		if v, given := was.Train.Fingerprint()["optimizer.decay"]; given {
			t.Errorf("%s: the fingerprint of all has %s", c.optimizer, v)
		}
		if got := job.NeedsDecayOfAll(was.Train.Fingerprint()); got != c.keeps {
			t.Errorf("%s: keeps the decay: %v, want %v", c.optimizer, got, c.keeps)
		}
		if err := job.CheckResume(was.Train.Fingerprint(), was.TrainDigest()); (err != nil) != c.changed {
			t.Errorf("%s: got %v, want an error: %v", c.optimizer, err, c.changed)
		}
		if job.NeedsDecayOfAll(job.Train.Fingerprint()) {
			t.Errorf("%s: does not resume as it is from its own checkpoint", c.optimizer)
		}
	}
	job := parse(t, strings.Replace(gpt, `kind = "sgd", lr = 0.1`, `kind = "adamw", lr = 0.1`, 1))
	was := maps.Clone(job.WithDecayOfAll().Train.Fingerprint())
	was["optimizer.lr"] = "0.2"
	var changed *ChangedError
	if err := job.CheckResume(was, "other"); !errors.As(err, &changed) || len(changed.Changes) != 1 || changed.Changes[0].Key != "train.optimizer.lr" {
		t.Errorf("got %v, want another learning rate only", err)
	}
}

// TestSameSpec checks that a GPT size and its explicit values are the same spec, and that an empty
// list of hidden layers equals a missing key.
func TestSameSpec(t *testing.T) {
	gpt := func(model string) string { return withGPT(model, `kind = "text", path = "a"`) }
	cnn := func(keys string) string {
		return strings.Replace(strings.Replace(minimal, `"mlp"`, `"cnn"`, 1), "model.hidden = [3]", "model.channels = [8]\n"+keys, 1)
	}
	for _, c := range []struct{ a, b string }{
		{gpt(`size = "gpt2-medium"`), gpt(`layers = 24, heads = 16, width = 1024, context = 1024`)},
		{gpt(`size = "gpt2", layers = 24, heads = 16, width = 1024`), gpt(`size = "gpt2-medium"`)},
		{cnn(""), cnn("model.hidden = []\nmodel.kernel = 3\nmodel.dropout = 0\nmodel.activation = \"relu\"")},
		{minimal, strings.Replace(minimal, "batch = 2", "batch = 2\naccumulate = 1\nreduce = \"fp32\"\nnonfinite = \"stop\"\ndata.drop_last = false\ndata.uneven = \"pad\"", 1)},
	} {
		c.b = strings.Replace(c.b, "data = { kind = \"idx\", path = \"d\" }", "data.kind = \"idx\"\ndata.path = \"d\"", 1)
		if a, b := parse(t, c.a).Train.Fingerprint(), parse(t, c.b).Train.Fingerprint(); !maps.Equal(a, b) {
			t.Errorf("%s and\n%s differ:\n%v\n%v", c.a, c.b, a, b)
		}
	}
}

// TestDifferences checks that a run can resume with a different number of samples per step, but
// not with other changes that affect the result.
func TestDifferences(t *testing.T) {
	was := load(t, "examples/demo.toml").Train
	for _, c := range []struct {
		f       func(*Train)
		want    []string
		samples int
	}{
		{func(*Train) {}, nil, int(was.Batch)},
		{func(t *Train) { t.Batch, t.Accumulate = 5, 3 }, nil, 15},
		{func(t *Train) { t.Seed, t.Batch = 9, 7 }, []string{"seed"}, 7},
		{func(t *Train) { t.Optimizer.LR, t.Model.Hidden = 7, nil }, []string{"model.hidden", "optimizer.lr"}, int(was.Batch)},
	} {
		is := *was
		c.f(&is)
		if got := differences(was.Fingerprint(), is.Fingerprint()); !slices.Equal(got, c.want) {
			t.Errorf("differences %q, want %q", got, c.want)
		}
		if got := RankSamples(is.Fingerprint()); got != c.samples {
			t.Errorf("%d samples of a rank in a step, want %d", got, c.samples)
		}
	}
	if n := RankSamples(nil); n != 0 {
		t.Errorf("%d samples of a spec that says nothing", n)
	}
}
