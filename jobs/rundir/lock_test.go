package rundir

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What a launcher that is gone, or one on a node with locks of its own, has written into
// the lock: it holds until Slurm says that its job has ended, and on this machine as long
// as there is its process.
func TestLockOfAnotherNode(t *testing.T) {
	here, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
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
		locked bool // by the file system
		want   bool
	}{
		"its job has ended":                      {holder{"17", 1, "elsewhere", time.Time{}}, Claim{"18", ended(true, nil)}, true, true},
		"its job has ended, no locks":            {holder{"17", 1, "elsewhere", time.Time{}}, Claim{"18", ended(true, nil)}, false, true},
		"its job runs":                           {holder{"17", 1, "elsewhere", time.Time{}}, Claim{"18", ended(false, nil)}, true, false},
		"its job runs, no locks":                 {holder{"17", 1, "elsewhere", time.Time{}}, Claim{"", ended(false, nil)}, false, false},
		"Slurm does not answer":                  {holder{"17", 1, "elsewhere", time.Time{}}, Claim{"18", ended(true, errors.New("down"))}, true, true},
		"Slurm does not answer, no locks":        {holder{"17", 1, "elsewhere", time.Time{}}, Claim{"18", ended(true, errors.New("down"))}, false, false},
		"no Slurm":                               {holder{"17", 1, "elsewhere", time.Time{}}, Claim{}, true, true},
		"an attempt of this job":                 {holder{"17", 1, "elsewhere", time.Time{}}, Claim{"17", ended(false, nil)}, false, true},
		"no job":                                 {holder{"", 1, "elsewhere", time.Time{}}, Claim{"18", nil}, true, true},
		"no job, no locks":                       {holder{"", 1, "elsewhere", time.Time{}}, Claim{"18", nil}, false, false},
		"here, and the kernel gave the lock":     {holder{"17", os.Getpid(), here, time.Time{}}, Claim{"18", ended(false, nil)}, true, true},
		"here, no locks, the process is there":   {holder{"17", os.Getpid(), here, time.Time{}}, Claim{"18", ended(true, nil)}, false, false},
		"here, no locks, the process is no more": {holder{"17", gone.Process.Pid, here, time.Time{}}, Claim{"18", ended(false, nil)}, false, true},
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
				wants(t, err, `a launcher is at work there already: job 17, process 1 on host "elsewhere"`, "if it is surely gone, remove")
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
