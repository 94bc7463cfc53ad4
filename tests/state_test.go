package tests

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/program"
)

const small = `name = "small"
[train]
epochs = 3
batch = 64
[train.model]
kind = "mlp"
hidden = [32]
[train.data]
kind = "idx"
path = "builtin:fashion-mnist"
[train.optimizer]
kind = "sgd"
lr = 0.05
`

func smallRun(t *testing.T) (home, run string) {
	t.Helper()
	home = t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "job.toml"), []byte(small), 0o600); err != nil {
		t.Fatal(err)
	}
	return home, filepath.Join(home, "runs", "small")
}

// TestDamagedCheckpoints checks that a run skips a corrupt checkpoint with a warning and uses the
// previous one. If no checkpoint is valid, the run does not start from scratch automatically.
func TestDamagedCheckpoints(t *testing.T) {
	home, run := smallRun(t)
	if o := here(t, home, "launch", "job.toml", "-n", "2"); o.code != 0 {
		t.Fatal(o)
	}
	want := weights(t, run)
	found, err := filepath.Glob(filepath.Join(run, "checkpoints", "step-*"))
	if err != nil || len(found) != 3 { // keep = 3
		t.Fatal(found, err)
	}
	damage := func(path string) {
		t.Helper()
		file := filepath.Join(path, "model.safetensors")
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 1
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	damage(found[2])
	if o := here(t, home, "checkpoint", "verify", run); o.code != 0 || !strings.Contains(o.stdout, "is corrupt") {
		t.Errorf("verify: %v", o)
	}
	o := here(t, home, "launch", "job.toml", "-n", "2")
	if o.code != 0 {
		t.Fatal(o)
	}
	mustContain(t, o.stdout, "warning: skipped a checkpoint", "model.safetensors\" is corrupt", "resuming after step 58")
	if got := weights(t, run); got != want {
		t.Errorf("other weights after the fall-back:\n%s\n%s", got, want)
	}
	for _, path := range found {
		if _, err := os.Stat(path); err == nil {
			damage(path)
		}
	}
	left, _ := filepath.Glob(filepath.Join(run, "checkpoints", "step-*"))
	o = here(t, home, "launch", "job.toml", "-n", "2")
	if o.code != 5 {
		t.Errorf("no usable checkpoint: %v", o)
	}
	mustContain(t, o.stderr, "ddpbatch: error:", "no usable checkpoint", "ddpbatch: hint:")
	if now, _ := filepath.Glob(filepath.Join(run, "checkpoints", "step-*")); len(now) != len(left) {
		t.Errorf("checkpoints were removed: %v, now %v", left, now)
	}
}

// TestFullDisk checks that on a full disk a run does not start, or keeps its existing checkpoints.
func TestFullDisk(t *testing.T) {
	program.NeedRoot(t, "mounting a small disk")
	home, run := smallRun(t)
	if err := os.MkdirAll(run, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		size, want string
		saved      bool
	}{
		// The model 784-32-10 takes 100 KiB. The file systems have space for no checkpoint, for
		// one, and for two.
		{"size=64k", "save checkpoint of step 0: not enough space for 99.4 KiB in ", false},
		{"size=160k", "not enough space for another checkpoint of 99.9 KiB", true},
		{"size=330k", "save checkpoint of step", true},
	} {
		if err := syscall.Mount("tmpfs", run, "tmpfs", 0, tt.size+",mode=0700"); err != nil {
			t.Fatal(err)
		}
		o := here(t, home, "launch", "job.toml", "-n", "2")
		ls := here(t, home, "checkpoint", "verify", run)
		if err := syscall.Unmount(run, 0); err != nil {
			t.Fatal(err)
		}
		if o.code != 1 {
			t.Errorf("%s: %v", tt.size, o)
		}
		mustContain(t, o.stderr, tt.want, " are free", "ddpbatch: hint: the disk or your quota is full")
		if tt.saved != (ls.code == 0) {
			t.Errorf("%s: afterwards: %v", tt.size, ls)
		}
	}
}
