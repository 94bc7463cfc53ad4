package jobs

import (
	"errors"
	"reflect"
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

// TestOverride checks that overrides replace values of the file, and that the stored job file
// contains them.
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
	if !job.IsSet("slurm.time") || job.IsSet("slurm.qos") {
		t.Error("Gives does not know what stands over the file")
	}

	// The stored job file contains the overridden values and needs no overrides.
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

// TestOverrideErrors checks that errors name the override and what is wrong, but do not print
// the value.
func TestOverrideErrors(t *testing.T) {
	for _, tt := range []struct{ set, want string }{
		{"slurm.nodes", `has no "="`},
		{"=3", "is not a key"},
		{"a b=3", "is not a key"},
		{"slurm.nodes=two", `--set slurm.nodes: must be an integer, not "two"`},
		{"slurm.nodes=1.5", "must be an integer, not 1.5"},
		{"slurm.mem=5", `slurm.mem: "5" has no unit`},
		{"slurm.time=0", `slurm.time: must be greater than 0`},
		{"network.family=4", `network.family: "4" is not`},
		{"checkpoint.every=500", `did you mean "500 steps"?`},
		{"setup.modules=[1]", "setup.modules[0]: must be a string in quotes, not an integer"},
		{"setup.env={A=1}", "setup.env.A: must be a string in quotes, not an integer"},
		{`network.exclude=["auto"]`, `network.exclude[0]: "auto" is not the name of an interface`},
		{"slurm.nods=2", `did you mean "nodes"?`},
		{"name.x=2", `"name" is not a table`},
		{"train.batch=0", "--set train.batch: must be 1 or more"},
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

// TestOverrideText checks that unquoted values become strings for keys with string values,
// because a shell removes the quotes.
func TestOverrideText(t *testing.T) {
	job, err := Parse("job.toml", []byte(minimal), overrides(t, "slurm.time=99", "slurm.mem=0", "setup.env.X=1.50", "setup.env.Y=true", "setup.env.Z= 1_000 ",
		"slurm.account=123", "slurm.partition=1", "slurm.qos=inf", "slurm.signal_before_end=0", "name=2024", "site=7", "slurm.nodes=2", "train.optimizer.lr=1")...)
	if err != nil {
		t.Fatal(err)
	}
	s := job.Slurm
	if s.Time != "99" || s.Memory != "0" || s.Account != "123" || s.Partition != "1" || s.QOS != "inf" || s.SignalBeforeEnd != 0 || job.Name != "2024" || job.Site != "7" || s.Nodes != 2 {
		t.Errorf("got %+v", job)
	}
	if want := (map[EnvName]Text{"X": "1.50", "Y": "true", "Z": "1_000"}); !reflect.DeepEqual(job.Setup.Env, want) {
		t.Errorf("got %q, want %q", job.Setup.Env, want)
	}
}

// TestNear checks that checks in other packages find the source of a value, also if it is not
// the file.
func TestNear(t *testing.T) {
	src := "name = \"x\"\ncommand.argv = [\"true\"]\n[slurm]\nnodes = 2\n[setup.container]\nimage = \"i\"\n"
	near := func(key string, sets ...string) Diagnostic {
		job, err := Parse("job.toml", []byte(src), overrides(t, sets...)...)
		if err != nil {
			t.Fatal(err)
		}
		return job.Near(key)
	}
	for _, tt := range []struct {
		key  string
		sets []string
		want Diagnostic
	}{
		{"slurm.nodes", nil, Diagnostic{File: "job.toml", Line: 4, Column: 9, Length: 1, Source: "nodes = 2"}},
		{"slurm.partition", nil, Diagnostic{File: "job.toml", Line: 3, Column: 2, Length: 5, Source: "[slurm]"}},
		{"setup.container.runtime", nil, Diagnostic{File: "job.toml", Line: 5, Column: 8, Length: 9, Source: "[setup.container]"}},
		{"network.family", nil, Diagnostic{File: "job.toml"}},
		{"slurm.partition", []string{"slurm.partition=gpu"}, Diagnostic{File: "--set slurm.partition"}},
		{"slurm.nodes", []string{"slurm={partition=\"gpu\"}"}, Diagnostic{File: "--set slurm"}},
		{"slurm.nodes", []string{"slurm.nodes=0", "slurm={nodes=1}"}, Diagnostic{File: "--set slurm"}},
		{"slurm.nodes", []string{"slurm={nodes=1}", "slurm.nodes=3"}, Diagnostic{File: "--set slurm.nodes"}},
	} {
		tt.want.Key = tt.key
		if got := near(tt.key, tt.sets...); got != tt.want {
			t.Errorf("%s with %q: %+v, want %+v", tt.key, tt.sets, got, tt.want)
		}
	}
	if d := (&Job{}).Near("slurm.nodes"); d != (Diagnostic{Key: "slurm.nodes"}) {
		t.Errorf("a job without a file: %+v", d)
	}
	job, err := Parse("job.toml", []byte(src), overrides(t, "slurm={partition=\"gpu\"}")...)
	if err != nil || job.IsSet("slurm.nodes") || !job.IsSet("slurm.partition") || job.IsSet("slurm.partition.x") {
		t.Errorf("Gives goes by the file alone (%v)", err)
	}
}

// FuzzOverride checks that no text causes a panic, and that accepted values are stored
// unchanged.
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
