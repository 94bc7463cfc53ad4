package jobs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// specKeys returns the keys of the spec that have values, not tables.
func specKeys() map[string]reflect.Type {
	keys := map[string]reflect.Type{}
	eachKey(reflect.TypeFor[Job](), nil, func(path []string, f *field) { keys[keyName(path)] = f.typ })
	for key := range keys {
		if i := strings.LastIndexByte(key, '.'); i >= 0 {
			delete(keys, key[:i])
		}
	}
	return keys
}

func load(t testing.TB, path string) *Job {
	t.Helper()
	job, err := Load(path)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return job
}

func parse(t testing.TB, src string) *Job {
	t.Helper()
	job, err := Parse("job.toml", []byte(src))
	if err != nil {
		t.Fatalf("%v\nin:\n%s", err, src)
	}
	return job
}

const minimal = `name = "x"
[train]
epochs = 1
batch = 2
model.kind = "mlp"
model.hidden = [3]
data = { kind = "idx", path = "d" }
optimizer = { kind = "sgd", lr = 0.1 }
`

// TestEveryKey checks that every key of a job file is read.
func TestEveryKey(t *testing.T) {
	got := load(t, "testdata/good/every-train-key.toml")
	got.layout = nil
	want := &Job{
		Name: "a name with %j, $(all) & that; goes",
		Site: "generic",
		Slurm: Slurm{
			Nodes: 4, TasksPerNode: 2, GPUsPerNode: 4, CPUsPerTask: 8, Time: "1-12:00:00", Memory: "64G",
			Partition: "gpu,gpu-long", Account: "proj@uni", QOS: "normal", Reservation: "course",
			Constraint: "[rack1&ib|rack2]", Exclusive: true, MPI: "pmi2", OpenMode: OpenModeAppend, Export: ExportAll, SignalBeforeEnd: Duration(5 * time.Minute),
		},
		Setup: Setup{
			Modules: []Word{"gcc/13.2", "openmpi/5"}, Conda: "base", Venv: "../venv",
			Env: map[EnvName]Text{"OMP_NUM_THREADS": "4", "EMPTY": ""},
		},
		Network: Network{
			Interface: "hsn0", Family: FamilyIPv6, Exclude: []InterfaceName{"docker0", "eth0.100"},
			JoinTimeout: Duration(90 * time.Second), CollectiveTimeout: Duration(90 * time.Minute), MPILibrary: "/opt/mpi/lib/libmpi.so.40",
			Integrity: IntegrityMAC, CheckOperations: true,
			HeartbeatTimeout: Duration(20 * time.Second), ProgressTimeout: Duration(2 * time.Hour),
		},
		Train: &Train{
			Device: DeviceCPU, Backend: BackendMPI, Strategy: StrategyDDP, Precision: PrecisionFP32,
			Epochs: 1000, Batch: 64, Accumulate: 1, Bucket: 4 * mebi, FirstBucket: 256 * kibi, Reduce: ReduceBF16, NonFinite: NonFiniteStop, Seed: 1<<63 - 1, LogEvery: Interval{1, Epochs},
			Model: Model{Kind: ModelMLP, Hidden: []int{128, 64}, Activation: ActivationTanh},
			Data: Data{
				Kind: DataCSV, Path: "data/train.csv", EvalPath: "/data/eval.csv", Target: "price in €",
				Task: TaskRegression, Shuffle: new(false), Uneven: UnevenJoin,
			},
			Optimizer: Optimizer{Kind: OptimizerSGD, LR: 1, Momentum: 0.9, Decay: DecayAll, Nesterov: true},
		},
		Checkpoint: Checkpoint{Every: Interval{500, Steps}, Keep: 5, KeepEvery: Interval{10, Epochs}, KeepBest: MetricAccuracy, Async: true, OnError: SaveErrorContinue},
		Restart:    Restart{MaxWithoutProgress: 2, SpareNodes: 1, MinNodes: 2, Requeue: 4},
		Log:        Log{Prometheus: "/var/lib/node_exporter", Trace: StepRange{100, 110}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}

	// The valid specs together must contain every key of the spec.
	given := map[string]bool{}
	files, _ := filepath.Glob("testdata/good/*.toml")
	for _, file := range files {
		for key := range load(t, file).layout.positions {
			given[key] = true
		}
	}
	for key := range specKeys() {
		if !given[key] && key != "setup.env" {
			t.Errorf("no good spec has %s", key)
		}
	}
}

// TestDefaultSignalBeforeEnd checks the default, which depends on the time limit and on the kind
// of job.
func TestDefaultSignalBeforeEnd(t *testing.T) {
	train := "\n[train]\nepochs=1\nbatch=1\nmodel.kind=\"linear\"\ndata={kind=\"csv\",path=\"x\",task=\"regression\"}\noptimizer={kind=\"sgd\",lr=1}\n"
	command := "\n[command]\nargv=[\"x\"]\n"
	for _, tt := range []struct {
		slurm, work string
		want        time.Duration
	}{
		{"", train, 2 * time.Minute},
		{`time="01:00:00"`, train, 2 * time.Minute},
		{`time="00:02:00"`, train, 30 * time.Second},
		{`time="00:00:03"`, train, 0},
		{`signal_before_end="0"`, train, 0},
		{`time="01:00:00"`, command, 0},
		{"time=\"01:00:00\"\nsignal_before_end=\"90s\"", command, 90 * time.Second},
		{"time=\"1-00:00:00\"\nsignal_before_end=\"65535s\"", command, maxSignalSeconds * time.Second},
	} {
		j := parse(t, "name=\"x\"\n[slurm]\n"+tt.slurm+tt.work)
		if got := time.Duration(j.Slurm.SignalBeforeEnd); got != tt.want {
			t.Errorf("%s%s: %s, want %s", tt.slurm, tt.work, got, tt.want)
		}
	}
}

// TestDefaults checks the defaults of all keys.
func TestDefaults(t *testing.T) {
	got := parse(t, minimal)
	got.layout = nil
	want := &Job{
		Name: "x", Site: "generic",
		Slurm: Slurm{Nodes: 1, TasksPerNode: 1, CPUsPerTask: 1, OpenMode: OpenModeAppend, Export: ExportAll, SignalBeforeEnd: Duration(120 * time.Second)},
		Network: Network{
			Interface: InterfaceAuto, Family: FamilyAuto,
			JoinTimeout: Duration(time.Minute), CollectiveTimeout: Duration(5 * time.Minute), Integrity: IntegrityChecksum,
			HeartbeatTimeout: Duration(time.Minute), ProgressTimeout: Duration(30 * time.Minute),
		},
		Train: &Train{
			Device: DeviceAuto, Backend: BackendAuto, Strategy: StrategyDDP, Precision: PrecisionFP32, Epochs: 1, Batch: 2,
			Accumulate: 1, Reduce: ReduceFP32, NonFinite: NonFiniteStop,
			LogEvery:  Interval{50, Steps},
			Model:     Model{Kind: ModelMLP, Hidden: []int{3}, Activation: ActivationReLU},
			Data:      Data{Kind: DataIDX, Path: "d", Task: TaskClassification, Shuffle: new(true), Uneven: UnevenPad},
			Optimizer: Optimizer{Kind: OptimizerSGD, LR: 0.1, Decay: DecayAll},
		},
		Checkpoint: Checkpoint{Every: Interval{1, Epochs}, Keep: 3, OnError: SaveErrorStop},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v %+v\nwant %+v %+v", got, got.Train, want, want.Train)
	}
	if c := parse(t, "name = \"x\"\ncommand.argv = [\"true\"]\n").Command; c.Launcher != LauncherRank || c.Workdir != "" {
		t.Errorf("command: %+v", c)
	}
}

// TestWatchRestart checks that action = "restart" requires that restarts are allowed.
func TestWatchRestart(t *testing.T) {
	const message = "no restart is allowed"
	for _, tt := range []struct {
		name, restart string
		rejected      bool
	}{
		{"no [restart]", "", true},
		{"max_without_progress", "max_without_progress = 1", false},
		{"zero", "max_without_progress = 0", true},
		{"default with spare_nodes", "spare_nodes = 1", false},
		{"default with min_nodes", "min_nodes = 1", false},
		{"invalid spare_nodes", "spare_nodes = \"1\"", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("job.toml", []byte("name = \"x\"\nslurm.nodes = 2\n[restart]\n"+tt.restart+"\n[command]\nargv = [\"true\"]\n[command.watch]\nsilence = \"30m\"\naction = \"restart\"\n"))
			if got := err != nil && strings.Contains(err.Error(), message); got != tt.rejected {
				t.Errorf("got %v, want %q: %v", err, message, tt.rejected)
			}
		})
	}
}

// TestSignalOff checks that a time of 0 turns the signal off.
func TestSignalOff(t *testing.T) {
	for _, zero := range []string{"0", "0s"} {
		job := parse(t, minimal+"[slurm]\ntime = \"1\"\nsignal_before_end = \""+zero+"\"\n")
		if job.Slurm.SignalBeforeEnd != 0 {
			t.Errorf("signal_before_end = %q gives %s", zero, job.Slurm.SignalBeforeEnd)
		}
	}
}

// TestRanks checks the number of tasks and ranks from nodes, tasks, and GPUs.
func TestRanks(t *testing.T) {
	for _, c := range []struct {
		slurm        string
		tasks, ranks int
	}{
		{"", 1, 1},
		{"nodes = 3", 1, 3},
		{"nodes = 3\ntasks_per_node = 2", 2, 6},
		{"nodes = 2\ngpus_per_node = 4", 4, 8},
		{"nodes = 2\ngpus_per_node = 4\ntasks_per_node = 2", 2, 4},
		{"nodes = 2147483647\ntasks_per_node = 2147483647", 1<<31 - 1, (1<<31 - 1) * (1<<31 - 1)},
	} {
		job := parse(t, minimal+"[slurm]\n"+c.slurm)
		if job.TasksPerNode() != c.tasks || job.Ranks() != c.ranks || int(job.Slurm.TasksPerNode) != c.tasks {
			t.Errorf("%q: %d per node, %d ranks; want %d, %d", c.slurm, job.TasksPerNode(), job.Ranks(), c.tasks, c.ranks)
		}
	}
	if ranks := (&Job{}).Ranks(); ranks != 1 {
		t.Errorf("an empty job has %d ranks", ranks)
	}
}

// TestFirstRankOn checks the first rank on each node, for equal and different numbers of ranks.
func TestFirstRankOn(t *testing.T) {
	for _, tt := range []struct {
		slurm string
		want  []int
	}{
		{"nodes = 3", []int{0, 1, 2}},
		{"nodes = 3\ntasks_per_node = 4", []int{0, 4, 8}},
		{"ranks_per_node = [4, 1, 2]", []int{0, 4, 5, 7}},
	} {
		job := parse(t, "name = \"x\"\n[slurm]\n"+tt.slurm+"\n[command]\nargv = [\"true\"]\n")
		for node, want := range tt.want {
			if got := job.FirstRankOn(node); got != want {
				t.Errorf("%q, node %d: got %d, want %d", tt.slurm, node, got, want)
			}
		}
	}
}

// TestSplitGroups checks that each group has its own resources, or else those of [slurm].
func TestSplitGroups(t *testing.T) {
	job := parse(t, "name = \"x\"\n[slurm]\ncpus_per_task = 4\nmem = \"8G\"\npartition = \"cpu\"\n[[slurm.group]]\ncpus_per_task = 8\nmem = \"64G\"\npartition = \"gpu\"\n[[slurm.group]]\n[command]\nargv = [\"true\"]\n")
	var got []string
	for _, part := range job.SplitGroups() {
		got = append(got, fmt.Sprint(part.Slurm.CPUsPerTask, " ", part.Slurm.Memory, " ", part.Slurm.Partition))
	}
	if want := []string{"8 64G gpu", "4 8G cpu"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestCores checks the values of cpus_per_task, in [slurm] and in a group.
func TestCores(t *testing.T) {
	for _, tt := range []struct {
		value string
		want  Cores
		err   string
	}{
		{"12", 12, ""},
		{`"all"`, AllCores, ""},
		{"0", 0, `must be 1 or more, not 0`},
		{"-1", 0, `must be 1 or more, not -1`},
		{`"12"`, 0, "must be an integer without quotes"},
		{`"ALL"`, 0, `must be an integer, not "ALL"`},
		{"2.0", 0, "must be an integer, not 2.0"},
		{"true", 0, "must be an integer, not a boolean"},
	} {
		job, err := Parse("", []byte("name = \"x\"\n[slurm]\ncpus_per_task = "+tt.value+"\n[command]\nargv = [\"true\"]\n"))
		switch {
		case tt.err != "":
			if err == nil || !strings.Contains(err.Error(), "slurm.cpus_per_task: "+tt.err) {
				t.Errorf("%s: got %v, want %q", tt.value, err, tt.err)
			}
		case err != nil || job.Slurm.CPUsPerTask != tt.want:
			t.Errorf("%s: got %v and %v, want %v", tt.value, job, err, tt.want)
		}
	}
	job := parse(t, "name = \"x\"\n[slurm]\ncpus_per_task = 4\n[[slurm.group]]\ncpus_per_task = \"all\"\n[[slurm.group]]\n[command]\nargv = [\"true\"]\n")
	if parts := job.SplitGroups(); parts[0].Slurm.CPUsPerTask != AllCores || parts[1].Slurm.CPUsPerTask != 4 {
		t.Errorf("got %d and %d cores in the groups", parts[0].Slurm.CPUsPerTask, parts[1].Slurm.CPUsPerTask)
	}
	o, err := ParseOverride("slurm.cpus_per_task=all")
	if err != nil {
		t.Fatal(err)
	}
	if job, err = Parse("", []byte(minimal), o); err != nil || job.Slurm.CPUsPerTask != AllCores {
		t.Errorf("got %v and %v with --set", job, err)
	}
}

// TestEncodings checks that line endings and a byte order mark do not affect the result.
func TestEncodings(t *testing.T) {
	want := parse(t, minimal)
	want.layout = nil
	for name, src := range map[string]string{
		"CRLF":            strings.ReplaceAll(minimal, "\n", "\r\n"),
		"byte order mark": "\ufeff" + minimal,
		"no last newline": strings.TrimSuffix(minimal, "\n"),
	} {
		got := parse(t, src)
		got.layout = nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// TestLoadErrors checks the errors for missing, empty, and large files.
func TestLoadErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, size int) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(strings.Repeat("#", size)), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct{ path, want string }{
		{filepath.Join(dir, "none.toml"), "no such file"},
		{dir, "is a directory"},
		{write("large.toml", maxFileBytes+1), "larger than 1024 KiB"},
		{write("empty.toml", 0), "no keys"},
		{write("limit.toml", maxFileBytes), "no keys"},
	} {
		if _, err := Load(c.path); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.path) {
			t.Errorf("Load(%q): %v, want %q", c.path, err, c.want)
		}
	}
	fifo := filepath.Join(dir, "fifo.toml")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(fifo); !errors.Is(err, safefile.ErrNotRegular) {
		t.Errorf("got %v, want an error without waiting for a writer", err)
	}
	// Read accepts a pipe that the user names, such as the shell's <(command).
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	go func() {
		io.WriteString(w, minimal)
		w.Close()
	}()
	if src, err := Read(fmt.Sprintf("/dev/fd/%d", r.Fd())); string(src) != minimal || err != nil {
		t.Errorf("pipe: got %q, %v", src, err)
	}
	_, err = Load(filepath.Join(dir, "none.toml"))
	hint, ok := err.(interface{ Hint() string })
	if !errors.Is(err, fs.ErrNotExist) || !ok || !strings.Contains(hint.Hint(), "ddpbatch init") {
		t.Errorf("a missing file: %#v", err)
	}
	if _, err := Parse("job.toml", make([]byte, maxFileBytes+1)); err == nil {
		t.Error("Parse accepts a large file")
	}
}

// TestAt checks the position of a key's value, and that a secret's value is not shown.
func TestAt(t *testing.T) {
	job := parse(t, "name = \"x\"\nsite = \"lumi\"\ncommand.argv = [\"true\"]\n[setup.env]\nTOKEN = \"canary\"\n")
	d := job.At("site")
	if d.Line != 2 || d.Column != 8 || d.Length != 6 || d.Source != `site = "lumi"` || d.Key != "site" || d.File != "job.toml" {
		t.Errorf("site: %+v", d)
	}
	if d := job.At("setup.env.TOKEN"); d.Line != 5 || strings.Contains(d.Source, "canary") {
		t.Errorf("variable: %+v", d)
	}
	if d := job.At("slurm.nodes"); d.Line != 0 || d.File != "job.toml" {
		t.Errorf("a key that is not given: %+v", d)
	}
	if d := (&Job{}).At("site"); d != (Diagnostic{Key: "site"}) {
		t.Errorf("a job without a file: %+v", d)
	}
}

// TestExamples checks that each required key has an example, and that the example is valid.
func TestExamples(t *testing.T) {
	eachKey(reflect.TypeFor[Job](), nil, func(path []string, f *field) {
		if f.example == "" {
			return
		}
		key := keyName(path)
		table, _, _ := strings.Cut(key, ".")
		src := f.key + " = " + f.example + "\n"
		if i := strings.LastIndexByte(key, '.'); i >= 0 {
			src = "[" + key[:i] + "]\n" + src
		}
		_, err := Parse("job.toml", []byte(src))
		var found Diagnostics
		if !errors.As(err, &found) {
			t.Fatalf("%s alone: %v", key, err)
		}
		for _, d := range found {
			if d.Key == key || d.Allowed == "for example: " || !strings.HasPrefix(d.Key, table) && d.Key != "name" && !isWithin(d.Key, "train") {
				t.Errorf("after following the example of %s: %s", key, d.Message)
			}
		}
	})
}

// TestExampleSpecs checks that all examples are valid and have the names of their files.
func TestExampleSpecs(t *testing.T) {
	files, _ := filepath.Glob("examples/*.toml")
	want := []string{"cnn", "container", "ddp-script", "demo", "fashion-mnist", "gpt-text", "gpt2-tokens", "linear", "mpi", "sweep", "torchrun"}
	var got []string
	for _, file := range files {
		job := load(t, file)
		name := strings.TrimSuffix(filepath.Base(file), ".toml")
		if string(job.Name) != name {
			t.Errorf("%s has the name %q", file, job.Name)
		}
		got = append(got, name)

		// The request must fit a profile's suggested resource and the nodes of an unknown
		// site.
		if s := job.Slurm; s.Nodes > 8 || job.TasksPerNode()*int(s.CPUsPerTask) > 16 || s.Time.Duration() > 2*time.Hour {
			t.Errorf("%s asks for much: %+v", name, s)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("examples: %q, want %q", got, want)
	}
	demo := load(t, "examples/demo.toml")
	if demo.Ranks() != 2 || demo.Train.Data.Path != "builtin:fashion-mnist" {
		t.Errorf("demo: %+v", demo)
	}
	for _, name := range []string{"demo", "cnn"} {
		if err := load(t, "examples/"+name+".toml").CheckFiles("/nonexistent"); err != nil {
			t.Errorf("%s needs a file: %v", name, err)
		}
	}
	if err := load(t, "examples/gpt-text.toml").CheckFiles("examples"); err != nil {
		t.Errorf("the text of gpt-text: %v", err)
	}
}

// BenchmarkParse measures the time to parse a job file with every key.
func BenchmarkParse(b *testing.B) {
	src, err := os.ReadFile("testdata/good/every-train-key.toml")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("job.toml", src); err != nil {
			b.Fatal(err)
		}
	}
}

// TestOptimizerDefaults checks that Adam and AdamW have PyTorch's defaults, and that 0 is a valid
// value, not a missing one.
func TestOptimizerDefaults(t *testing.T) {
	o := load(t, "testdata/good/step-schedule.toml").Train.Optimizer
	if o.Beta1 != 0 || o.Beta2 != 0.999 || o.Eps != 1e-8 || o.WeightDecay != 0 {
		t.Errorf("adam: %+v", o)
	}
	adamw := parse(t, strings.Replace(minimal, `kind = "sgd"`, `kind = "adamw"`, 1)).Train.Optimizer
	if adamw.Beta1 != 0.9 || adamw.WeightDecay != 0.01 || adamw.ClipNorm != 0 {
		t.Errorf("adamw: %+v", adamw)
	}
	if off := parse(t, strings.Replace(minimal, `kind = "sgd"`, `kind = "adamw", weight_decay = 0`, 1)).Train.Optimizer; off.WeightDecay != 0 {
		t.Errorf("adamw without decay: %+v", off)
	}
}

// TestDecodeSomeRejectsDepth checks that deeply nested tables are rejected. The TOML decoder needs
// quadratic memory for them.
func TestDecodeSomeRejectsDepth(t *testing.T) {
	deep := maxDepth + 1
	for _, tt := range []struct{ name, text string }{
		{"dotted key", strings.Repeat("a.", deep) + "a = 1"},
		{"table", "[" + strings.Repeat("a.", deep) + "a]"},
		{"inline tables", "a = " + strings.Repeat("{a = ", deep) + "1" + strings.Repeat("}", deep)},
		{"open inline tables", "a = " + strings.Repeat("{a = ", deep)},
		{"arrays", "a = " + strings.Repeat("[", deep)},
	} {
		var some struct{}
		if err := DecodeSome([]byte(tt.text), &some); err == nil || !strings.Contains(err.Error(), "nested") {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	var some struct{ Train struct{ Epochs int } }
	if err := DecodeSome([]byte("[train]\nepochs = 3\nnew_key = 1\n"), &some); err != nil || some.Train.Epochs != 3 {
		t.Errorf("%+v, %v", some, err)
	}
}

// TestLongKeysAreRejected checks the limit on the length of a key with the names of its tables. The name
// of each key is stored: with one long name of a table, a file of 1 MiB needed more than 50 GB.
func TestLongKeysAreRejected(t *testing.T) {
	half, rest := strings.Repeat("a", maxKeyBytes/2), strings.Repeat("b", maxKeyBytes/2)
	for _, tt := range []struct{ name, text string }{
		{"key", half + rest + "%s = 1"},
		{"quoted key", `"` + half + rest + `%s" = 1`},
		{"dotted key", half + "." + rest + "%s = 1"},
		{"key in a table", "[" + half + "]\n" + rest + "%s = 1"},
		{"table", "[" + half + "." + rest + "%s]"},
		{"array of tables", "[[" + half + rest + "%s]]"},
		{"key in an inline table", half + " = { " + rest + "%s = 1 }"},
		{"key in an array", half + " = [[{}, { " + rest + "%s = 1 }]]"},
		{"variable", "[setup.env]\n" + half + rest[len("setupenv"):] + `%s = "canary"`},
	} {
		var some struct{}
		if err := DecodeSome(fmt.Appendf(nil, tt.text, ""), &some); err != nil {
			t.Errorf("%s of %d bytes: %v", tt.name, maxKeyBytes, err)
		}
		long := fmt.Appendf(nil, tt.text, "c")
		_, err := Parse("job.toml", long)
		for what, err := range map[string]error{"some keys": DecodeSome(long, &some), "all keys": err} {
			var found Diagnostics
			if !errors.As(err, &found) || len(found) != 1 || !strings.Contains(found[0].Message, "longer than") || found[0].Line == 0 || strings.Contains(found[0].Source, "canary") {
				t.Errorf("%s of %d bytes, %s: %+v", tt.name, maxKeyBytes+1, what, err)
			}
		}
	}
}
