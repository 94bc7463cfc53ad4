package rundir

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLockOfAnotherNode checks a lock file that names a launcher that ended or that runs on a node
// with separate locks. The lock holds until Slurm reports the end of its job. On this host, it
// holds while the process exists.
func TestLockOfAnotherNode(t *testing.T) {
	here, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	start, err := processStart(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	current := thisPlace()
	rebooted, container := current, current
	rebooted.Boot, container.Namespace = "earlier", "pid:[1]"
	ended := func(answer bool, err error) func(string) (bool, error) {
		return func(job string) (bool, error) {
			if job != "17" {
				t.Errorf("asked for job %q", job)
			}
			return answer, err
		}
	}
	for name, c := range map[string]struct {
		holder holder
		claim  Claim
		locked bool // whether the file system grants the lock
		want   bool
	}{
		"its job has ended":                      {holder{Job: "17", PID: 1, Host: "elsewhere"}, Claim{Job: "18", Ended: ended(true, nil)}, true, true},
		"its job has ended, no locks":            {holder{Job: "17", PID: 1, Host: "elsewhere"}, Claim{Job: "18", Ended: ended(true, nil)}, false, true},
		"its job runs":                           {holder{Job: "17", PID: 1, Host: "elsewhere"}, Claim{Job: "18", Ended: ended(false, nil)}, true, false},
		"its job runs, no locks":                 {holder{Job: "17", PID: 1, Host: "elsewhere"}, Claim{Job: "", Ended: ended(false, nil)}, false, false},
		"Slurm does not answer":                  {holder{Job: "17", PID: 1, Host: "elsewhere"}, Claim{Job: "18", Ended: ended(true, errors.New("down"))}, true, true},
		"Slurm does not answer, no locks":        {holder{Job: "17", PID: 1, Host: "elsewhere"}, Claim{Job: "18", Ended: ended(true, errors.New("down"))}, false, false},
		"no Slurm":                               {holder{Job: "17", PID: 1, Host: "elsewhere"}, Claim{}, true, true},
		"an attempt of this job":                 {holder{Job: "17", PID: 1, Host: "elsewhere"}, Claim{Job: "17", Ended: ended(false, nil)}, false, true},
		"no job":                                 {holder{Job: "", PID: 1, Host: "elsewhere"}, Claim{Job: "18", Ended: nil}, true, true},
		"no job, no locks":                       {holder{Job: "", PID: 1, Host: "elsewhere"}, Claim{Job: "18", Ended: nil}, false, false},
		"here, and the kernel gave the lock":     {holder{Job: "17", PID: os.Getpid(), Host: here}, Claim{Job: "18", Ended: ended(false, nil)}, true, true},
		"here, no locks, the process is there":   {holder{Job: "17", PID: os.Getpid(), Host: here}, Claim{Job: "18", Ended: ended(true, nil)}, false, false},
		"here, no locks, the process is no more": {holder{Job: "17", PID: gone.Process.Pid, Host: here}, Claim{Job: "18", Ended: ended(false, nil)}, false, true},
		"here, no locks, the PID is used again":  {holder{Job: "17", PID: os.Getpid(), Host: here, Start: start + 1, place: current}, Claim{Job: "18", Ended: ended(false, nil)}, false, true},
		"here, no locks, the start matches":      {holder{Job: "17", PID: os.Getpid(), Host: here, Start: start, place: current}, Claim{Job: "18", Ended: ended(true, nil)}, false, false},
		"here, no locks, before a restart":       {holder{Job: "17", PID: os.Getpid(), Host: here, Start: start, place: rebooted}, Claim{Job: "18", Ended: ended(false, nil)}, false, true},
		"other container, no locks":              {holder{PID: gone.Process.Pid, Host: here, Start: 1, place: container}, Claim{}, false, false},
		"other container, its job runs":          {holder{Job: "17", PID: gone.Process.Pid, Host: here, Start: 1, place: container}, Claim{Ended: ended(false, nil)}, false, false},
		"other container, its job has ended":     {holder{Job: "17", PID: os.Getpid(), Host: here, Start: start, place: container}, Claim{Ended: ended(true, nil)}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.claim.over(c.holder, c.locked); got != c.want {
				t.Errorf("over: %v", got)
			}
			if !c.locked {
				return
			}
			d := mustCreate(t)
			text, err := json.Marshal(c.holder)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(d.Path, launchLockName)
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			unlock, err := d.Lock(c.claim)
			if !c.want {
				wants(t, err, `a launcher is already running there: job 17, process 1 on host "elsewhere"`, "if it is surely gone, remove")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), here) {
				t.Errorf("it says %s, %v", text, err)
			}
			unlock()
			if text, err := os.ReadFile(file); err != nil || len(text) > 0 {
				t.Errorf("after unlock it says %s, %v", text, err)
			}
		})
	}
}

// TestLockRejectsOtherFiles checks that a lock is not written to a file with another name. A lock
// overwrites the content of its file.
func TestLockRejectsOtherFiles(t *testing.T) {
	for name, exchange := range map[string]func(file, other string) error{
		"hard link": func(file, other string) error {
			return errors.Join(os.Remove(file), os.Link(other, file))
		},
		"file of another user": func(file, other string) error {
			return os.Chown(file, 65534, -1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := mustCreate(t)
			other := filepath.Join(t.TempDir(), "other")
			file := filepath.Join(d.Path, launchLockName)
			for _, path := range []string{file, other} {
				if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := exchange(file, other); err != nil {
				t.Fatal(err)
			}
			unlock, err := d.Lock(Claim{})
			if err == nil {
				unlock()
				t.Error("the lock was taken")
			}
			for _, path := range []string{file, other} {
				if text, err := os.ReadFile(path); err != nil || string(text) != "content" {
					t.Errorf("%q contains %q, %v", path, text, err)
				}
			}
		})
	}
}

// TestWaitLockSubmissionFails checks that an error other than a held lock does not delay the caller.
func TestWaitLockSubmissionFails(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	d := Dir{Path: filepath.Join(t.TempDir(), "missing")}
	if _, err := d.WaitLockSubmission(ctx, time.Minute); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
