package tests

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// nobody is the ID of a user who neither owns the job nor is root.
const nobody = "65534"

// dump prints everything that a user can read of the running processes, and of the files below the
// directories in its arguments.
const dump = `for f in /proc/[0-9]*/cmdline /proc/[0-9]*/environ; do
	echo "== $f"; cat "$f" 2>/dev/null
done
find "$@" -type f 2>/dev/null | while read -r f; do
	echo "== $f"; cat "$f" 2>/dev/null
done
true`

// opened returns two directories that every user can read, for the cluster and for the user's
// files. Only the modes of the files inside protect them.
func opened(t *testing.T) (dir, home string) {
	t.Helper()
	var folders [2]string
	for i, name := range []string{"dbs-", "dbs-home-"} {
		dir, err := os.MkdirTemp("", name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		folders[i] = dir
	}
	return folders[0], folders[1]
}

// processesWithEnv returns the command lines of the processes whose environment contains a text. It
// needs root.
func processesWithEnv(t *testing.T, text string) (lines []string) {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		environ, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(environ, []byte(text)) {
			continue // the process has exited
		}
		line, err := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
		if err == nil && len(line) > 0 {
			lines = append(lines, strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " ")))
		}
	}
	return lines
}

// filesContaining returns the files below the directories that contain one of the texts, and the
// number of files that it has searched.
func filesContaining(t *testing.T, texts []string, folders ...string) (found []string, files int) {
	t.Helper()
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) || err == nil && !e.Type().IsRegular() {
				return nil
			}
			if err != nil {
				return err
			}
			content, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			files++
			for _, text := range texts {
				if bytes.Contains(content, []byte(text)) {
					found = append(found, path)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found, files
}

// TestSecretsStandNowhere checks that a secret is only in the environment of the program that
// requested it. Another user cannot read it while the job runs, and the job leaves no copy of it
// behind.
func TestSecretsStandNowhere(t *testing.T) {
	dir, home := opened(t)
	s := newSite(t, cluster.Options{Dir: dir, Nodes: 2})
	s.home = home
	fromFile, fromEnviron, unasked := "canary-f-"+rand.Text(), "canary-e-"+rand.Text(), "canary-u-"+rand.Text()
	canaries := []string{fromFile, fromEnviron, unasked}
	clean := func(where, text string) {
		t.Helper()
		for _, c := range canaries {
			if i := strings.Index(text, c); i >= 0 {
				t.Errorf("%s has the secret %q: %q", where, c, text[max(0, i-200):min(len(text), i+len(c)+20)])
			}
		}
	}

	s.write("keys", "DATA_KEY="+fromFile+"\nOTHER_KEY="+unasked+"\n") // written with mode 0600
	s.write("prog.sh", `echo "rank $RANK: $(printf %s "$DATA_KEY:$API_TOKEN:$PLAIN:${OTHER_KEY-none}" | sha256sum)"
: >"running.$RANK"
until [ -e go ]; do sleep 0.1; done
`)
	s.write("job.toml", `name = "hush"
[slurm]
nodes = 2
tasks_per_node = 1
time = "00:10:00"
[setup]
env = { PLAIN = "nothing to hide" }
[setup.secrets]
names = ["DATA_KEY", "API_TOKEN"]
file = "keys"
[command]
argv = ["/bin/sh", "prog.sh"]
`)
	do := func(args ...string) outcome {
		t.Helper()
		cmd := s.Command(t.Context(), append([]string{binary}, args...)...)
		cmd.Dir, cmd.Env = home, append(cmd.Env, "API_TOKEN="+fromEnviron)
		o := finish(t, cmd)
		if o.code != 0 {
			t.Fatalf("%v: %v", args, o)
		}
		clean(strings.Join(args, " "), o.stdout+o.stderr)
		return o
	}
	do("check", "job.toml")
	do("render", "job.toml")
	do("submit", "--dry-run", "job.toml")
	do("submit", "job.toml")
	const id = "1" // the first job ID of the cluster
	waitUntil(t, "both programs", func() bool {
		_, err1 := os.Stat(filepath.Join(home, "running.0"))
		_, err2 := os.Stat(filepath.Join(home, "running.1"))
		return err1 == nil && err2 == nil
	})

	// Another user on the login node and on the job's node, where the job's processes are visible.
	as := []string{"setpriv", "--reuid=" + nobody, "--regid=" + nobody, "--clear-groups", "--"}
	spy := append(as, "sh", "-c", dump, "sh", home, dir)
	seen := finish(t, s.Command(t.Context(), spy...)).stdout
	mustContain(t, seen, "/bin/sh\x00prog.sh", "== "+filepath.Join(home, "keys"), "PartitionName=batch")
	clean("what another user sees", seen)
	if strings.Contains(seen, "== "+s.run("hush")+"/") {
		t.Error("another user can list the run directory")
	}
	onNode := finish(t, s.OnNode(t.Context(), "n1", spy...)).stdout
	mustContain(t, onNode, "/bin/sh\x00prog.sh")
	clean("what another user sees on the node", onNode)

	// What Slurm shows about the job to another user and to its owner.
	for _, who := range [][]string{as, nil} {
		for _, ask := range [][]string{
			{"scontrol", "--details", "show", "job", id}, {"scontrol", "show", "step", id}, {"scontrol", "write", "batch_script", id, "-"},
			{"squeue", "--format=%all"}, {"squeue", "--steps", "--format=%all"},
			{"squeue", "--Format=JobID:0|,Comment:0|,Command:0|,Name:0|,AdminComment:0|,StdErr:0|,StdOut:0|,WorkDir:0"},
		} {
			o := finish(t, s.Command(t.Context(), append(append([]string{}, who...), ask...)...))
			denied := who != nil && ask[1] == "write" && strings.Contains(o.stderr, "denied")
			if o.code != 0 && !denied {
				t.Errorf("%v: %v", ask, o)
			}
			if who == nil && o.stdout == "" {
				t.Errorf("%v printed nothing", ask)
			}
			clean(strings.Join(ask, " "), o.stdout+o.stderr)
		}
	}

	// Check the search itself: it must find the secrets in the program. The secret from the file is
	// in no other process. The secret from the environment is also in the environment of the whole
	// job, as in the user's own shell.
	if holding := processesWithEnv(t, fromFile); len(holding) < 2 {
		t.Errorf("the programs do not have the secret: %q", holding)
	} else {
		for _, line := range holding {
			if line != "/bin/sh prog.sh" && line != "sleep 0.1" {
				t.Errorf("%q has the secret in its environment", line)
			}
		}
	}
	if holding := processesWithEnv(t, unasked); len(holding) > 0 {
		t.Errorf("%q has a secret that the job did not request", holding)
	}
	// The script is in the node's spool directory only while the job runs.
	allowed := func(when string) (inState int) {
		t.Helper()
		found, files := filesContaining(t, canaries, home, dir)
		for _, path := range found {
			switch rel, _ := filepath.Rel(dir, path); {
			case path == filepath.Join(home, "keys"):
			case isStateOf(rel, id):
				inState++
			default:
				t.Errorf("%s: a secret is in %s", when, path)
			}
		}
		if files < 20 {
			t.Errorf("%s: only %d files", when, files)
		}
		return inState
	}
	if spooled, _ := filepath.Glob(filepath.Join(dir, "spool", "n*", "job*", "slurm_script")); len(spooled) == 0 {
		t.Error("the node's spool has no script")
	}
	if allowed("while it runs") != 1 {
		t.Error("the secret of the environment is not in the environment that slurmctld keeps, so nothing was searched")
	}

	s.write("go", "")
	s.completed(id)
	allowed("when it is over")
	want := fmt.Sprintf("%x", sha256.Sum256([]byte(fromFile+":"+fromEnviron+":nothing to hide:none")))
	mustContain(t, s.log("hush", id), "rank 0: "+want, "rank 1: "+want)
	do("status", "--json")
	do("logs", "runs/hush")
	clean("what another user sees at last", finish(t, s.Command(t.Context(), spy...)).stdout)
}

// isStateOf reports whether a file of the cluster is the one in which slurmctld stores the
// environment of the submission, until MinJobAge after the end of the job. sbatch submits the whole
// environment (--export=ALL), as it does for every job, so secrets have the protection of all
// users' environments at the site. Only Slurm's own user can read StateSaveLocation.
func isStateOf(path, id string) bool {
	match, err := filepath.Match("state/hash.*/job."+id+"/environment", path)
	return err == nil && match
}
