package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// testRunDirectoryIsReplaced lets a member of the group replace the run directory of a pending job.
func testRunDirectoryIsReplaced(t *testing.T, s *twoUsers) {
	alice, mallory := s.people(t)
	project := s.project(t)
	canary := filepath.Join(alice.Home, "ran-in-replaced-directory")
	evil := []string{"/bin/sh", "-c", "id -un >>" + canary}

	attacks := []struct {
		name, want string
		replace    func(dir string)
	}{
		{"directory", "belongs to user", func(dir string) {
			mallory.sh(dir, "mv runs .old")
			mallory.foreignRun(filepath.Join(dir, "runs", "good"), evil...)
		}},
		{"link", "symbolic link", func(dir string) {
			mallory.sh(dir, "mv runs .old && mkdir -m 0777 runs && ln -s ../elsewhere/good runs/good")
			mallory.foreignRun(filepath.Join(dir, "elsewhere", "good"), evil...)
		}},
		// The directory is alice's own, but it belongs to a different job.
		{"another-run", "does not contain the submitted job", func(dir string) {
			mallory.sh(dir, "mv runs .old && ln -s other/runs runs")
		}},
	}
	openQueue := s.closeQueue(t)
	jobs := make([]string, len(attacks))
	for i, a := range attacks {
		dir := filepath.Join(project, a.name)
		alice.sh(project, `mkdir -p "$1/other" && chmod g+w "$1"`, a.name)
		alice.write(filepath.Join(dir, "job.toml"), command("good", 2, "/bin/echo", "the job of alice"))
		alice.write(filepath.Join(dir, "other", "job.toml"), command("good", 2, evil...))
		before := alice.submit(filepath.Join(dir, "other"), "job.toml")
		alice.sh(dir, `scancel "$1"`, before)
		jobs[i] = alice.submit(dir, "job.toml")
		a.replace(dir)
		if got := alice.sh(dir, "cat runs/good/job.toml"); !strings.Contains(got, canary) {
			t.Fatalf("%s: the run directory was not replaced:\n%s", a.name, got)
		}
	}
	openQueue()
	for i, a := range attacks {
		if state, log := s.ends(t, jobs[i]); state != "FAILED" {
			t.Errorf("%s: the job is %s\n%s", a.name, state, log)
		} else if !strings.Contains(log, a.want) {
			t.Errorf("%s: no %q in\n%s", a.name, a.want, log)
		}
	}
	mustNotExist(t, canary)
}

// testRunsDirectoryOfAnotherUser creates runs/ as another user before alice does. The owner of
// runs/ can replace the run directory.
func testRunsDirectoryOfAnotherUser(t *testing.T, s *twoUsers) {
	alice, mallory := s.people(t)
	canary := filepath.Join(alice.Home, "ran-in-runs-of-another-user")

	// In a directory like /tmp, open to everybody.
	dir := s.scratch(t)
	mallory.sh(dir, "mkdir -m 0777 runs")
	alice.write(filepath.Join(dir, "good.toml"), command("good", 1, "/bin/echo", "the job of alice"))
	alice.sh(dir, "touch runs/file && rm runs/file")
	for _, args := range [][]string{{"submit", "good.toml"}, {"launch", "good.toml"}} {
		mustFail(t, alice.ddpbatch(dir, args...), filepath.Join(dir, "runs"), fmt.Sprint("user ", mallory.ID))
	}
	mustNotExist(t, filepath.Join(dir, "runs", "good"))

	// In a project of a group, open to the group.
	dir = s.project(t)
	mallory.sh(dir, "umask 0002 && mkdir runs")
	alice.write(filepath.Join(dir, "good.toml"), command("good", 1, "/bin/echo", "the job of alice"))
	if o := alice.ddpbatch(dir, "check", "good.toml"); !strings.Contains(o.stderr, "not protected") {
		t.Errorf("check: %v", o)
	}
	openQueue := s.closeQueue(t)
	id := alice.submit(dir, "good.toml")
	mallory.sh(dir, "mv runs/good runs/.old")
	mallory.foreignRun(filepath.Join(dir, "runs", "good"), "/bin/sh", "-c", "id -un >>"+canary)
	openQueue()
	if state, log := s.ends(t, id); state != "FAILED" || !strings.Contains(log, "belongs to user") {
		t.Errorf("the job is %s\n%s", state, log)
	}
	mustNotExist(t, canary)
}

// testGroupProject checks that a group can work in one directory with files that all members can
// write.
func testGroupProject(t *testing.T, s *twoUsers) {
	alice, _ := s.people(t)
	project := s.project(t)
	alice.sh(project, "umask 0002 && mkdir work")
	dir := filepath.Join(project, "work")
	alice.write(filepath.Join(dir, "job.toml"), command("good", 2, "/bin/echo", "the job of alice"))
	alice.sh(dir, "chmod 0664 job.toml")
	o := alice.try(dir, "sh", "-c", `umask 0002 && exec "$1" submit job.toml --wait`, "sh", s.binary)
	if o.code != 0 {
		t.Fatal(o)
	}
	logs, _ := filepath.Glob(filepath.Join(dir, "runs", "good", "slurm-*.out"))
	if len(logs) != 1 {
		t.Fatalf("logs: %q", logs)
	}
	text, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	mustContain(t, string(text), "the job of alice")
}

// testUmask checks that only the owner of a run can access its files, for any umask.
func testUmask(t *testing.T, s *twoUsers) {
	alice, _ := s.people(t)
	dir := alice.dir()
	alice.write(filepath.Join(dir, "train.toml"), linear("open", 2))
	o := alice.try(dir, "sh", "-c", `umask 0000 && exec "$1" submit train.toml --wait`, "sh", s.binary)
	if o.code != 0 {
		t.Fatal(o)
	}
	checkOwnerOnly(t, filepath.Join(dir, "runs", "open"))
	info, err := os.Stat(filepath.Join(dir, "runs"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm()&0o022 != 0 {
		t.Errorf("runs/ has mode %v", info.Mode())
	}
}

// bareRank returns the environment of a rank that srun starts without a launcher.
func bareRank(rank, ranks, nodes int) []string {
	host, hosts, tasks, local := "n1", "n1", fmt.Sprint(ranks), rank
	if nodes == 2 {
		host, hosts, tasks, local = fmt.Sprint("n", rank+1), "n[1-2]", "1(x2)", 0
	}
	global := make([]string, ranks/nodes)
	for i := range global {
		global[i] = fmt.Sprint(rank - local + i)
	}
	env := []string{"env", "SLURM_JOB_ID=20", "SLURM_STEP_ID=0"}
	for key, value := range map[string]any{
		"STEP_NUM_TASKS": ranks, "STEP_NUM_NODES": nodes, "STEP_NODELIST": hosts, "STEP_TASKS_PER_NODE": tasks,
		"NODEID": (rank - local) * nodes / ranks, "GTIDS": strings.Join(global, ","), "PROCID": rank, "LOCALID": local,
	} {
		env = append(env, fmt.Sprintf("SLURM_%s=%v", key, value))
	}
	return append(env, "SLURMD_NODENAME="+host)
}

// testRankZeroOfAnotherUser checks that ranks without a launcher, which find rank 0 through a file,
// ignore the file of another user.
func testRankZeroOfAnotherUser(t *testing.T, s *twoUsers) {
	alice, mallory := s.people(t)
	dir := s.scratch(t)
	mallory.sh(dir, "mkdir -m 0777 runs ran && chmod 0777 ran")
	job := command("team", 1, "/bin/sh", "-c", `: >ran/$(id -un)-$RANK`) + "[network]\njoin_timeout = \"20s\"\n"
	job = strings.Replace(job, "nodes = 1", "nodes = 1\ntasks_per_node = 2", 1)
	alice.write(filepath.Join(dir, "team.toml"), job)

	run := append(bareRank(0, 2, 1), s.binary, "run", "team.toml")
	// Mallory gives every user read access to what ddpbatch creates for its owner only.
	share := `(while sleep 0.02; do chmod -R a+rX runs/team 2>/dev/null && chmod a+rwx runs/team/logs; done) &
"$@" || code=$?
kill $!
exit $code`
	wait := mallory.begin("n1", dir, append([]string{"sh", "-c", share, "sh"}, run...)...)
	waitUntil(t, "alice to be able to read mallory's file", func() bool {
		return alice.try(dir, "sh", "-c", "cat runs/team/rendezvous-*").code == 0
	})
	o := alice.try(dir, append(bareRank(1, 2, 1), s.binary, "run", "team.toml")...)
	mustFail(t, o, fmt.Sprint("belongs to user ", mallory.ID))
	mustFail(t, alice.try(dir, append(bareRank(0, 2, 1), s.binary, "run", "team.toml")...), fmt.Sprint("belongs to user ", mallory.ID))
	if o := wait(); o.code == 0 {
		t.Errorf("mallory's rank 0 has found a rank 1: %v", o)
	}
	for rank := range 2 {
		mustNotExist(t, filepath.Join(dir, "ran", fmt.Sprintf("%s-%d", victim, rank)))
	}
}
