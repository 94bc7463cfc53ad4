package launch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"
)

// fakeTorchrun starts workers that run one line of shell each, as torchrun does. It waits for
// them only after some time, and stops the second worker with SIGTERM because the first one
// failed.
func fakeTorchrun() int {
	var workers []*exec.Cmd
	for rank, line := range []string{os.Getenv("FAKE_WORKER_0"), "sleep 300"} {
		worker := exec.Command("/bin/sh", "-c", line)
		worker.Env = []string{"PATH=/usr/bin:/bin", "TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_RESTART_COUNT=0", fmt.Sprintf("RANK=%d", rank)}
		if err := worker.Start(); err != nil {
			return 2
		}
		workers = append(workers, worker)
	}
	time.Sleep(8 * time.Second)
	_ = workers[1].Process.Signal(syscall.SIGTERM)
	time.Sleep(time.Second)
	for _, w := range workers {
		_ = w.Wait()
	}
	return 1
}

// TestFailedWorkerOfTorchrunIsNamed checks that the error of a failed torchrun names the
// worker that failed first, and not a worker that torchrun stopped because of it. This also
// works for a worker that fails immediately.
func TestFailedWorkerOfTorchrunIsNamed(t *testing.T) {
	for _, tt := range []struct{ name, worker, want string }{
		{"after a while", "sleep 4; exit 7", "RANK=0 ended with exit code 7"},
		// On a busy machine, even such a worker can live long enough to be found.
		{"at once", "exit 2", "(a worker of torchrun|RANK=0) ended with exit code 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			script := fmt.Sprintf("#!/bin/sh\nFAKE_WORKER_0='%s' exec %s fake-torchrun\n", tt.worker, os.Args[0])
			if err := os.WriteFile(filepath.Join(dir, "torchrun"), []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			result, said, err := launched(t, 1, "program", "[command]\nlauncher = \"torchrun\"\nargv = [\"train.py\"]\n", nil)
			if err != nil || result.Failure == nil || result.Exit != 1 || !regexp.MustCompile(tt.want).MatchString(result.Failure.Reason) {
				t.Errorf("%+v, %v\n%s", result.Failure, err, said)
			}
		})
	}
}
