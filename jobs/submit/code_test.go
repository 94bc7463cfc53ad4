package submit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

// commit makes the user's directory a work tree with one commit and returns the commit hash.
func (c *cluster) commit() string {
	c.t.Helper()
	git := func(args ...string) string {
		cmd := exec.CommandContext(c.t.Context(), "git", append([]string{"-C", c.base, "-c", "user.name=Ada", "-c", "user.email=ada@example.org"}, args...)...)
		cmd.Env = append(c.environ(), "GIT_CONFIG_NOSYSTEM=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			c.t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "--quiet", "--initial-branch=trunk")
	git("add", ".")
	git("commit", "--quiet", "--message=first")
	git("remote", "add", "origin", "https://ada:canary@example.org/code.git")
	return git("rev-parse", "HEAD")
}

func holds(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Stat(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return err == nil
}

// TestSnapshot checks that a submission copies the code and records its commit.
func TestSnapshot(t *testing.T) {
	c := newCluster(t)
	c.write(c.base, "train.py", "print(1)\n")
	c.write(c.base, "runs/notes.txt", "mine\n")
	c.write(c.base, ".gitignore", "*.log\n")
	commit := c.commit()
	c.write(c.base, "debug.log", "big\n")
	c.write(c.base, "train.py", "print(2)\n")
	c.submitted(c.request(job("other", "", "")))
	c.submitted(c.request(job("x", "", "snapshot = true")))

	record := c.record(c.dir("x"))
	code := record.Last().Code
	if code == nil || code.Commit != commit || code.Branch != "trunk" || code.Remote != "https://example.org/code.git" || !code.Dirty ||
		code.Folder != c.base || code.Snapshot != c.dir("x").Code(record.Last().ID) || code.SHA256 == "" || code.Files != 3 || code.Bytes == 0 {
		t.Fatalf("recorded: %+v", code)
	}
	text, err := os.ReadFile(filepath.Join(code.Snapshot, "train.py"))
	if err != nil || string(text) != "print(2)\n" {
		t.Errorf("%q, %v", text, err)
	}
	// User files next to the runs are in the snapshot. It excludes runs and files
	// that git ignores.
	for name, want := range map[string]bool{"runs/notes.txt": true, "runs/other": false, "runs/x": false, "debug.log": false} {
		if got := holds(t, filepath.Join(code.Snapshot, name)); got != want {
			t.Errorf("the snapshot has %s: %v", name, got)
		}
	}
}

// TestSnapshotBesideTheCode checks that a run directory inside the code directory does not exclude
// the code next to it from the snapshot.
func TestSnapshotBesideTheCode(t *testing.T) {
	c := newCluster(t)
	c.write(c.base, "src/model.py", "pass\n")
	req := c.request(job("x", "", "snapshot = true"))
	req.Dir = filepath.Join(c.base, "src", "run1")
	r := c.submitted(req)
	code := c.record(r.Dir).Last().Code
	if !holds(t, filepath.Join(code.Snapshot, "src/model.py")) || holds(t, filepath.Join(code.Snapshot, "src/run1")) {
		t.Errorf("%+v", code)
	}
}

// TestProvenanceWithoutSnapshot checks that the record has git's information without a snapshot,
// and that nothing is copied.
func TestProvenanceWithoutSnapshot(t *testing.T) {
	c := newCluster(t)
	c.write(c.base, "train.py", "print(1)\n")
	commit := c.commit()
	c.submitted(c.request(job("x", "", "")))
	code := c.record(c.dir("x")).Last().Code
	if code == nil || code.Commit != commit || code.Snapshot != "" || code.SHA256 != "" || holds(t, filepath.Join(c.dir("x").Path, "code")) {
		t.Errorf("recorded: %+v", code)
	}

	// Without git, there is no information, and this is not an error.
	c = newCluster(t)
	c.submitted(c.request(job("x", "", "")))
	if code := c.record(c.dir("x")).Last().Code; code == nil || code.Folder != c.base || code.Commit != "" {
		t.Errorf("recorded: %+v", code)
	}
}

// TestRefusedSnapshot checks that a submission that created no job leaves no copy of the code
// behind.
func TestRefusedSnapshot(t *testing.T) {
	c := newCluster(t)
	c.write(c.base, "train.py", "print(1)\n")
	c.sbatch(`echo "sbatch: error: Batch job submission failed: Invalid qos specification" >&2; exit 1`)
	_, err := c.submit(c.request(job("x", "", "snapshot = true")))
	mustFail(t, err, "Invalid qos")
	left, err := filepath.Glob(filepath.Join(c.dir("x").Path, "code", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%q, %v", left, err)
	}
	_, err = c.submit(c.request(job("x", "", "snapshot = true\nworkdir = \"nowhere\"")))
	mustFail(t, err, "nowhere")
}

// TestRunDirectory checks that the run directory contains everything that the job runs before the
// call of sbatch.
func TestRunDirectory(t *testing.T) {
	c := newCluster(t)
	c.sbatch(`cp "$3" sent; ` + normal)
	req := c.request(swept)
	c.submitted(req)
	dir := c.dir("s")
	sent, err := os.ReadFile(filepath.Join(c.fake, "sent"))
	if err != nil {
		t.Fatal(err)
	}
	record := c.record(dir)
	if record.Last().ScriptSHA256 != rundir.Digest(sent) || record.Sweep == nil || record.Sweep.Elements[1].Values["setup.env.X"] != "b" {
		t.Errorf("%+v", record)
	}
	for path, want := range map[string]string{dir.Spec(): swept, dir.Script(): string(sent), dir.Site(): string(req.Site.Source()), dir.Element(2).Site(): string(req.Site.Source())} {
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}
	if text, err := os.ReadFile(dir.Element(1).Spec()); err != nil || !strings.Contains(string(text), `X = "b"`) || strings.Contains(string(text), "sweep") {
		t.Errorf("element 1: %s, %v", text, err)
	}
}
