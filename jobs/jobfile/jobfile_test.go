package jobfile

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// writeJob writes a job file with a program next to it.
func writeJob(t *testing.T, text string) (path, base string) {
	t.Helper()
	base = t.TempDir()
	path = filepath.Join(base, "job.toml")
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.WriteFile(filepath.Join(base, "train.py"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	return path, base
}

// TestSummary checks the size, the limits, and the program in the summary of a job.
func TestSummary(t *testing.T) {
	long := strings.Repeat("x", maxCommandLine)
	for _, c := range []struct {
		name, slurm, argv, more, want string
	}{
		{name: "GPUs", slurm: "nodes = 2\ntasks_per_node = 4\ngpus_per_node = 4\ntime = \"0:30:00\"", want: "2 nodes x 4 GPUs (8 ranks), 30 minutes, runs python3 train.py"},
		{name: "CPUs", slurm: "tasks_per_node = 2", want: "1 node x 2 ranks, runs python3 train.py"},
		{name: "uneven ranks", slurm: "nodes = 3\nranks_per_node = [4, 2, 2]", want: "3 nodes with 4,2(x2) ranks (8 ranks), runs python3 train.py"},
		{name: "partition", slurm: "partition = \"gpu\"", want: "1 node x 1 rank, partition gpu, runs python3 train.py"},
		{name: "GPUs of a type", slurm: "gpus_per_node = \"a100:4\"\ntasks_per_node = 2", want: "1 node x 4 a100 GPUs, 2 ranks each (2 ranks), runs python3 train.py"},
		{name: "one process", slurm: "nodes = 2\ntasks_per_node = 3", more: "run = \"once\"\n", want: "2 nodes x 3 tasks (1 process), runs python3 train.py"},
		{name: "torchrun", argv: "\"/opt/python3\", \"train.py\"", more: "launcher = \"torchrun\"\n", want: "1 node x 1 rank, runs torchrun train.py with /opt/python3"},
		{name: "longest command", argv: "\"" + long + "\"", want: "1 node x 1 rank, runs " + long},
		{name: "longer command", argv: "\"" + long + "x\"", want: "1 node x 1 rank, runs " + long + "…"},
		{name: "component", more: "[[component]]\nname = \"server\"\nargv = [\"true\"]\n", want: "1 node x 1 rank, runs python3 train.py with component server"},
		{name: "components", more: "[[component]]\nname = \"a\"\nargv = [\"true\"]\n[[component]]\nname = \"b\"\nargv = [\"true\"]\n",
			want: "1 node x 1 rank, runs python3 train.py with components a, b"},
		{name: "sweep", more: "[sweep.grid]\n\"setup.env.LR\" = [\"1\", \"2\", \"3\"]", want: "3 trials, each 1 node x 1 rank, runs python3 train.py"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path, base := writeJob(t, "name = \"x\"\n[slurm]\n"+c.slurm+"\n[command]\nargv = ["+cmp.Or(c.argv, `"python3", "train.py"`)+"]\n"+c.more)
			f, err := Loader{}.Load(path, base)
			if err != nil {
				t.Fatal(err)
			}
			if got := f.Summary(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestLoadErrors checks that the errors of a stage come together, and that a file is returned if only
// files or the site are wrong.
func TestLoadErrors(t *testing.T) {
	for _, c := range []struct {
		name, text string
		keys       []string
		loaded     bool
	}{
		{name: "keys", text: "name = \"x\"\n[slurm]\nnodes = 0\ntasks_per_node = -1\n[command]\nargv = [\"true\"]\n", keys: []string{"slurm.nodes", "slurm.tasks_per_node"}},
		{name: "site", text: "name = \"x\"\nsite = \"nowhere\"\n[command]\nargv = [\"true\"]\n", keys: []string{"site"}},
		{name: "files", text: "name = \"x\"\n[setup]\nvenv = \"missing\"\n[command]\nargv = [\"true\"]\n", keys: []string{"setup.venv"}, loaded: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			path, base := writeJob(t, c.text)
			f, err := Loader{}.Load(path, base)
			var found jobs.Diagnostics
			if !errors.As(err, &found) || (f != nil) != c.loaded {
				t.Fatalf("got %v, %v", f, err)
			}
			var keys []string
			for _, d := range found {
				keys = append(keys, d.Key)
				if d.Line == 0 || d.File != path {
					t.Errorf("no location: %+v", d)
				}
			}
			if strings.Join(keys, " ") != strings.Join(c.keys, " ") {
				t.Errorf("got keys %q, want %q", keys, c.keys)
			}
		})
	}
}

// TestSiteDefaults checks that a job and all trials of a sweep have the defaults of the site.
func TestSiteDefaults(t *testing.T) {
	path, base := writeJob(t, "name = \"x\"\nsite = \"alps\"\n[slurm]\ntime = \"1:00:00\"\n[command]\nargv = [\"true\"]\n[sweep.grid]\n\"setup.env.LR\" = [\"1\", \"2\"]\n")
	f, err := Loader{}.Load(path, base)
	if err != nil {
		t.Fatal(err)
	}
	for i, job := range append(f.All(), f.Job) {
		if job.Slurm.Partition != "normal" {
			t.Errorf("job %d: got partition %q", i, job.Slurm.Partition)
		}
	}
}

// TestManyWarnings checks that a job file with many warnings, also of the trials of a sweep, reports each once,
// and at most 100. The time to find the position of each in a long line, and to compare it with all others, was
// quadratic.
func TestManyWarnings(t *testing.T) {
	for _, tt := range []struct {
		name, sweep string
		words, want int
	}{
		{name: "words", words: 1000, want: 101},
		{name: "trials", words: 60, want: 60, sweep: "[sweep.grid]\n\"setup.env.X\" = [\"1\", \"2\", \"3\"]\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path, base := writeJob(t, "name = \"x\"\n[command]\nargv = [\"python3\", \"train.py\""+strings.Repeat(`, "{ron_dir}"`, tt.words)+"]\n"+tt.sweep)
			f, err := Loader{}.Load(path, base)
			if err != nil {
				t.Fatal(err)
			}
			n := len(f.Warnings)
			if n != tt.want || (n > 100) != (f.Warnings[n-1].Message == "and more warnings") {
				t.Errorf("%d warnings, want %d; the last is %q", n, tt.want, f.Warnings[n-1].Message)
			}
		})
	}
}
