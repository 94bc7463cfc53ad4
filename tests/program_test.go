package tests

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
	"github.com/ddpbatch/ddpbatch/tests/program"
)

// binary is the path of the program under test, which is built once.
var binary string

var (
	figures       = program.Figures
	weights       = program.Weights
	processesWith = program.Processes
	waitUntil     = program.WaitUntil
)

func TestMain(m *testing.M) { program.Main(m, "../cmd/ddpbatch", &binary) }

// An outcome is the output and the exit code of a command.
type outcome struct {
	stdout, stderr string
	code           int
}

func (o outcome) String() string {
	return program.Outcome{Stdout: o.stdout, Stderr: o.stderr, Code: o.code}.String()
}

func finish(t *testing.T, cmd *exec.Cmd) outcome {
	t.Helper()
	o := program.Finish(t, cmd)
	return outcome{o.Stdout, o.Stderr, o.Code}
}

// here runs the program on this machine, in dir.
func here(t *testing.T, dir string, args ...string) outcome {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Dir = dir
	return finish(t, cmd)
}

// A site is a cluster and a user's directory to submit jobs from.
type site struct {
	*cluster.Cluster
	t       *testing.T
	home    string
	program string   // path of the user's ddpbatch; the same binary for all tests
	environ []string // additional variables of the user's shell
}

// newSite starts a cluster for one test. Such a test mostly waits for timers of Slurm and of the
// program, so it runs in parallel with other tests. The flag -parallel of go test sets how many.
func newSite(t *testing.T, o cluster.Options) site {
	t.Helper()
	t.Parallel()
	return site{Cluster: cluster.ForTest(t, o), t: t, home: t.TempDir(), program: binary}
}

// write writes a file in the user's directory.
func (s site) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.home, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// ddpbatch runs the program on the login node.
func (s site) ddpbatch(args ...string) outcome {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Minute)
	defer cancel()
	cmd := s.Command(ctx, append([]string{s.program}, args...)...)
	cmd.Dir, cmd.Env = s.home, append(cmd.Env, s.environ...)
	return finish(s.t, cmd)
}

// submit submits a job file and returns the job ID.
func (s site) submit(args ...string) string {
	s.t.Helper()
	o := s.ddpbatch(append([]string{"submit", "--json"}, args...)...)
	var got struct {
		JobID string `json:"job_id"`
	}
	if err := json.Unmarshal([]byte(o.stdout), &got); o.code != 0 || err != nil || got.JobID == "" {
		s.t.Fatalf("submit %v: %v, %v", args, o, err)
	}
	return got.JobID
}

// testAndSubmit submits a job file that sbatch --test-only must accept before, and returns the job ID.
func (s site) testAndSubmit(file string) string {
	s.t.Helper()
	if o := s.ddpbatch("submit", file, "--test-only"); o.code != 0 {
		s.t.Fatal(o)
	}
	return s.submit(file)
}

// completed waits until a job is done. It fails the test if the job did not complete.
func (s site) completed(id string) {
	s.t.Helper()
	s.ends(id, "COMPLETED")
}

func (s site) ends(id string, states ...string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Minute)
	defer cancel()
	if state, err := s.WaitJob(ctx, id, states...); err != nil {
		s.t.Fatalf("job %s: %s, %v", id, state, err)
	}
}

func (s site) run(name string) string { return filepath.Join(s.home, "runs", name) }

func (s site) log(name, id string) string {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.run(name), "slurm-"+id+".out"))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}

// file returns the contents of a file in the user's directory.
func (s site) file(name string) string {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.home, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}

// hold stops the ranks of a run, so that the next action of the test takes place in the middle of
// the run, even if the run is fast. It returns a function that lets the ranks continue. If the run
// is over, hold does nothing.
func (s site) hold(name string) (resume func()) {
	s.t.Helper()
	var ranks []int
	for _, p := range processesWith(s.t, "ddpbatch run --run-dir "+s.run(name)) {
		if exe, _ := os.Readlink("/proc/" + p + "/exe"); exe != binary {
			continue // srun, whose command line contains the same words
		}
		if pid, err := strconv.Atoi(p); err == nil && syscall.Kill(pid, syscall.SIGSTOP) == nil {
			ranks = append(ranks, pid)
		}
	}
	return func() {
		for _, pid := range ranks {
			_ = syscall.Kill(pid, syscall.SIGCONT) // Slurm may also have resumed and killed it
		}
	}
}

// waitForText waits until a file contains a text.
func waitForText(t *testing.T, path, text string) {
	t.Helper()
	var b []byte
	for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if b, _ = os.ReadFile(path); strings.Contains(string(b), text) {
			return
		}
	}
	t.Fatalf("timeout waiting for %q in %s:\n%s", text, path, b)
}

// lastAccuracy returns the accuracy of the run's last evaluation.
func lastAccuracy(t *testing.T, run string) float64 {
	t.Helper()
	accuracy := -1.0
	for _, r := range figures(t, run) {
		if r.Kind == "eval" {
			accuracy = float64(*r.Accuracy)
		}
	}
	if accuracy < 0 {
		t.Fatalf("%s has no evaluation", run)
	}
	return accuracy
}

// writeExecutable writes a program. No other goroutine starts a process in the meantime: it would hold
// the file open for a moment, and the program could not start ("text file busy").
func writeExecutable(t *testing.T, path string, text []byte) {
	t.Helper()
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, text, 0o700)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
}

func mustContain(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is missing in:\n%s", p, text)
		}
	}
}
