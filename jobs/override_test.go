package jobs

import (
	"errors"
	"strings"
	"testing"
)

func overrides(t testing.TB, texts ...string) []Override {
	t.Helper()
	var all []Override
	for _, text := range texts {
		o, err := ParseOverride(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	return all
}

func TestOverride(t *testing.T) {
	src := minimal + "\n[slurm]\nnodes = 2\n"
	job, err := Parse("job.toml", []byte(src), overrides(t,
		"slurm.nodes=3", "slurm.time=02:00:00", "slurm.partition=gpu", "train.optimizer.lr=1e-3",
		`train.model.hidden=[5, 6]`, "name=y z", `setup.env.A="1"`, "slurm.exclusive=true", "slurm.nodes = 4")...)
	if err != nil {
		t.Fatal(err)
	}
	if job.Slurm.Nodes != 4 || job.Slurm.Time != "02:00:00" || job.Slurm.Partition != "gpu" || job.Train.Optimizer.LR != 1e-3 ||
		len(job.Train.Model.Hidden) != 2 || job.Name != "y z" || job.Setup.Env["A"] != "1" || !job.Slurm.Exclusive {
		t.Errorf("got %+v %+v", job, job.Train)
	}
	if !job.Gives("slurm.time") || job.Gives("slurm.qos") {
		t.Error("Gives does not know what stands over the file")
	}

	// What is kept of the job is the job, without the overrides beside it.
	text, err := job.Source()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("stored.toml", text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	job.layout, again.layout = nil, nil
	sameJob(t, again, job)
	if !strings.Contains(string(text), "# slurm.nodes: by --set slurm.nodes\n") {
		t.Errorf("the overrides are not named in\n%s", text)
	}

	plain := parse(t, src)
	if text, err := plain.Source(); err != nil || string(text) != src {
		t.Errorf("without overrides the source is %q (%v)", text, err)
	}
}

func TestOverrideRefused(t *testing.T) {
	for _, tt := range []struct{ set, want string }{
		{"slurm.nodes", `has no "="`},
		{"=3", "is not a key"},
		{"a b=3", "is not a key"},
		{"slurm.nodes=two", "--set slurm.nodes: slurm.nodes: must be a whole number"},
		{"slurm.nods=2", `did you mean "nodes"?`},
		{"name.x=2", `"name" is not a table`},
		{"train.batch=0", "--set train.batch: train.batch: must be 1 or more"},
		{"setup.env.TOKEN=canary\x01", "control character"},
		{"train.model.hidden=[1, 0]", "--set train.model.hidden: train.model.hidden[1]: must be 1 or more"},
		{strings.Repeat("a.", 50) + "b=1", "nested more than"},
	} {
		var found Diagnostics
		o, err := ParseOverride(tt.set)
		if err == nil {
			_, err = Parse("job.toml", []byte(minimal), o)
		}
		if !errors.As(err, &found) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: got %v, want %q", tt.set, err, tt.want)
		}
	}
}

// FuzzOverride: no text makes it panic, and what it takes is kept whole.
func FuzzOverride(f *testing.F) {
	for _, s := range []string{"name=x", "slurm.nodes=2", "train.model={kind=\"linear\"}", "a='''", "setup.env.\"a b\"=1", "name=\"\\n\""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		o, err := ParseOverride(s)
		if err != nil {
			return
		}
		job, err := Parse("job.toml", []byte(minimal), o)
		if err != nil {
			return
		}
		text, err := job.Source()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("again.toml", text)
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if job.Sweep == nil {
			job.layout, again.layout = nil, nil
			sameJob(t, again, job)
		}
	})
}
