package launch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakeTorchrun starts a worker that fails, and notices it late, as torchrun does.
func fakeTorchrun() int {
	worker := exec.Command("/bin/sh", "-c", "sleep 4; exit 7")
	worker.Env = []string{"PATH=/usr/bin:/bin", "TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_RESTART_COUNT=0", "RANK=3"}
	if err := worker.Start(); err != nil {
		return 2
	}
	time.Sleep(8 * time.Second)
	_ = worker.Wait()
	return 1
}

// The reason of a failed torchrun names its worker.
func TestFailedWorkerOfTorchrunIsNamed(t *testing.T) {
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nexec %s fake-torchrun\n", os.Args[0])
	if err := os.WriteFile(filepath.Join(dir, "torchrun"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	result, said, err := launched(t, 1, "program", "[command]\nlauncher = \"torchrun\"\nargv = [\"train.py\"]\n", nil)
	if err != nil || result.Failure == nil || result.Exit != 1 || !strings.Contains(result.Failure.Reason, "RANK=3 ended with exit code 7") {
		t.Errorf("%+v, %v\n%s", result.Failure, err, said)
	}
}
