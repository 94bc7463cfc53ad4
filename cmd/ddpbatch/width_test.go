package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs/watch/screen"
	"github.com/ddpbatch/ddpbatch/tests/terminal"
)

// TestFits checks that the output of status, top, and doctor fits the terminal.
func TestFits(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const name = "pretrain-bert-large-uncased-lr0.1-seed42"
	job := strings.Replace(fmt.Sprintf(endless, 64), `"long"`, `"`+name+`"`, 1)
	put("job.toml", job)
	put("sweep.toml", strings.Replace(job, name, "tune", 1)+`
[sweep.grid]
train.optimizer.weight_decay = [0.1, 0.01]
train.optimizer.momentum = [0.9, 0.95]
checkpoint.keep = [2, 3]
train.log_every = ["1 epoch"]
`)
	put("slurm/none", "")
	environ := []string{"FAKE_DIR=" + filepath.Join(dir, "slurm")}
	for _, file := range []string{"job.toml", "sweep.toml"} {
		cmd := exec.CommandContext(t.Context(), "ddpbatch", "submit", file)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), environ...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	put("slurm/job-101.state", "FAILED NonZeroExitCode 4:0\n")
	put("runs/"+name+"/failure.json", `{"first": {"rank": 3, "host": "n2", "reason": "rank 3 on n2 was lost at step 1290 (training): its process was killed by the out-of-memory killer (SIGKILL)"}}`)
	put("runs/"+name+"/metrics.jsonl", `{"kind":"train","step":1290,"steps":512000,"epoch":2,"epochs":60,"loss":0.4,"samples_per_s":1619669,"step_ms":20.5,"comm_ms":8,"comm_hidden":0.75,"slowest_rank":3,"slowest_ratio":1.5,"straggler":true,"left_s":90}`+"\n")
	put("slurm-1.out", "epoch 1\nRuntimeError: [3] is setting up NCCL communicator: "+strings.Repeat("and so on ", 20)+"CUDA out of memory. Tried to allocate 2.00 GiB\nsrun: error: n1: task 3: Exited with exit code 1\n")
	for _, tt := range []struct {
		args string
		want []string
	}{
		{"status", []string{"SIGKILL", "queued"}},
		{"status " + name, []string{"phase       failed: rank 3 on n2", "memory killer"}},
		{"status tune", []string{"tune-7", "0.95"}},
		{"top --once", []string{"..."}},
		{"doctor --log slurm-1.out", []string{"  it means: ", "srun"}},
		{"doctor", []string{"LEVEL", "files speed"}},
	} {
		for _, width := range []int{80, 60} {
			if tt.args == "doctor" && width != 80 {
				continue // slow
			}
			x := terminal.New(t, width, 400)
			_ = onTerminal(t, x, dir, environ, "ddpbatch", strings.Fields(tt.args)...).Wait() // some commands fail on purpose
			fmt.Fprint(x.TTY, "the end")
			x.Await("the end")
			text := strings.ReplaceAll(x.Raw(), "\r", "")
			flat := strings.Join(strings.Fields(text), " ")
			for _, want := range tt.want {
				if !strings.Contains(text, want) && !strings.Contains(flat, want) {
					t.Errorf("%s at %d columns: no %q in\n%s", tt.args, width, want, text)
				}
			}
			for line := range strings.SplitSeq(text, "\n") {
				words := strings.Fields(line)
				if n := screen.Width(line); n > width && len(words[len(words)-1]) < width/2 { // paths are not broken
					t.Errorf("%s at %d columns has a line of %d: %q", tt.args, width, n, line)
				}
			}
		}
	}
}
