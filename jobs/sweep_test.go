package jobs

import (
	"fmt"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

func sameJob(t testing.TB, got, want *Job) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v %+v\nwant %+v %+v", got, got.Train, want, want.Train)
	}
}

// valuesOf returns a trial's settings on one line.
func valuesOf(e Trial) string {
	var all []string
	for _, s := range e.Values {
		all = append(all, s.Key+"="+s.Text())
	}
	return strings.Join(all, " ")
}

// TestSweepGrid checks the trials of a grid, in order.
func TestSweepGrid(t *testing.T) {
	job := load(t, "testdata/good/sweep-grid.toml")
	want := []string{
		"train.optimizer.lr=0.1 train.batch=32", "train.optimizer.lr=0.1 train.batch=64", "train.optimizer.lr=0.1 train.batch=128",
		"train.optimizer.lr=0.01 train.batch=32", "train.optimizer.lr=0.01 train.batch=64", "train.optimizer.lr=0.01 train.batch=128",
	}
	if job.Name != "sweep" || job.Sweep.Throttle != 2 || len(job.Sweep.Trials) != len(want) {
		t.Fatalf("got %+v", job.Sweep)
	}
	for i, e := range job.Sweep.Trials {
		if e.Index != i || valuesOf(e) != want[i] || string(e.Job.Name) != fmt.Sprintf("sweep-%d", i) || e.Job.Sweep != nil {
			t.Errorf("trial %d: %s, %+v", i, valuesOf(e), e.Job)
		}
	}
	e := job.Sweep.Trials[4]
	if e.Job.Train.Batch != 64 || e.Job.Train.Optimizer.LR != 0.01 || job.Sweep.Trials[0].Job.Train.Batch != 32 {
		t.Errorf("trial 4 trains %+v", e.Job.Train)
	}
	// The stored job file of a trial gives the same job.
	text, err := e.Job.Source()
	if err != nil {
		t.Fatal(err)
	}
	again := parse(t, string(text))
	e.Job.layout, again.layout = nil, nil
	sameJob(t, again, e.Job)
}

// TestSweepList checks the trials of a list.
func TestSweepList(t *testing.T) {
	job := load(t, "testdata/good/sweep-list.toml")
	if n := len(job.Sweep.Trials); n != 2 {
		t.Fatalf("%d trials", n)
	}
	for i, want := range []string{"command.argv=[train, --lr, 0.1] setup.env.SEED=1", "command.argv=[train, --lr, 0.01] setup.env.SEED=2"} {
		if e := job.Sweep.Trials[i]; valuesOf(e) != want || len(e.Job.Command.Argv) != 3 || e.Job.Setup.Env["SEED"] != Text(fmt.Sprint(i+1)) {
			t.Errorf("trial %d: %s, %+v", i, valuesOf(e), e.Job.Command)
		}
	}
}

// TestSweepRandom checks that random trials are reproducible and within their ranges.
func TestSweepRandom(t *testing.T) {
	job, again := load(t, "testdata/good/sweep-random.toml"), load(t, "testdata/good/sweep-random.toml")
	if n := len(job.Sweep.Trials); n != 20 {
		t.Fatalf("%d trials", n)
	}
	seeds, small := map[uint64]bool{}, 0
	for i, e := range job.Sweep.Trials {
		if valuesOf(e) != valuesOf(again.Sweep.Trials[i]) {
			t.Errorf("trial %d differs from one time to the next: %s, %s", i, valuesOf(e), valuesOf(again.Sweep.Trials[i]))
		}
		tr := e.Job.Train
		if lr := tr.Optimizer.LR; lr < 1e-4 || lr > 0.1 {
			t.Errorf("trial %d has learning rate %g", i, lr)
		} else if lr < 0.01 {
			small++
		}
		if m := tr.Optimizer.Momentum; m < 0.5 || m > 0.99 {
			t.Errorf("trial %d has momentum %g", i, m)
		}
		if tr.Batch != 16 && tr.Batch != 32 {
			t.Errorf("trial %d has batch %d", i, tr.Batch)
		}
		seeds[tr.Seed] = true
	}
	// Two thirds of the logarithmic range are below 0.01, but only a tenth of the linear
	// range.
	if small < 8 {
		t.Errorf("%d of 20 learning rates are below 0.01", small)
	}
	if len(seeds) != 4 || !seeds[0] || !seeds[3] {
		t.Errorf("whole numbers drawn from 0 to 3: %v", seeds)
	}
	other, err := Parse("s", []byte(mustSource(t, job)), overrides(t, "sweep.random.seed=8")...)
	if err != nil || valuesOf(other.Sweep.Trials[0]) == valuesOf(job.Sweep.Trials[0]) {
		t.Errorf("another seed draws the same values (%v)", err)
	}
}

func mustSource(t *testing.T, j *Job) string {
	t.Helper()
	text, err := j.Source()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const program = "name = \"s\"\ncommand.argv = [\"x\"]\n"

// TestSweepVariables checks that numbers become text if a sweep assigns them to a variable.
func TestSweepVariables(t *testing.T) {
	job := parse(t, program+"[sweep.random]\nsamples = 30\nvalues.setup.env = { A = { min = 1, max = 3 }, B = { min = 1e-6, max = 1.0, log = true } }\n")
	seen := map[Text]bool{}
	for _, e := range job.Sweep.Trials {
		a, b := e.Job.Setup.Env["A"], e.Job.Setup.Env["B"]
		seen[a] = true
		if x, err := strconv.ParseFloat(string(b), 64); err != nil || x < 1e-6 || x > 1 || valuesOf(e) != fmt.Sprintf("setup.env.A=%s setup.env.B=%s", a, b) {
			t.Errorf("trial %d: %s", e.Index, valuesOf(e))
		}
	}
	if !reflect.DeepEqual(seen, map[Text]bool{"1": true, "2": true, "3": true}) {
		t.Errorf("drew %v", seen)
	}
	for _, sweep := range []string{
		"[sweep.grid]\nsetup.env.LR = [0.1, 2, \"x y\"]\n",
		"[sweep]\nlist = [{ setup.env.LR = 0.1 }, { setup.env.LR = 2 }, { setup.env.LR = \"x y\" }]\n",
	} {
		job := parse(t, program+sweep)
		for i, want := range []Text{"0.1", "2", "x y"} {
			if e := job.Sweep.Trials[i]; e.Job.Setup.Env["LR"] != want || e.Values[0].Text() != string(want) {
				t.Errorf("trial %d of %q: %q", i, sweep, e.Job.Setup.Env["LR"])
			}
		}
	}
}

// TestSweepOpenEnd checks that the range of a learning rate may start at 0, although 0 is not
// a valid rate, and that the range of a momentum may end at 1.
func TestSweepOpenEnd(t *testing.T) {
	parse(t, minimal+"[sweep.random]\nsamples = 3\nvalues.train.optimizer.lr = { min = 0, max = 0.5 }\n")
	parse(t, minimal+"[sweep.random]\nsamples = 3\nvalues.train.optimizer.momentum = { min = 0, max = 1.0 }\n")
}

// TestSweepTables checks that the values of an axis may be tables, each with its own position.
func TestSweepTables(t *testing.T) {
	job := parse(t, minimal+"[sweep.random]\nsamples = 4\nvalues.train.model = [{ kind = \"linear\" }, { kind = \"mlp\", hidden = [7] }]\n")
	lines := map[int]bool{}
	for _, e := range job.Sweep.Trials {
		if at := e.Job.At("train.model.kind"); e.Job.Train.Model.Kind == ModelMLP && (at.Line != 11 || at.Column == 0) {
			t.Errorf("the kind is at %+v", at)
		} else if at := e.Job.At("train.model.hidden"); e.Job.Train.Model.Kind == ModelLinear && at.Line != 0 {
			t.Errorf("widths that the table does not give are at %+v", at)
		}
		lines[len(e.Job.Train.Model.Hidden)] = true
	}
	if len(lines) != 2 {
		t.Error("four draws were all the same table")
	}
}

// TestSweepOverridden checks overrides of a sweep, and that errors and positions refer to the
// override.
func TestSweepOverridden(t *testing.T) {
	src := minimal + "[sweep.grid]\ntrain.batch = [1, 2]\n"
	_, err := Parse("job.toml", []byte(src), overrides(t, "sweep.grid.train.batch=[4, 0]")...)
	if want := "--set sweep.grid.train.batch: sweep.grid.train.batch[1]: must be 1 or more, not 0"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	job, err := Parse("job.toml", []byte(src), overrides(t, "sweep.grid.train.batch=[4, 5]", "train.optimizer={kind=\"sgd\",lr=1}")...)
	if err != nil {
		t.Fatal(err)
	}
	e := job.Sweep.Trials[1].Job
	if d := e.At("train.batch"); d.File != "--set sweep.grid.train.batch" || e.Train.Batch != 5 {
		t.Errorf("a swept value is at %+v", d)
	}
	// The sweep in the file overrides a table from an override.
	job, err = Parse("job.toml", []byte(minimal+"[sweep.grid]\ntrain.optimizer.lr = [1, 2]\n"), overrides(t, "train.optimizer={kind=\"sgd\",lr=1}")...)
	if err != nil {
		t.Fatal(err)
	}
	e = job.Sweep.Trials[1].Job
	if d := e.At("train.optimizer.lr"); d.File != "job.toml" || d.Line != 10 || d.Column != 26 {
		t.Errorf("a swept value is at %+v", d)
	}
	if d := e.At("train.optimizer.kind"); d.File != "--set train.optimizer" {
		t.Errorf("its neighbour is at %+v", d)
	}
}

// TestSettingText checks how the values of a trial are printed.
func TestSettingText(t *testing.T) {
	for _, tt := range []struct {
		v    any
		want string
	}{
		{[]any{int64(64), int64(128)}, "[64, 128]"},
		{[]any{"train", "a b", "c,d", "", "e"}, `[train, "a b", "c,d", "", e]`},
		{[]any{[]any{0.1, true}, []any{}}, "[[0.1, true], []]"},
		{map[string]any{"kind": "mlp", "hidden": []any{int64(3)}}, "{hidden = [3], kind = mlp}"},
		{"a b", "a b"}, {1e-5, "1e-05"}, {int64(3), "3"}, {false, "false"},
	} {
		if got := (Setting{"k", tt.v}).Text(); got != tt.want {
			t.Errorf("%v reads %s, want %s", tt.v, got, tt.want)
		}
	}
}

// TestSweepCostsAreLinear checks that decoding a sweep takes memory, and so time, in proportion to
// the number of its elements.
func TestSweepCostsAreLinear(t *testing.T) {
	bytes := func(elements int) uint64 {
		text := []byte(minimal + "\n[sweep]\nlist = [" + strings.Repeat(`{ "setup.env.A" = "1" }, `, elements) + "]\n")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		job, err := Parse("job.toml", text)
		runtime.ReadMemStats(&after)
		if err != nil || len(job.Sweep.Trials) != elements {
			t.Fatalf("%d elements: %v", elements, err)
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	if few, many := bytes(500), bytes(2500); many > 10*few {
		t.Errorf("500 elements take %d bytes, and 2500 take %d", few, many)
	}
}

// TestSweepRejectsTooMuchText checks that a long text in a job file with many trials is an error:
// each trial becomes a job file.
func TestSweepRejectsTooMuchText(t *testing.T) {
	parse := func(size, trials int) error {
		_, err := Parse("x.toml", fmt.Appendf(nil, "name = \"x\"\n[slurm]\ntime = \"00:10:00\"\n[command]\nargv = [\"x\", %q]\n"+
			"[sweep.random]\nsamples = %d\nvalues = { setup.env.Z = [\"1\", \"2\"] }\n", strings.Repeat("x", size), trials))
		return err
	}
	if err := parse(1000, 1000); err != nil {
		t.Errorf("small text: %v", err)
	}
	if err := parse(900_000, 2000); err == nil || !strings.Contains(err.Error(), "need more than 1 GiB") {
		t.Errorf("large text: %v", err)
	}
}

// TestSweepRejectsTooManyKeys checks that the memory of a sweep is bounded: each trial stores all
// keys.
func TestSweepRejectsTooManyKeys(t *testing.T) {
	text := func(keys, elements, trials int) []byte {
		var b strings.Builder
		fmt.Fprintf(&b, "name = \"x\"\n[slurm]\ntime = \"01:00:00\"\n[command]\nargv = [\"/bin/true\"%s]\n", strings.Repeat(`,"a"`, elements))
		fmt.Fprintf(&b, "[sweep.random]\nsamples = %d\nvalues = { setup.env.Z = [\"1\", \"2\"] }\n[setup.env]\n", trials)
		for i := range keys {
			fmt.Fprintf(&b, "A%d = \"1\"\n", i)
		}
		return []byte(b.String())
	}
	for _, tt := range []struct{ keys, elements, trials int }{{60_000, 0, 10_000}, {10, 200_000, 10_000}} {
		if _, err := Parse("x.toml", text(tt.keys, tt.elements, tt.trials)); err == nil || !strings.Contains(err.Error(), "too much memory") {
			t.Errorf("%+v: got error %v, want an error about memory", tt, err)
		}
	}
	value := "name = \"x\"\n[slurm]\ntime = \"01:00:00\"\n[command]\nargv = [\"/bin/true\"]\n[sweep.random]\nsamples = 10000\nvalues = { command.argv = [[" +
		strings.Repeat(`"a",`, 1000) + "], [\"b\"]] }\n"
	if _, err := Parse("x.toml", []byte(value)); err == nil || !strings.Contains(err.Error(), "too much memory") {
		t.Errorf("long list in [sweep]: got error %v, want an error about memory", err)
	}
	if _, err := Parse("x.toml", text(100, 0, 200)); err != nil {
		t.Errorf("small sweep: %v", err)
	}
}

// TestArrayIndices checks the value of sbatch --array for all trials and for some of them.
func TestArrayIndices(t *testing.T) {
	s := &Sweep{}
	for i := range 4 {
		s.Trials = append(s.Trials, Trial{Index: i})
	}
	for _, tt := range []struct {
		name     string
		indices  []int
		throttle int
		want     string
	}{
		{"all", nil, 0, "0-3"},
		{"throttle", nil, 2, "0-3%2"},
		{"one", []int{3}, 0, "3"},
		{"ranges", []int{0, 1, 3, 4, 5, 9}, 0, "0-1,3-5,9"},
		{"no range", []int{1, 3, 5}, 1, "1,3,5%1"},
	} {
		s.Throttle = tt.throttle
		if got := s.Array(tt.indices); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestGridOfManyKeys checks that the memory for a trial is proportional to the number of keys in its grid. Copies of
// the trial for each key took minutes for a file of 1 MiB.
func TestGridOfManyKeys(t *testing.T) {
	var file strings.Builder
	file.WriteString("name = \"x\"\n[command]\nargv = [\"true\"]\n[sweep.grid]\n\"setup.env.A\" = [\"1\", \"2\"]\n")
	for i := range 4000 {
		fmt.Fprintf(&file, "\"setup.env.X%d\" = [\"%d\"]\n", i, i)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	job, err := Parse("job.toml", []byte(file.String()))
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 200 {
		t.Errorf("%d MiB for 2 trials of %d bytes", used, file.Len())
	}
	if n := len(job.Sweep.Trials); n != 2 || job.Sweep.Trials[1].Job.Setup.Env["A"] != "2" || job.Sweep.Trials[1].Job.Setup.Env["X3999"] != "3999" {
		t.Errorf("%d trials, the last has %v", n, job.Sweep.Trials[n-1].Job.Setup.Env["A"])
	}
}

// TestOverrideOfTableAroundKey checks that a later override of a table replaces the source of a key in it.
func TestOverrideOfTableAroundKey(t *testing.T) {
	const file = "name = \"x\"\n[command]\nargv = [\"true\"]\n[setup.env]\nA = \"1\"\n"
	for _, tt := range []struct {
		set  []string
		want string
	}{
		{[]string{"setup.env.A=2", "setup.env={A = \"3\"}"}, "# setup.env: by --set setup.env\n"},
		{[]string{"setup.env={A = \"3\"}", "setup.env.A=2"}, "# setup.env: by --set setup.env\n# setup.env.A: by --set setup.env.A\n"},
	} {
		var set []Override
		for _, text := range tt.set {
			o, err := ParseOverride(text)
			if err != nil {
				t.Fatal(err)
			}
			set = append(set, o)
		}
		job, err := Parse("job.toml", []byte(file), set...)
		if err != nil {
			t.Fatal(err)
		}
		text, err := job.Source()
		if err != nil {
			t.Fatal(err)
		}
		comments, _, _ := strings.Cut(string(text), "name =")
		if !strings.HasPrefix(comments, tt.want) || strings.Count(comments, "#") != strings.Count(tt.want, "#") {
			t.Errorf("%v: got %q, want %q", tt.set, comments, tt.want)
		}
	}
}
