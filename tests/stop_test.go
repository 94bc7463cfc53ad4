package tests

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/atomicfile"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

var allStops = flag.Bool("stops", false, "stop programs with every combination of signal and launcher (default: a selection)")

// stopLaunchers lists the ways to start save_on_signal.py, with the exit code of a run that SIGTERM
// from Slurm stops. SIGTERM also reaches a shell, which does not handle it.
var stopLaunchers = []struct {
	name, command string
	exit          int
}{
	{"rank", `argv = ["/usr/bin/python3", "save.py", %q]`, 3},
	// ddpbatch removes the interpreter.
	{"torchrun", "launcher = \"torchrun\"\n" + `argv = ["python3", "save.py", %q]`, 3},
	{"wrapper", `argv = ["/bin/bash", "-c", "/usr/bin/python3 save.py $0; code=$?; echo wrapper: $code; exit $code", %q]`, 143},
	{"accelerate", "launcher = \"accelerate\"\n" + `argv = ["save.py", %q]`, 3},
	{"deepspeed", "launcher = \"deepspeed\"\n" + `argv = ["--no_local_rank", "save.py", %q]`, 3},
	{"lightning", "launcher = \"lightning\"\n" + `argv = ["save.py", %q]`, 3},
}

// stopSelection lists the combinations of command.stop_signal and launcher to test by default.
var stopSelection = []string{"USR2 rank", "USR2 torchrun", "USR2 wrapper", "TERM lightning", "INT accelerate", "HUP deepspeed"}

// writeStoppableJob writes a job file with two ranks on each of two nodes. It returns the name of
// the run. Debian's torchrun 1.13 cannot parse its own defaults of --redirects and --tee.
func (s site) writeStoppableJob(t *testing.T, name, command, slurm string, requeue int) string {
	t.Helper()
	text, err := os.ReadFile("testdata/save_on_signal.py")
	if err != nil {
		t.Fatal(err)
	}
	// Programs of parallel tests read the file meanwhile.
	if err := atomicfile.Write(filepath.Join(s.home, "save.py"), atomicfile.Options{NoSync: true}, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s.write(name+".toml", fmt.Sprintf("name = %q\n[slurm]\nnodes = 2\ntasks_per_node = 2\n%s\n[setup]\nenv = { PATH = \"/usr/bin:/bin\", PET_REDIRECTS = \"9:1\", PET_TEE = \"9:1\" }\n[restart]\nrequeue = %d\n[command]\n%s\n",
		name, slurm, requeue, fmt.Sprintf(command, name)))
	return name
}

// waitForCounting waits until all four ranks of a run count.
func (s site) waitForCounting(t *testing.T, name string) {
	t.Helper()
	waitUntil(t, "all ranks of "+name+" to count", func() bool {
		found, _ := filepath.Glob(filepath.Join(s.home, name+"-counted-*.txt"))
		return len(found) == 4
	})
}

// checkResumed checks that each rank saved when it was stopped, resumed, and counted every
// number once.
func (s site) checkResumed(t *testing.T, name string, logs string) {
	t.Helper()
	for rank := range 4 {
		want, got := "", s.file(fmt.Sprintf("%s-counted-%d.txt", name, rank))
		n := strings.Count(got, "\n")
		for i := range n {
			want += fmt.Sprintf("%d\n", i+1)
		}
		if got != want {
			t.Errorf("%s: rank %d counted %q", name, rank, got)
		}
		mustContain(t, logs, fmt.Sprintf("rank %d: from %d\n", rank, n-20), fmt.Sprintf("rank %d: done at %d\n", rank, n))
	}
}

// checkChildren checks that no signal has reached the child processes of the ranks. When one worker
// has ended, torchrun of PyTorch 2 itself sends SIGTERM to the process groups of the others.
func (s site) checkChildren(t *testing.T, name, launcher string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.home, name+"-child-*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if text := s.file(filepath.Base(file)); launcher != "torchrun" || text != "SIGTERM\n" {
			t.Errorf("a signal reached a process below one that handles it: %s: %q", file, text)
		}
	}
}

// attempts returns the ends of a run's attempts.
func (s site) attempts(t *testing.T, name string) (ends []rundir.AttemptEvent) {
	t.Helper()
	all, err := rundir.Dir{Path: s.run(name)}.ReadAttempts()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(e rundir.AttemptEvent) bool { return e.Event != rundir.AttemptEnded })
}

// TestStopSignalReachesTheProgram checks that the stop signal reaches only the processes that
// handle it, that they save, and that the run resumes.
func TestStopSignalReachesTheProgram(t *testing.T) {
	s := newSite(t, cluster.Options{CPUs: 16})
	const slurm = "time = \"00:10:00\"\nsignal_before_end = \"60s\""
	for _, l := range stopLaunchers[:3] {
		t.Run("USR1 "+l.name, func(t *testing.T) {
			t.Parallel()
			s := s.in(t)
			name := s.writeStoppableJob(t, "usr1-"+l.name, l.command, slurm, 1)
			id := s.submit(name + ".toml")
			s.waitForCounting(t, name)
			if o := finish(t, s.Command(t.Context(), "scancel", "--batch", "--signal=USR1", id)); o.code != 0 {
				t.Fatal(o)
			}
			waitForText(t, filepath.Join(s.run(name), "slurm-"+id+".out"), "requeued as job "+id+" (1 of 1)")
			startRequeued(t, s.Cluster, id)
			s.completed(id)
			s.checkRequeuedOnce(id)
			log := s.log(name, id)
			s.checkResumed(t, name, log)
			if n := strings.Count(log, ": SIGUSR1 at "); n != 4 {
				t.Errorf("%d ranks were stopped by SIGUSR1:\n%s", n, log)
			}
			s.checkChildren(t, name, l.name)
			if ends := s.attempts(t, name); len(ends) == 0 || ends[0].Exit != 3 || ends[0].NoProgress {
				t.Errorf("attempts ended with %+v, want exit code 3 and progress", ends)
			}
			s.checkNoProgress(t, name, 0)
		})
		t.Run("TERM "+l.name, func(t *testing.T) {
			t.Parallel()
			s := s.in(t)
			name := s.writeStoppableJob(t, "term-"+l.name, l.command, slurm, 1)
			if l.name == "wrapper" {
				// ddpbatch tells all ranks to stop. On another node, a rank could otherwise end before Slurm
				// signals its shell.
				s.write(name+".toml", strings.Replace(s.file(name+".toml"), "env = { ", "env = { OUTLIVE_PARENT = \"1\", ", 1))
			}
			first := s.submit(name + ".toml")
			s.waitForCounting(t, name)
			if o := finish(t, s.Command(t.Context(), "scancel", first)); o.code != 0 {
				t.Fatal(o)
			}
			s.ends(first, "CANCELLED")
			waitUntil(t, "the end of the attempt", func() bool { return len(s.attempts(t, name)) == 1 })
			if e := s.attempts(t, name)[0]; e.Exit != l.exit || e.NoProgress {
				t.Errorf("the attempt ended with %+v, want exit code %d and progress", e, l.exit)
			}
			second := s.submit(name + ".toml")
			s.completed(second)
			log := s.log(name, first)
			if n := strings.Count(log, ": SIGTERM at "); n != 4 {
				t.Errorf("%d ranks were stopped by SIGTERM:\n%s", n, log)
			}
			s.checkResumed(t, name, s.log(name, second))
		})
	}
	for _, sent := range []string{"USR1", "USR2", "TERM", "INT", "HUP"} {
		for _, l := range stopLaunchers {
			if !*allStops && !slices.Contains(stopSelection, sent+" "+l.name) {
				continue
			}
			t.Run("stop_signal "+sent+" "+l.name, func(t *testing.T) {
				t.Parallel()
				s := s.in(t)
				command := fmt.Sprintf("stop_signal = %q\nstop_grace = \"5m\"\nstop_codes = [42]\n", sent) + l.command
				name := s.writeStoppableJob(t, "key-"+strings.ToLower(sent)+"-"+l.name, command, slurm, 1)
				save := strings.NewReplacer("signal.SIGUSR1", "signal.SIG"+sent, "sys.exit(3 if", "sys.exit(42 if").Replace(s.file("save.py"))
				s.write(name+".py", save)
				s.write(name+".toml", strings.ReplaceAll(s.file(name+".toml"), "save.py", name+".py"))
				id := s.submit(name + ".toml")
				s.waitForCounting(t, name)
				if o := finish(t, s.Command(t.Context(), "scancel", "--batch", "--signal=USR1", id)); o.code != 0 {
					t.Fatal(o)
				}
				waitForText(t, filepath.Join(s.run(name), "slurm-"+id+".out"), "requeued as job "+id+" (1 of 1)")
				startRequeued(t, s.Cluster, id)
				s.completed(id)
				log := s.log(name, id)
				s.checkResumed(t, name, log)
				if n := strings.Count(log, ": SIG"+sent+" at "); n != 4 {
					t.Errorf("%d ranks were stopped by SIG%s:\n%s", n, sent, log)
				}
				if ends := s.attempts(t, name); len(ends) == 0 || ends[0].Exit != 3 || !ends[0].Stopped || ends[0].NoProgress || !ends[0].ReportedSave {
					t.Errorf("attempts ended with %+v, want exit code 3 of a stopped attempt that saved", ends)
				}
			})
		}
	}
	t.Run("no handler", func(t *testing.T) {
		t.Parallel()
		s := s.in(t)
		name := s.writeStoppableJob(t, "deaf", `argv = ["/bin/sh", "-c", "echo $0 $RANK; test -e again || exec sleep 600"]`+" # %q", slurm, 1)
		id := s.submit(name + ".toml")
		log := filepath.Join(s.run(name), "slurm-"+id+".out")
		for rank := range 4 {
			waitForText(t, log, fmt.Sprintf("/bin/sh %d\n", rank))
		}
		s.write("again", "")
		if o := finish(t, s.Command(t.Context(), "scancel", "--batch", "--signal=USR1", id)); o.code != 0 {
			t.Fatal(o)
		}
		waitForText(t, log, "requeued as job "+id+" (1 of 1)")
		startRequeued(t, s.Cluster, id)
		s.completed(id)
		mustContain(t, s.log(name, id), "no progress")
		s.checkNoProgress(t, name, 1)
	})
}

// checkNoProgress checks the number of requeues without progress that status reports.
func (s site) checkNoProgress(t *testing.T, name string, want int) {
	t.Helper()
	o := s.ddpbatch("status", "runs/"+name, "--json")
	var got []struct {
		NoProgress int `json:"requeues_without_progress"`
	}
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || len(got) != 1 || got[0].NoProgress != want {
		t.Errorf("%s: %+v, want %d requeues without progress; %v\n%v", name, got, want, err, o)
	}
	o = s.ddpbatch("status", "runs/"+name)
	if has := strings.Contains(o.stdout, fmt.Sprintf("%d requeue without progress", want)); has != (want > 0) {
		t.Errorf("%s: want %d requeues without progress: %v", name, want, o)
	}
}

// in returns the site for a parallel subtest.
func (s site) in(t *testing.T) site {
	s.t = t
	return s
}

// TestTorchrunAtItsTimeLimit checks that a run with torchrun saves near the time limit, is
// requeued, and resumes.
func TestTorchrunAtItsTimeLimit(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 2})
	// On a slow machine torchrun may not have started a worker by then. Such a job is also requeued.
	name := s.writeStoppableJob(t, "limit", stopLaunchers[1].command, "time = \"00:01:00\"\nsignal_before_end = \"30s\"", 9)
	id := s.submit(name + ".toml")
	log := filepath.Join(s.run(name), "slurm-"+id+".out")
	waitForText(t, log, ": SIGUSR1 at ")
	requeues := strings.Count(s.log(name, id), "requeued as job")
	waitForText(t, log, fmt.Sprintf("requeued as job %s (%d of 9)", id, requeues+1))
	extendTimeLimit(t, s.Cluster, id)
	startRequeued(t, s.Cluster, id)
	s.completed(id)
	s.checkResumed(t, name, s.log(name, id))
}

// TestTorchrunNodeThatFailsIsNamed checks that the error names the node whose worker fails first,
// even if another torchrun exits first.
func TestTorchrunNodeThatFailsIsNamed(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 2})
	// ddpbatch holds a file descriptor for each worker that it has found (pidfd_open(2)).
	s.write("fail.py", `import glob, os, sys, time

def is_watched():
    for path in glob.glob("/proc/[0-9]*/fdinfo/*"):
        try:
            with open(path) as f:
                if "Pid:\t%d\n" % os.getpid() in f.read():
                    return True
        except OSError:
            pass
    return False

end = time.time() + 120
while not is_watched() and time.time() < end:
    time.sleep(0.2)
if os.environ["RANK"] == "1":
    open("failed", "w").close()
    sys.exit(9)
while not os.path.exists("failed"):
    time.sleep(0.1)
time.sleep(10)
sys.exit(1) # as a rank that has lost its connection
`)
	s.write("job.toml", `name = "fail"
[slurm]
nodes = 2
time = "00:10:00"
[setup]
env = { PATH = "/usr/bin:/bin", PET_REDIRECTS = "9:1", PET_TEE = "9:1", PET_MONITOR_INTERVAL = "8" }
[command]
launcher = "torchrun"
argv = ["fail.py"]
`)
	id := s.submit("job.toml")
	s.ends(id, "FAILED")
	mustContain(t, s.log("fail", id), "rank 1 on n2: torchrun", "RANK=1 ended with exit code 9")
	var failure struct {
		First struct {
			Rank int
			Host string
		}
	}
	text, err := os.ReadFile(filepath.Join(s.run("fail"), "failure.json"))
	if err = errors.Join(err, json.Unmarshal(text, &failure)); err != nil || failure.First.Rank != 1 || failure.First.Host != "n2" {
		t.Errorf("got %+v, %v, want rank 1 on n2", failure, err)
	}
}
