package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/tests/program"
)

func readOnly(t *testing.T, row row) {
	program.NeedRoot(t, "mounting a folder")
	r := startEndless(t, "")
	r.signal(syscall.SIGINT)
	if o := r.end(); o.Code != 3 {
		t.Fatal(o)
	}
	folder := filepath.Join(r.dir, "checkpoints")
	if err := syscall.Mount(folder, folder, "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(folder, 0); err != nil {
			t.Error(err)
		}
	})
	step := r.newest()
	r.start()
	r.waitForCheckpoint(step + 50)
	// The mount fails while a file there is open for writing.
	program.WaitUntil(t, "the folder to be read-only", func() bool {
		return syscall.Mount("", folder, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, "") == nil
	})
	began := time.Now()
	row.checkEnd(t, r, began)
	if o := program.Finish(t, exec.Command(binary, "checkpoint", "verify", r.dir)); o.Code != 0 || strings.Contains(o.Stdout, "damaged") {
		t.Errorf("afterwards: %v", o)
	}
}

// killedWhileSaving kills rank 0 during an async checkpoint, repeatedly until an incomplete
// checkpoint is left.
func killedWhileSaving(t *testing.T, row row) {
	r := newTraining(t, strings.Replace(fmt.Sprintf(spec, endless), "[checkpoint]\n", "[checkpoint]\nasync = true\n", 1))
	halves := func() []string {
		found, err := filepath.Glob(filepath.Join(r.dir, "checkpoints", ".saving-*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	for range 20 {
		r.start()
		r.waitForCheckpoint(max(r.newest(), 0) + 50)
		rank0, half := r.ranks()[0].pid, []string(nil)
		for end := time.Now().Add(time.Minute); len(half) == 0 && time.Now().Before(end); {
			half = halves()
		}
		if err := syscall.Kill(rank0, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if o := r.end(); o.Code != 4 {
			t.Fatal(o)
		}
		if len(halves()) > 0 {
			r.checkFinish()
			if left := halves(); len(left) > 0 {
				t.Errorf("%v are left", left)
			}
			return
		}
	}
	t.Error("no save was interrupted")
}

// quotaExceeded puts the checkpoints on a file system with a quota. It uses btrfs, because its
// quotas work with every kernel and also apply to root.
func quotaExceeded(t *testing.T, row row) {
	program.NeedRoot(t, "mounting a file system")
	r := startEndless(t, "")
	r.signal(syscall.SIGINT)
	if o := r.end(); o.Code != 3 {
		t.Fatal(o)
	}
	do := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	folder, disk, mounted := filepath.Join(r.dir, "checkpoints"), filepath.Join(r.home, "disk"), filepath.Join(r.home, "mounted")
	if err := os.Mkdir(mounted, 0o700); err != nil {
		t.Fatal(err)
	}
	do("truncate", "--size=128M", disk)
	do("mkfs.btrfs", "--quiet", disk)
	do("mount", "-o", "loop", disk, mounted)
	unmount := func(at string) {
		// Detach lazily: files that this process has read may still be mapped.
		if err := syscall.Unmount(at, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { unmount(mounted) })
	do("cp", "--archive", folder+"/.", mounted)
	if err := syscall.Mount(mounted, folder, "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unmount(folder) })
	do("btrfs", "quota", "enable", folder)
	step := r.newest()
	r.start()
	r.waitForCheckpoint(step + 50)
	do("btrfs", "qgroup", "limit", "64K", folder) // less than the current usage
	began := time.Now()
	row.checkEnd(t, r, began)
	if o := program.Finish(t, exec.Command(binary, "checkpoint", "verify", r.dir)); o.Code != 0 || strings.Contains(o.Stdout, "damaged") {
		t.Errorf("afterwards: %v", o)
	}
	do("btrfs", "quota", "disable", folder)
	r.checkFinish()
}

func twoRuns(t *testing.T, row row) {
	r := startEndless(t, "")
	second := *r
	second.stdout, second.stderr = new(buffer), new(buffer)
	began := time.Now()
	o := second.run()
	if took := time.Since(began); took > row.within || o.Code != row.exit {
		t.Errorf("after %v: %v", took, o)
	}
	row.checkMessage(t, o)
	r.waitForCheckpoint(r.newest() + 100)
	r.signal(syscall.SIGINT)
	if o := r.end(); o.Code != 3 {
		t.Error(o)
	}
	r.checkFinish()
}

func staleLock(t *testing.T, row row) {
	r := startEndless(t, "")
	r.killLauncher()
	if _, err := os.Stat(r.dir + "/lock"); err != nil {
		t.Fatal(err)
	}
	step := r.newest()
	r.start()
	r.waitForCheckpoint(step + 50)
	r.signal(syscall.SIGTERM)
	o := r.end()
	if o.Code != 3 {
		t.Error(o)
	}
	row.checkMessage(t, o)
}

// csvTable returns a table of 1,000 lines. Tables differ in one number.
func csvTable(one float64) string {
	var b strings.Builder
	b.WriteString("x,y\n")
	for i := range 1000 {
		fmt.Fprintf(&b, "%d,%d\n", i%10, i%10)
	}
	fmt.Fprintf(&b, "%g,5\n", one)
	return b.String()
}

const regression = `name = "small"
[train]
epochs = %d
batch = 16
[train.model]
kind = "linear"
[train.data]
kind = "csv"
path = "data.csv"
task = "regression"
[train.optimizer]
kind = "sgd"
lr = %s
[checkpoint]
every = "50 steps"
`

func dataChanged(t *testing.T, row row) {
	r := newTraining(t, fmt.Sprintf(regression, endless, "0.001"))
	r.write("data.csv", csvTable(5))
	r.start()
	r.waitForCheckpoint(50)
	r.signal(syscall.SIGINT)
	if o := r.end(); o.Code != 3 {
		t.Fatal(o)
	}
	step := r.newest()
	r.write("data.csv", csvTable(6))
	began := time.Now()
	r.start()
	row.checkEnd(t, r, began)
	if r.newest() != step {
		t.Errorf("checkpoints of step %d, then %d", step, r.newest())
	}
}

func notFinite(t *testing.T, row row) {
	r := newTraining(t, fmt.Sprintf(regression, endless, "1e6"))
	r.write("data.csv", csvTable(5))
	began := time.Now()
	r.start()
	row.checkEnd(t, r, began)
	if r.newest() != 0 {
		t.Errorf("a checkpoint of step %d", r.newest())
	}
}
