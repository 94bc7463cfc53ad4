package launch

import (
	"errors"
	"maps"
	"os/exec"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// deaf is a standard error whose reader has closed its end.
type deaf struct{ took strings.Builder }

func (d *deaf) Write(p []byte) (int, error) {
	d.took.Write(p)
	return 0, errors.New("broken pipe")
}

// TestRemovedProgramIsNamed checks the message for a program that was removed while its job
// ran. Only the step daemon names the program; srun reports only the exit code.
func TestRemovedProgramIsNamed(t *testing.T) {
	for line, want := range map[string]string{
		"slurmstepd: error: execve(): /opt/ddpbatch: No such file or directory":    "/opt/ddpbatch: No such file or directory",
		"slurmstepd-n1: error: execve(): /opt/ddpbatch: No such file or directory": "/opt/ddpbatch: No such file or directory",
		"rank 0 says slurmstepd: error: execve(): x: No such file or directory":    "",
		"srun: error: n1: task 0: Exited with exit code 2":                         "",
	} {
		e := &taskEnds{out: &deaf{}, hosts: []string{"n1"}}
		if _, err := e.Write([]byte(line + "\nsrun: error: n1: task 0: Exited with exit code 2\n")); err != nil {
			t.Fatal(err)
		}
		if got := e.execError(); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// TestStepNamesTheProgramItCannotExecute checks that the error of a step names the program that a
// node could not execute, with a fix. Otherwise it has the exit code of srun.
func TestStepNamesTheProgramItCannotExecute(t *testing.T) {
	srun := exec.Command("/bin/sh", "-c", "exit 2")
	if err := srun.Run(); err == nil {
		t.Fatal("got exit code 0, want 2")
	}
	s := &stepRanks{srun: srun, ends: &taskEnds{out: &deaf{}, hosts: []string{"n1"}}}
	if err := s.wait(); err == nil || !strings.Contains(err.Error(), "exit status 2") {
		t.Errorf("without a line of slurmstepd: got %v", err)
	}
	if _, err := s.ends.Write([]byte("slurmstepd: error: execve(): /opt/ddpbatch: No such file or directory\n")); err != nil {
		t.Fatal(err)
	}
	err := s.wait()
	if err == nil || !strings.Contains(err.Error(), "execute /opt/ddpbatch: No such file or directory") || !strings.Contains(hints.Of(err), "on every node") {
		t.Errorf("got %v, hint %q", err, hints.Of(err))
	}
}

// TestTaskEnds checks that srun's output passes unchanged, and that reports about ranks of
// this step are recorded, regardless of how the output is split. Output of ranks, and reports
// about ranks that the launcher killed, must not be recorded.
func TestTaskEnds(t *testing.T) {
	const text = "srun: error: n9: task 1: Terminated\n" + // this host does not run task 1
		"rank 3 says srun: error: n2: task 3: Bus error\n" +
		"srun: error: n2: task 3: Killed\n" +
		"srun: error: n2: tasks 2-3,7: Exited with exit code 4\n" + // rank 3 is already recorded, and rank 7 does not exist
		"srun: error: n1: task 0: Out Of Memory\n"
	want := map[int]string{0: "its process was killed by the out-of-memory killer (SIGKILL)", 2: "its process ended with exit code 4",
		3: "its process was killed by SIGKILL"}
	long := strings.Repeat("x", maxLine) + "\n"
	for _, size := range []int{1, 7, len(long) + len(text)} {
		out := &deaf{}
		e := &taskEnds{out: out, hosts: []string{"n1", "n1", "n2", "n2"}}
		for rest := long + text; rest != ""; {
			n := min(size, len(rest))
			if wrote, err := e.Write([]byte(rest[:n])); wrote != n || err != nil {
				t.Fatal(wrote, err)
			}
			rest = rest[n:]
		}
		e.stopRecording()
		if _, err := e.Write([]byte("srun: error: n1: task 1: Killed\n")); err != nil {
			t.Fatal(err)
		}
		got := map[int]string{}
		for rank, end := range e.all() {
			got[rank] = end.text
		}
		if !maps.Equal(got, want) {
			t.Errorf("%d bytes at a time: %v, want %v", size, got, want)
		}
		if !strings.HasPrefix(out.took.String(), long+text) {
			t.Errorf("%d bytes at a time: other output", size)
		}
	}
}

// TestExitsAreTold checks that the end of a process is added to its rank and to the first
// failure, unless the rank reported more or the launcher killed it.
func TestExitsAreTold(t *testing.T) {
	lost := "rank 1 on n2 was lost at step 7 (training): " + rendezvous.Died
	for _, tt := range []struct {
		name   string
		end    processEnd
		state  rendezvous.State
		killed bool
		reason string
		exit   int
		signal string
		hinted bool
	}{
		{"a signal", killedBySignal(9), rendezvous.Lost, false, "rank 1 on n2 was lost at step 7 (training): its process was killed by SIGKILL", 137, "SIGKILL", false},
		{"no memory", oomKilled, rendezvous.Lost, false,
			"rank 1 on n2 was lost at step 7 (training): its process was killed by the out-of-memory killer (SIGKILL)", 137, "SIGKILL", true},
		{"an exit code", exitedWith(2), rendezvous.Lost, false, "rank 1 on n2 was lost at step 7 (training): its process ended with exit code 2", 2, "", false},
		{"by the launcher", killedBySignal(9), rendezvous.Lost, true, lost, 0, "", false},
		{"it has said why", exitedWith(2), rendezvous.Failed, false, lost, 0, "", false},
	} {
		o := rendezvous.Outcome{Ranks: []rendezvous.RankStatus{{}, {Rank: 1, Host: "n2", State: tt.state, Error: rendezvous.Died}},
			First: &rendezvous.Failure{Rank: 1, State: tt.state, Reason: lost}}
		told := o.First
		addProcessEnds(&o, map[int]processEnd{1: tt.end}, map[int]bool{1: tt.killed})
		f := o.First
		if f.Reason != tt.reason || f.Exit != tt.exit || f.Signal != tt.signal || (f.Hint() != "") != tt.hinted {
			t.Errorf("%s: %+v, want %q", tt.name, f, tt.reason)
		}
		if told.Reason != lost {
			t.Errorf("%s: what the ranks were told has changed to %q", tt.name, told.Reason)
		}
	}
}
