package tests

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "ddpbatch-")
	if err == nil {
		binary = filepath.Join(dir, "ddpbatch")
		build := exec.Command("go", "build", "-trimpath", "-o", binary, "../cmd/ddpbatch")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		var out []byte
		if out, err = build.CombinedOutput(); err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the program:", err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// outcome is what a command printed and how it ended.
type outcome struct {
	stdout, stderr string
	code           int
}

func (o outcome) String() string {
	return fmt.Sprintf("exit code %d\n--- stdout\n%s--- stderr\n%s", o.code, o.stdout, o.stderr)
}

func finish(t *testing.T, cmd *exec.Cmd) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// here runs the program on this machine, in dir.
func here(t *testing.T, dir string, args ...string) outcome {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Dir = dir
	return finish(t, cmd)
}

// site is a cluster and a folder to submit from, as a user has it.
type site struct {
	*cluster.Cluster
	t    *testing.T
	home string
}

func newSite(t *testing.T) site {
	t.Helper()
	return site{cluster.ForTest(t, cluster.Options{}), t, t.TempDir()}
}

// write puts a file into the user's folder.
func (s site) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.home, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// ddpbatch runs the program on the login node.
func (s site) ddpbatch(args ...string) outcome {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Minute)
	defer cancel()
	cmd := s.Command(ctx, append([]string{binary}, args...)...)
	cmd.Dir = s.home
	return finish(s.t, cmd)
}

// submit submits a job file and returns the job's id.
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

// completed waits until a job is done and fails the test if it did not complete.
func (s site) completed(id string) {
	s.t.Helper()
	s.ends(id, "COMPLETED")
}

func (s site) ends(id string, states ...string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Minute)
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

// file reads a file of the user's folder.
func (s site) file(name string) string {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.home, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}

// waitForText waits until a file holds a text.
func waitForText(t *testing.T, path, text string) {
	t.Helper()
	var b []byte
	for range 600 {
		if b, _ = os.ReadFile(path); strings.Contains(string(b), text) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("%q does not come in %s:\n%s", text, path, b)
}

// figures reads a run's metrics.
func figures(t *testing.T, run string) []metrics.Record {
	t.Helper()
	f, err := os.Open(filepath.Join(run, "metrics.jsonl"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []metrics.Record
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var r metrics.Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		out = append(out, r)
	}
	return out
}

// lastAccuracy is the run's last measurement on held-out data.
func lastAccuracy(t *testing.T, run string) float64 {
	t.Helper()
	accuracy := -1.0
	for _, r := range figures(t, run) {
		if r.Kind == "eval" {
			accuracy = float64(*r.Accuracy)
		}
	}
	if accuracy < 0 {
		t.Fatalf("%s holds no measurement", run)
	}
	return accuracy
}

// weights are the digests of the files of the newest checkpoint, which must be
// the finished run's.
func weights(t *testing.T, run string) string {
	t.Helper()
	s, skipped, err := checkpoint.Load(filepath.Join(run, "checkpoints"))
	if err != nil || len(skipped) > 0 || !s.Manifest.Finished {
		t.Fatalf("%s: %v, passed over %v", run, err, skipped)
	}
	out := strconv.Itoa(s.Manifest.Step)
	for _, f := range s.Manifest.Files {
		out += " " + f.Name + "=" + f.SHA256
	}
	return out
}

func mustContain(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is missing in:\n%s", p, text)
		}
	}
}
