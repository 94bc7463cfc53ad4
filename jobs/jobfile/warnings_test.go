package jobfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// TestPrecisionWarnings checks that bf16 is a warning only for jobs that train on CPUs, and only if
// the CPU of this machine has no instructions for it.
func TestPrecisionWarnings(t *testing.T) {
	for _, c := range []struct {
		name            string
		slurm, train    string
		hasBF16, hasGPU bool
		warns           bool
	}{
		{name: "bf16 on the CPU", train: "precision = \"bf16\"\ndevice = \"cpu\"", warns: true},
		{name: "bf16 without GPUs", train: "precision = \"bf16\"", warns: true},
		{name: "bf16 on the CPU, GPUs unused", slurm: "gpus_per_node = 4", train: "precision = \"bf16\"\ndevice = \"cpu\"", warns: true},
		{name: "fp32", train: "device = \"cpu\""},
		{name: "a CPU with bf16", train: "precision = \"bf16\"\ndevice = \"cpu\"", hasBF16: true},
		{name: "GPUs", slurm: "gpus_per_node = 4", train: "precision = \"bf16\""},
		{name: "cuda", train: "precision = \"bf16\"\ndevice = \"cuda\""},
		{name: "GPUs of this machine", train: "precision = \"bf16\"", hasGPU: true},
	} {
		job, err := jobs.Parse("job.toml", []byte("name = \"x\"\n[slurm]\ntime = \"1:00:00\"\n"+c.slurm+"\n[train]\nepochs = 1\nbatch = 4\n"+c.train+
			"\n[train.model]\nkind = \"mlp\"\nhidden = [4]\n[train.data]\nkind = \"csv\"\npath = \"data.csv\"\ntask = \"regression\"\n[train.optimizer]\nkind = \"sgd\"\nlr = 0.1\n"))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		found := precisionWarnings(job, c.hasBF16, "avx2", c.hasGPU)
		if (len(found) == 1) != c.warns || len(found) > 1 {
			t.Errorf("%s: got %v", c.name, found)
		}
		if c.warns && (!strings.Contains(found[0].Message, "without bf16 instructions (AVX512_BF16), such as the CPU of this machine (avx2)") || found[0].Line == 0) {
			t.Errorf("%s: got %+v", c.name, found[0])
		}
	}
}

// TestWriterWarningQuotesPath checks that the command in the hint works for paths with spaces.
func TestWriterWarningQuotesPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "my job.toml")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o602); err != nil {
		t.Fatal(err)
	}
	got := writerWarnings(path, "job file")
	if want := "run `chmod o-w '" + path + "'`"; len(got) != 1 || got[0].Allowed != want {
		t.Errorf("got %+v, want %q", got, want)
	}
}

// TestWriterWarningOfAnotherUser checks that only the owner and root are told to change the mode of a
// file.
func TestWriterWarningOfAnotherUser(t *testing.T) {
	path := filepath.Join(t.TempDir(), "job.toml")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o602)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name       string
		owner, uid int
		want       string
	}{
		{name: "owner", owner: 61001, uid: 61001, want: "chmod"},
		{name: "root", owner: 61001, uid: 0, want: "chmod"},
		{name: "another user", owner: 61001, uid: 61002, want: "copy the job file"},
	} {
		if got := writableHint(path, "job file", c.owner, c.uid); !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// TestWriterWarnings checks that there is a warning for each file and directory with which every user can
// change or replace a job file, also behind links.
func TestWriterWarnings(t *testing.T) {
	for name, c := range map[string]struct {
		open string // path to open for every user
		mode os.FileMode
		want string
	}{
		"protected":              {"", 0, ""},
		"file":                   {"real/jobs/job.toml", 0o666, "0666"},
		"directory":              {"real/jobs", 0o777, "0777"},
		"directory above":        {"real", 0o777, "0777"},
		"sticky directory":       {"real", 0o777 | os.ModeSticky, ""},
		"directory of the link":  {"links", 0o777, "0777"},
		"group":                  {"real", 0o775, ""},
		"directory next to them": {"other", 0o777, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			at := func(name string) string { return filepath.Join(dir, name) }
			if err := errors.Join(os.MkdirAll(at("real/jobs"), 0o755), os.Mkdir(at("links"), 0o755), os.Mkdir(at("other"), 0o755),
				os.WriteFile(at("real/jobs/job.toml"), nil, 0o644), os.Symlink(at("real/jobs/job.toml"), at("links/job.toml"))); err != nil {
				t.Fatal(err)
			}
			if c.open != "" {
				if err := os.Chmod(at(c.open), c.mode); err != nil {
					t.Fatal(err)
				}
			}
			found := writerWarnings(at("links/job.toml"), "job file")
			if c.want == "" && len(found) != 0 || c.want != "" && (len(found) != 1 || !strings.Contains(found[0].Message, c.want) || !strings.Contains(found[0].Allowed, "chmod o-w")) {
				t.Errorf("got %v, want %q", found, c.want)
			}
		})
	}
}
