package rundir

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestLauncherHoldsTheLock checks that the lock identifies a running launcher. Other holders of
// the lock are not launchers.
func TestLauncherHoldsTheLock(t *testing.T) {
	d := mustCreate(t)
	if l, ok := d.Launcher(); ok {
		t.Errorf("nobody has the lock, but there is %+v", l)
	}
	for name, tt := range map[string]struct {
		claim Claim
		want  bool
	}{
		"launcher":               {Claim{Launcher: true}, true},
		"submission or rank":     {Claim{}, false},
		"launcher of a job":      {Claim{Job: "18", Launcher: true}, false},
		"rank of a step of srun": {Claim{Job: "18"}, false},
	} {
		unlock, err := d.Lock(tt.claim)
		if err != nil {
			t.Fatal(err)
		}
		l, ok := d.Launcher()
		if ok != tt.want {
			t.Errorf("%s: got %v, want %v", name, ok, tt.want)
		}
		if ok && (l.PID != os.Getpid() || !l.IsHere() || !l.IsRunning()) {
			t.Errorf("%s: got %+v, here %v, running %v", name, l, l.IsHere(), l.IsRunning())
		}
		unlock()
		if _, ok := d.Launcher(); ok {
			t.Errorf("%s: it still has the lock", name)
		}
	}
}

// TestSignalReachesOnlyTheLauncher checks that a signal reaches only the launcher, never a process
// that reuses the PID of a killed launcher.
func TestSignalReachesOnlyTheLauncher(t *testing.T) {
	d := mustCreate(t)
	cmd := exec.CommandContext(t.Context(), "sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	start, err := processStart(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	launcher := func(start uint64) Launcher {
		t.Helper()
		text, err := json.Marshal(holder{PID: cmd.Process.Pid, Host: host, Time: time.Now(), Launcher: true, Start: start})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d.Path, launchLockName), text, 0o600); err != nil {
			t.Fatal(err)
		}
		l, ok := d.Launcher()
		if !ok {
			t.Fatal("the lock names no launcher")
		}
		return l
	}
	old := launcher(start - 1)
	if err := old.Signal(syscall.SIGTERM); !errors.Is(err, ErrNotRunning) || old.IsRunning() {
		t.Errorf("a launcher whose number another process has: %v, running %v", err, old.IsRunning())
	}
	l := launcher(start)
	if !l.IsRunning() {
		t.Error("the launcher runs, and is not found")
	}
	if err := l.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	state, err := cmd.Process.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if s := state.Sys().(syscall.WaitStatus); s.Signal() != syscall.SIGTERM {
		t.Errorf("it ended by %v, want SIGTERM of the second signal", state)
	}
	if err := l.Signal(syscall.SIGTERM); !errors.Is(err, ErrNotRunning) || l.IsRunning() {
		t.Errorf("a launcher that has ended: %v, running %v", err, l.IsRunning())
	}
}

// TestLauncherOfSameNameIsElsewhere checks that another machine or container with the name of
// this host is not treated as this host. Locks of earlier versions contain only the name.
func TestLauncherOfSameNameIsElsewhere(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	here := thisPlace()
	if here.Boot == "" || here.Namespace == "" {
		t.Fatalf("this place is unknown: %+v", here)
	}
	for _, tt := range []struct {
		name  string
		place place
		want  bool
	}{
		{"here", here, true},
		{"earlier version", place{}, true},
		{"another machine", place{Boot: "other", Namespace: here.Namespace}, false},
		{"another container", place{Boot: here.Boot, Namespace: "pid:[1]"}, false},
	} {
		d := Dir{Path: t.TempDir()}
		text, err := json.Marshal(holder{PID: 1, Host: host, Time: time.Now(), Launcher: true, place: tt.place})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d.Path, launchLockName), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if l, ok := d.Launcher(); !ok || l.IsHere() != tt.want {
			t.Errorf("%s: got %+v, here %v, want %v", tt.name, l, l.IsHere(), tt.want)
		}
	}
	d := Dir{Path: t.TempDir()}
	unlock, err := d.Lock(Claim{Launcher: true})
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if l, ok := d.Launcher(); !ok || l.place != here {
		t.Errorf("the lock has %+v, want %+v", l.place, here)
	}
}
