package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/tests/program"
)

func killed(t *testing.T, row row) {
	r := startEndless(t, "")
	began := time.Now()
	r.kill(1, syscall.SIGKILL)
	row.checkEnd(t, r, began)
	text, err := os.ReadFile(filepath.Join(r.dir, "failure.json"))
	if err != nil || !strings.Contains(string(text), "was lost at step") {
		t.Errorf("failure.json: %v\n%s", err, text)
	}
}

func crashed(t *testing.T, row row) {
	r := startEndless(t, "")
	began := time.Now()
	r.kill(1, syscall.SIGABRT)
	row.checkEnd(t, r, began)
}

// ofPrograms returns a job that runs a shell script on two ranks.
func ofPrograms(t *testing.T, script string) *training {
	t.Helper()
	r := newTraining(t, "name = \"small\"\n[command]\nargv = [\"/bin/sh\", \"job.sh\"]\n")
	r.write("job.sh", script)
	return r
}

func exitsEarly(t *testing.T, row row) {
	r := ofPrograms(t, "test $RANK = 0 || exit 0\nsleep 2\necho rank 0 is done\n")
	began := time.Now()
	r.start()
	row.checkEnd(t, r, began)
}

func fails(t *testing.T, row row) {
	r := ofPrograms(t, "test $RANK = 0 || exit 7\nsleep 600\n")
	began := time.Now()
	r.start()
	row.checkEnd(t, r, began)
}

// memoryGroup creates a cgroup with a limit of 32 MiB. It returns the file to which a process
// writes its ID to join.
func memoryGroup(t *testing.T) string {
	t.Helper()
	program.NeedRoot(t, "a control group")
	for _, version := range []struct{ root, limit string }{{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"}} {
		dir := filepath.Join(version.root, fmt.Sprintf("ddpbatch-faults-%d", os.Getpid()))
		if os.Mkdir(dir, 0o700) != nil {
			continue
		}
		t.Cleanup(func() {
			program.WaitUntil(t, "the control group to be removed", func() bool { return os.Remove(dir) == nil })
		})
		// The kernel creates this file only in a memory cgroup. Any other directory would not limit
		// the program, and it would use all of the machine's memory.
		if f, err := os.OpenFile(filepath.Join(dir, version.limit), os.O_WRONLY, 0); err == nil {
			_, err = f.WriteString("32M")
			if err = errors.Join(err, f.Close()); err == nil {
				return filepath.Join(dir, "cgroup.procs")
			}
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal("CI needs control groups of memory")
	}
	t.Skip("this machine lets no control group of memory be made")
	return ""
}

func outOfMemory(t *testing.T, row row) {
	processes := memoryGroup(t)
	// tail stores the line that it reads, and this line does not end.
	r := ofPrograms(t, "test $RANK = 0 && exec sleep 600\necho $$ >"+processes+"\nexec tail /dev/zero\n")
	began := time.Now()
	r.start()
	row.checkEnd(t, r, began)
}

func launcherKilled(t *testing.T, row row) {
	r := startEndless(t, "")
	began := time.Now()
	r.killLauncher()
	if took := time.Since(began); took > row.within {
		t.Errorf("it took %v", took)
	}
}
