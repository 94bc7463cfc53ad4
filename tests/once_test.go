package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// wrapSbatch returns the site with a script named sbatch in PATH before the real sbatch.
func (s site) wrapSbatch(script string) site {
	s.t.Helper()
	dir := s.t.TempDir()
	writeExecutable(s.t, filepath.Join(dir, "sbatch"), []byte("#!/bin/sh\n"+script))
	s.environ = append(slices.Clip(s.environ), "PATH="+dir+":"+os.Getenv("PATH"))
	return s
}

func (s site) jobs() string {
	s.t.Helper()
	cmd := s.Command(s.t.Context(), "squeue", "--noheader", "--states=all", "--format=%i %k")
	o := finish(s.t, cmd)
	if o.code != 0 {
		s.t.Fatal(o)
	}
	return o.stdout
}

const sleeper = `name = "%s"
[slurm]
time = "00:05:00"
[command]
argv = ["sh", "-c", "%s"]
`

// TestSubmissionOfKilledClientIsFound kills the client after sbatch has submitted the job. It
// checks that the next submission finds the job and does not submit a second one.
func TestSubmissionOfKilledClientIsFound(t *testing.T) {
	s := newSite(t, cluster.Options{})
	s.write("job.toml", fmt.Sprintf(sleeper, "once", "sleep 2; echo done"))
	killing := s.wrapSbatch(`case "$*" in *--version*) exec /usr/bin/sbatch "$@";; esac
/usr/bin/sbatch "$@" >/dev/null
kill -KILL $PPID
`)
	before := strings.Count(s.jobs(), "\n")
	if o := killing.ddpbatch("submit", "job.toml"); o.code == 0 {
		t.Fatalf("it was not killed: %v", o)
	}
	o := s.ddpbatch("submit", "job.toml", "--wait")
	if o.code != 0 {
		t.Fatal(o)
	}
	mustContain(t, o.stdout, "once was already submitted as job ")
	mustContain(t, o.stderr, "was interrupted; looking up its job")
	if n := strings.Count(s.jobs(), "\n"); n != before+1 {
		t.Errorf("got %d jobs, want 1:\n%s", n-before, s.jobs())
	}
}

// TestSubmitThroughTalkativeWrapper checks a submission through a wrapper of sbatch that prints a
// warning first and adds the cluster's name to the job ID.
func TestSubmitThroughTalkativeWrapper(t *testing.T) {
	s := newSite(t, cluster.Options{}).wrapSbatch("echo 'site: your quota is nearly used up'\n/usr/bin/sbatch \"$@\" | sed 's/$/;testcluster/'\n")
	s.write("job.toml", fmt.Sprintf(sleeper, "talk", "echo done"))
	id := s.submit("job.toml")
	s.completed(id)
	mustContain(t, s.log("talk", id), "done")
}

// TestDependencyByName checks that a run can depend on another run by name, and that the jobs run
// in order.
func TestDependencyByName(t *testing.T) {
	s := newSite(t, cluster.Options{})
	s.write("first.toml", fmt.Sprintf(sleeper, "first", "sleep 2; touch "+s.home+"/was-here"))
	s.write("second.toml", fmt.Sprintf(sleeper, "second", "ls "+s.home+"/was-here"))
	first := s.submit("first.toml")
	second := s.submit("second.toml", "--after", "first")
	mustContain(t, s.ddpbatch("status", "second").stdout, "Dependency")
	s.completed(second)
	s.completed(first)
	mustContain(t, s.log("second", second), "was-here")

	s.write("failing.toml", fmt.Sprintf(sleeper, "failing", "exit 9"))
	s.ends(s.submit("failing.toml"), "FAILED")
	o := s.ddpbatch("submit", "second.toml", "--after", "failing")
	if o.code == 0 {
		t.Errorf("it waits for what has failed: %v", o)
	}
	mustContain(t, o.stderr, `"afterok:failing"`, "is failed")
}

// TestWhatRunsIsWhatWasSubmitted checks that a job runs the code as it was at submission, and that
// it reports if the ddpbatch binary has changed since.
func TestWhatRunsIsWhatWasSubmitted(t *testing.T) {
	s := newSite(t, cluster.Options{})
	code := filepath.Join(s.home, "code")
	if err := os.Mkdir(code, 0o700); err != nil {
		t.Fatal(err)
	}
	s.write("code/train.sh", "echo the old code in $(pwd)\n")
	s.write("job.toml", `name = "kept"
[slurm]
time = "00:05:00"
[command]
argv = ["sh", "train.sh"]
workdir = "code"
snapshot = true
`)
	// The job waits until the code and the binary have changed.
	s.write("first.toml", fmt.Sprintf(sleeper, "first", "while ! test -e "+s.home+"/go; do sleep 0.1; done"))
	first := s.submit("first.toml")

	// Use a copy of the program, so that the program under test is unchanged.
	mine := filepath.Join(s.home, "ddpbatch")
	program, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	writeExecutable(t, mine, program)
	cmd := s.Command(t.Context(), mine, "submit", "job.toml", "--after", "first")
	cmd.Dir = s.home
	o := finish(t, cmd)
	if o.code != 0 {
		t.Fatal(o)
	}
	var id string
	if _, err := fmt.Sscanf(o.stdout, "submitted kept as job %s", &id); err != nil {
		t.Fatal(o)
	}
	s.write("code/train.sh", "echo the new code\n")
	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}
	writeExecutable(t, mine, append(program, "another version"...))
	s.write("go", "")
	s.completed(first)
	s.completed(id)
	log := s.log("kept", id)
	mustContain(t, log, "the old code in "+s.run("kept")+"/code/", "warning: this program changed while the job was queued: submitted with version")
	record, err := os.ReadFile(filepath.Join(s.run("kept"), "record.json"))
	if err != nil {
		t.Fatal(err)
	}
	mustContain(t, string(record), `"program_sha256"`, `"snapshot": "`+s.run("kept")+"/code/", `"slurm": "`+slurmVersion(t, s.Env()...)+`"`)
}

// TestLogsSurviveRequeue checks that a requeued job appends to its log, and that `logs -f` follows
// it to its end.
func TestLogsSurviveRequeue(t *testing.T) {
	s := newSite(t, cluster.Options{})
	s.write("job.toml", fmt.Sprintf(sleeper, "again", "echo run=$SLURM_RESTART_COUNT on $SLURMD_NODENAME; test -n \\\"$SLURM_RESTART_COUNT\\\" || sleep 60"))
	id := s.submit("job.toml")
	s.ends(id, "RUNNING")
	follow := make(chan outcome, 1)
	go func() { follow <- s.ddpbatch("logs", "-f", "again") }()
	waitForText(t, filepath.Join(s.run("again"), "slurm-"+id+".out"), "run= on")
	if o := finish(t, s.Command(t.Context(), "scontrol", "requeue", id)); o.code != 0 {
		t.Fatal(o)
	}
	startRequeued(t, s.Cluster, id)
	s.completed(id)
	o := <-follow
	mustContain(t, o.stdout, "run= on", "run=1 on")
	mustContain(t, o.stderr, "job "+id+" is completed")
	mustContain(t, s.ddpbatch("status", "--json", "again").stdout, `"restarts": 1`)
}
