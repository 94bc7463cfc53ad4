package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// saverVariable makes the test binary save a checkpoint: "DIR STEP FINISHED DIVIDED".
const saverVariable = "CHECKPOINT_TEST_SAVES"

func TestMain(m *testing.M) {
	if what, ok := os.LookupEnv(saverVariable); ok {
		os.Exit(saver(what))
	}
	os.Exit(m.Run())
}

// saver saves and prunes on one thread, so that strace can count its system calls.
func saver(what string) int {
	runtime.LockOSThread()
	var dir string
	var step int
	var finished, inParts bool
	if _, err := fmt.Sscan(what, &dir, &step, &finished, &inParts); err != nil {
		panic(err)
	}
	m, files := state(step)
	m.Finished = finished
	save := func() error {
		_, err := Save(dir, m, files)
		return err
	}
	if inParts { // like the final checkpoint of a sharded run
		save = func() error {
			s, parts, err := divide(dir, m, files)
			if err != nil || s.Exists {
				return err
			}
			if parts, err = s.Consolidate(parts); err != nil {
				return err
			}
			_, err = s.Commit(parts)
			return err
		}
	}
	err := save()
	if err == nil {
		err = Prune(context.Background(), dir, m.Run, step, Retention{Newest: 2, Best: "loss"}, map[int]bool{})
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// runWithFault runs a save and injects what into its nth system call of that name. It returns
// whether the nth call happened, whether the save failed, and the output. Options of strace can select
// system calls.
func runWithFault(t *testing.T, call, what string, nth int, args string, options ...string) (came, failed bool, output string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "strace")
	argv := []string{"-f", "-qq", "-o", log, "-e", "trace=" + call + ",renameat2", "-e", fmt.Sprintf("inject=%s:%s:when=%d", call, what, nth)}
	if call == "renameat" {
		// Simulate a file system that cannot exchange two names.
		argv = append(argv, "-e", "inject=renameat2:error=EINVAL")
	}
	cmd := exec.CommandContext(t.Context(), "strace", append(append(argv, options...), os.Args[0])...)
	// One thread does all of the work. The runtime's own threads do no file I/O.
	cmd.Env = append(os.Environ(), saverVariable+"="+args, "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		came = came || strings.Contains(line, "+++ killed by SIGKILL +++") || strings.Contains(line, " "+call+"(") && strings.Contains(line, "(INJECTED)")
	}
	return came, exit != nil, string(out)
}

func needsStrace(t *testing.T) {
	t.Helper()
	if exec.Command("strace", "-o", "/dev/null", "true").Run() == nil {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatal("strace does not work here: run tests/setup.sh")
	}
	t.Skip("strace does not work here: run tests/setup.sh")
}

// calls are the system calls with which a save or a prune reads and changes the disk.
var calls = []string{"openat", "write", "fsync", "close", "mkdirat", "renameat", "renameat2", "unlinkat"}

// before are the states of the directory before a save of step 3.
var before = map[string]struct {
	prepare func(t *testing.T, dir string)
	inParts bool
}{
	"a new step":                {threeSteps, false},
	"a new step, in parts":      {threeSteps, true},
	"the only one, saved again": {func(t *testing.T, dir string) { save(t, dir, 3) }, false},
}

func threeSteps(t *testing.T, dir string) {
	for step := range 3 {
		save(t, dir, step)
	}
}

// TestKillAtEverySystemCallOfSave checks that a save that is killed at any of its system calls
// leaves either the old state or the complete new checkpoint, and does not block a later save.
func TestKillAtEverySystemCallOfSave(t *testing.T) {
	needsStrace(t)
	for name, was := range before {
		for _, call := range calls {
			t.Run(name+" "+call, func(t *testing.T) {
				t.Parallel()
				for nth := 1; ; nth++ {
					dir := filepath.Join(t.TempDir(), strconv.Itoa(nth))
					was.prepare(t, dir)
					came, _, _ := runWithFault(t, call, "signal=KILL", nth, fmt.Sprint(dir, " 3 true ", was.inParts))
					checkAfterFailure(t, dir, fmt.Sprintf("killed at %s %d", call, nth))
					if !came {
						break
					}
				}
			})
		}
	}
}

// checkAfterFailure checks what must be true after any failure of a save of step 3.
func checkAfterFailure(t *testing.T, dir, after string) {
	t.Helper()
	s, skipped, err := Load(t.Context(), dir)
	if err != nil || len(skipped) > 0 {
		t.Fatalf("%s: %v, passed over %v, with %v there", after, err, skipped, names(t, dir))
	}
	if s.Manifest.Step < 2 {
		t.Errorf("%s: the newest checkpoint is that of step %d; there are %v", after, s.Manifest.Step, names(t, dir))
	}
	s.Close()
	m, files := state(3)
	m.Finished = true
	if _, err := Save(dir, m, files); err != nil {
		t.Fatalf("%s: the next save: %v", after, err)
	}
	if err := cleanAt(dir); err != nil {
		t.Fatal(err)
	}
	if err := Prune(t.Context(), dir, "run", 3, Retention{Newest: 1}, map[int]bool{}); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); len(got) != 1 || got[0] != name(3) {
		t.Errorf("%s: after the next save there are %v", after, got)
	}
	if err := Verify(t.Context(), filepath.Join(dir, name(3))); err != nil {
		t.Errorf("%s: %v", after, err)
	}
}

// TestErrorAtEverySystemCallOfSave checks that the error of a save on a full or broken disk names
// the directory, and that existing checkpoints stay unchanged.
func TestErrorAtEverySystemCallOfSave(t *testing.T) {
	needsStrace(t)
	for name, was := range before {
		for call, faults := range map[string][]string{
			"openat":   {"EACCES", "ENOSPC"},
			"write":    {"ENOSPC", "EDQUOT", "EIO", "EFBIG"},
			"fsync":    {"EIO", "ENOSPC"},
			"mkdirat":  {"EROFS", "ENOSPC"},
			"renameat": {"EIO", "EROFS", "ENOSPC"},
			"unlinkat": {"EIO"},
		} {
			for _, fault := range faults {
				t.Run(name+" "+call+" "+fault, func(t *testing.T) {
					t.Parallel()
					for nth := 1; ; nth++ {
						dir := filepath.Join(t.TempDir(), strconv.Itoa(nth))
						was.prepare(t, dir)
						came, failed, output := runWithFault(t, call, "error="+fault, nth, fmt.Sprint(dir, " 3 true ", was.inParts))
						after := fmt.Sprintf("%s at %s %d", fault, call, nth)
						checkAfterFailure(t, dir, after)
						if !came {
							break
						}
						if failed && output != "" && !strings.Contains(output, dir) {
							t.Errorf("%s: %q does not name the place", after, output)
						}
					}
				})
			}
		}
	}
}

// TestFailedRemovalIsNoFailedSave checks that a save succeeds if the checkpoint that it replaces cannot
// be removed, and that the next save removes that checkpoint.
func TestFailedRemovalIsNoFailedSave(t *testing.T) {
	needsStrace(t)
	for nth := 1; ; nth++ {
		dir := filepath.Join(t.TempDir(), strconv.Itoa(nth))
		save(t, dir, 3)
		came, failed, output := runWithFault(t, "unlinkat", "error=EIO", nth, fmt.Sprint(dir, " 3 true false"))
		if failed {
			t.Errorf("EIO at unlinkat %d: %s", nth, output)
		}
		if nth == 1 && len(names(t, dir)) != 2 {
			t.Errorf("got %v, want the new checkpoint and the rest of the old one", names(t, dir))
		}
		save(t, dir, 4)
		if got := names(t, dir); !slices.Equal(got, []string{name(3), name(4)}) {
			t.Errorf("EIO at unlinkat %d: after the next save there are %v", nth, got)
		}
		if !came {
			break
		}
	}
}

// TestFailedSyncKeepsReplacedCheckpoint checks that a save that fails to sync removes no checkpoint:
// after a power loss, the disk may hold the directory as it was before.
func TestFailedSyncKeepsReplacedCheckpoint(t *testing.T) {
	needsStrace(t)
	for nth := 1; ; nth++ {
		dir := filepath.Join(t.TempDir(), strconv.Itoa(nth))
		save(t, dir, 3)
		came, failed, output := runWithFault(t, "fsync", "error=EIO", nth, fmt.Sprint(dir, " 3 true false"))
		if !came {
			if nth == 1 {
				t.Fatal("a save calls no fsync")
			}
			break
		}
		kept := slices.ContainsFunc(names(t, dir), func(name string) bool {
			m, err := readManifest(filepath.Join(dir, name))
			return err == nil && !m.Finished && Verify(t.Context(), filepath.Join(dir, name)) == nil
		})
		if !failed || !kept {
			t.Errorf("EIO at fsync %d: got %v, want the old checkpoint, and an error: %q", nth, names(t, dir), output)
		}
	}
}

// TestPruneKeepsUnreadable checks that no read error removes the best checkpoint.
func TestPruneKeepsUnreadable(t *testing.T) {
	needsStrace(t)
	for nth := 1; ; nth++ {
		dir := filepath.Join(t.TempDir(), strconv.Itoa(nth))
		m, files := state(0)
		m.Metrics["loss"] = 1
		best, err := Save(dir, m, files)
		if err != nil {
			t.Fatal(err)
		}
		save(t, dir, 1)
		save(t, dir, 2)
		came, failed, output := runWithFault(t, "openat", "error=EIO", nth, fmt.Sprint(dir, " 3 true false"), "-P", best)
		if want := []string{name(0), name(2), name(3)}; failed || !slices.Equal(names(t, dir), want) {
			t.Errorf("EIO at openat %d in %q: %v, %q, want %v", nth, best, names(t, dir), output, want)
		}
		if !came {
			if nth < 4 { // the manifest twice, and two files
				t.Fatalf("the save opened %d files of the best checkpoint", nth-1)
			}
			break
		}
	}
}
