package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/tests/program"
)

// binary is the path of the program under test, which is built once.
var binary string

func TestMain(m *testing.M) { program.Main(m, "../../cmd/ddpbatch", &binary) }

// spec is a small training run with 29 steps per epoch on two ranks.
const spec = "name = \"small\"\n" + program.Small

// stepsPerEpoch is the number of steps per epoch of spec on two ranks.
const stepsPerEpoch = program.SmallSteps

// endless is more epochs than any test waits for.
const endless = 1000000

// A buffer collects the output of several processes. It is safe for concurrent use.
type buffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// A training is a run with two ranks on this machine.
type training struct {
	t              *testing.T
	home, dir      string // the job file's directory and the run directory
	launcher       *exec.Cmd
	stdout, stderr *buffer
}

// newTraining writes the job file and starts no process.
func newTraining(t *testing.T, spec string) *training {
	t.Helper()
	home := t.TempDir()
	r := &training{t: t, home: home, dir: filepath.Join(home, "runs", "small"), stdout: new(buffer), stderr: new(buffer)}
	r.write("job.toml", spec)
	return r
}

func (r *training) write(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.home, name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// start starts the launcher. The output of earlier launchers is kept.
func (r *training) start() {
	r.t.Helper()
	r.launcher = exec.Command(binary, "launch", "job.toml", "-n", "2")
	r.launcher.Dir, r.launcher.Stdout, r.launcher.Stderr = r.home, r.stdout, r.stderr
	r.launcher.WaitDelay = 20 * time.Second // for ranks that survive the launcher
	if err := r.launcher.Start(); err != nil {
		r.t.Fatal(err)
	}
	launcher := r.launcher
	r.t.Cleanup(func() { _ = launcher.Process.Kill() })
}

// startEndless starts an endless training and returns after its checkpoint of step 50.
func startEndless(t *testing.T, more string) *training {
	t.Helper()
	r := newTraining(t, fmt.Sprintf(spec, endless)+more)
	r.start()
	r.waitForCheckpoint(50)
	return r
}

// end waits for the launcher to exit.
func (r *training) end() program.Outcome {
	r.t.Helper()
	var exit *exec.ExitError
	if err := r.launcher.Wait(); err != nil && !errors.As(err, &exit) {
		r.t.Fatal(err)
	}
	return program.Outcome{Stdout: r.stdout.String(), Stderr: r.stderr.String(), Code: r.launcher.ProcessState.ExitCode()}
}

// run starts the launcher and waits for it to exit.
func (r *training) run() program.Outcome {
	r.t.Helper()
	r.start()
	return r.end()
}

// signal sends a signal to the launcher.
func (r *training) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.launcher.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// newest returns the step of the newest checkpoint, or -1 if there is no checkpoint.
func (r *training) newest() int {
	r.t.Helper()
	found, err := filepath.Glob(filepath.Join(r.dir, "checkpoints", "step-*"))
	if err != nil {
		r.t.Fatal(err)
	}
	step := -1
	for _, f := range found {
		if n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(f), "step-")); err == nil {
			step = max(step, n)
		}
	}
	return step
}

// waitForCheckpoint waits for a checkpoint of the step or a later one.
func (r *training) waitForCheckpoint(step int) {
	r.t.Helper()
	program.WaitUntil(r.t, fmt.Sprintf("a checkpoint of step %d or later", step), func() bool { return r.newest() >= step })
}

// A rank is the process of a rank.
type rank struct {
	pid     int
	environ map[string]string
}

// ranks returns the running processes of ranks, by rank.
func (r *training) ranks() map[int]rank {
	r.t.Helper()
	out := map[int]rank{}
	for _, text := range program.Processes(r.t, "--run-dir "+r.dir) {
		pid, err := strconv.Atoi(text)
		if err != nil {
			r.t.Fatal(err)
		}
		b, _ := os.ReadFile(filepath.Join("/proc", text, "environ")) // the process may be gone
		environ := map[string]string{}
		for _, v := range strings.Split(string(b), "\x00") {
			name, value, _ := strings.Cut(v, "=")
			environ[name] = value
		}
		if n, err := strconv.Atoi(environ["DDPBATCH_LOCAL_RANK"]); err == nil {
			out[n] = rank{pid, environ}
		}
	}
	return out
}

// kill sends a signal to a rank, which must be running.
func (r *training) kill(n int, s syscall.Signal) {
	r.t.Helper()
	p, ok := r.ranks()[n]
	if !ok {
		r.t.Fatalf("there is no rank %d", n)
	}
	if err := syscall.Kill(p.pid, s); err != nil {
		r.t.Fatal(err)
	}
}

// waitForExit waits until no process of the run is left.
func (r *training) waitForExit() {
	r.t.Helper()
	program.WaitUntil(r.t, "the ranks to be gone", func() bool { return len(program.Processes(r.t, r.dir)) == 0 })
}

// checkFinish resumes a stopped training for one or two more epochs. It compares the weights with
// those of an undisturbed run of the same number of epochs.
func (r *training) checkFinish() {
	r.t.Helper()
	epochs := r.newest()/stepsPerEpoch + 2
	text := strings.Replace(r.file("job.toml"), fmt.Sprintf("epochs = %d", endless), fmt.Sprintf("epochs = %d", epochs), 1)
	r.write("job.toml", text)
	if o := r.run(); o.Code != 0 {
		r.t.Fatal(o)
	}
	whole := newTraining(r.t, text)
	if o := whole.run(); o.Code != 0 {
		r.t.Fatal(o)
	}
	got, want := program.Weights(r.t, r.dir), program.Weights(r.t, whole.dir)
	if got != want || !strings.HasPrefix(got, strconv.Itoa(epochs*stepsPerEpoch)+" ") {
		r.t.Errorf("after %d epochs:\n%s\nundisturbed:\n%s", epochs, got, want)
	}
	r.t.Logf("%d steps, the same weights", epochs*stepsPerEpoch)
}

func (r *training) file(name string) string {
	r.t.Helper()
	b, err := os.ReadFile(filepath.Join(r.home, name))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}
