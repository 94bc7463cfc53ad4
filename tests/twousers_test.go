package tests

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// twoUsers is a cluster that two unprivileged users share: alice, who runs jobs, and mallory, who
// attacks them. They are members of one group. Node n1 is also their login node, so their files in
// /dev/shm, their ports, and their processes are separate from those of other tests on this
// machine.
type twoUsers struct {
	*cluster.Cluster
	dir      string // its directories are open to everybody
	binary   string // the program under test, where the users can run it
	attacker string
	accounts map[string]cluster.User

	demo struct { // alice's finished run, for tests that need one
		sync.Once
		path string
	}
}

// TestTwoUsers has one subtest for each attack by another user of the cluster. Each subtest shows
// that the other user can do what the attack needs, and then that the attack does no harm.
func TestTwoUsers(t *testing.T) {
	t.Parallel()
	s := newTwoUsers(t)
	tests := []struct {
		name string
		run  func(*testing.T, *twoUsers)
	}{
		{"run directory is replaced", testRunDirectoryIsReplaced},
		{"runs directory of another user", testRunsDirectoryOfAnotherUser},
		{"group project", testGroupProject},
		{"umask", testUmask},
		{"rank 0 of another user", testRankZeroOfAnotherUser},
		{"leases on shared memory", testLeasesOnSharedMemory},
		{"silent connections to a probe", testSilentConnectionsToAProbe},
		{"flood of the rendezvous", testFloodOfTheRendezvous},
		{"ports are held", testPortsAreHeld},
		{"port of a program", testPortOfAProgram},
		{"cancel of a foreign run", testCancelOfAForeignRun},
		{"links in a foreign run", testLinksInAForeignRun},
		{"text of a foreign run", testTextOfAForeignRun},
		{"output through a link", testOutputThroughALink},
		{"FIFOs in a foreign run", testFIFOsInAForeignRun},
		{"FIFOs as inputs", testFIFOsAsInputs},
		{"profile that others can write", testProfileThatOthersCanWrite},
		{"secrets of a job", testSecretsOfAJob},
		{"checkpoint of another user", testCheckpointOfAnotherUser},
		{"sparse checkpoint", testSparseCheckpoint},
		{"deep batch script", testDeepBatchScript},
		{"data that grows", testDataThatGrows},
		{"secrets of a batch script", testSecretsOfABatchScript},
		{"Git configuration", testGitConfiguration},
		{"values are no instructions", testValuesAreNoInstructions},
		{"inventory of another user", testInventoryOfAnotherUser},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, s) })
	}
}

// Names of the users and their group.
const (
	victim = "alice"
	other  = "mallory"
	lab    = "lab"
)

// IDs of the users and their group, above the range that systems assign to users.
const (
	victimID = 61001
	otherID  = 61002
	labID    = 61003
)

// newTwoUsers starts the cluster and creates the homes. The users cannot read the temporary
// directory of the program under test, so it gets a second name in a directory that they can read.
func newTwoUsers(t *testing.T) *twoUsers {
	t.Helper()
	clusterDir, dir := opened(t)
	s := &twoUsers{dir: dir, binary: filepath.Join(dir, "bin", "ddpbatch"), attacker: filepath.Join(dir, "bin", "attacker"),
		accounts: map[string]cluster.User{}}
	makeDir(t, filepath.Join(dir, "bin"), 0, 0, 0o755)
	for name, id := range map[string]int{victim: victimID, other: otherID} {
		home := filepath.Join(dir, "home", name)
		s.accounts[name] = cluster.User{Name: name, ID: id, Home: home, Group: lab, GroupID: labID}
		makeDir(t, home, id, id, 0o755)
	}
	users := []cluster.User{s.accounts[victim], s.accounts[other]}
	s.Cluster = cluster.ForTest(t, cluster.Options{Dir: clusterDir, Nodes: 2, CPUs: 8, GPUs: -1, Users: users})
	if o := finish(t, exec.CommandContext(t.Context(), "cp", binary, s.binary)); o.code != 0 {
		t.Fatal(o)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", s.attacker, "./attacker")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if o := finish(t, build); o.code != 0 {
		t.Fatal(o)
	}
	return s
}

// makeDir creates a directory and its parents. It ignores the umask.
func makeDir(t *testing.T, path string, uid, gid int, mode uint32) {
	t.Helper()
	err := os.MkdirAll(path, 0o755)
	if err == nil {
		err = os.Chown(path, uid, gid)
	}
	if err == nil { // after chown, which clears the setgid bit
		err = exec.CommandContext(t.Context(), "chmod", strconv.FormatUint(uint64(mode), 8), path).Run()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// project creates a directory that the group shares: its members can rename and remove each other's
// files.
func (s *twoUsers) project(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(s.dir, "projects", slug(t))
	makeDir(t, dir, 0, labID, 0o2775)
	return dir
}

// scratch creates a directory like /tmp: every user can create files in it, and only their owners
// can rename and remove them.
func (s *twoUsers) scratch(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(s.dir, "scratch", slug(t))
	makeDir(t, dir, 0, 0, 0o1777)
	return dir
}

// slug returns a directory name for a test.
func slug(t *testing.T) string {
	name := t.Name()
	return strings.NewReplacer("/", "-", " ", "-", ",", "").Replace(name[strings.IndexByte(name, '/')+1:])
}

// A person is one of the users in one test.
type person struct {
	cluster.User
	t *testing.T
	s *twoUsers
}

// people returns the two users.
func (s *twoUsers) people(t *testing.T) (alice, mallory person) {
	return person{s.accounts[victim], t, s}, person{s.accounts[other], t, s}
}

// dir creates a directory for the test that the person owns.
func (p person) dir() string {
	p.t.Helper()
	dir := filepath.Join(p.Home, slug(p.t))
	makeDir(p.t, dir, p.ID, p.ID, 0o755)
	return dir
}

// write writes a file that the person owns.
func (p person) write(path, text string) {
	p.t.Helper()
	err := os.WriteFile(path, []byte(text), 0o644)
	if err == nil {
		err = os.Chown(path, p.ID, p.ID)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// tryOn runs a command on a node. A command that does not exit fails the test.
func (p person) tryOn(node, dir string, argv ...string) outcome {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 2*time.Minute)
	defer cancel()
	o := finish(p.t, p.s.OnNodeAs(ctx, node, p.User, dir, argv...))
	if ctx.Err() != nil {
		p.t.Fatalf("%s: %q does not end: %v", p.Name, argv, o)
	}
	return o
}

// begin starts a command on a node and returns a function that waits for it to exit.
func (p person) begin(node, dir string, argv ...string) (wait func() outcome) {
	p.t.Helper()
	over := make(chan outcome, 1)
	cmd := p.s.OnNodeAs(p.t.Context(), node, p.User, dir, argv...)
	go func() {
		var o outcome
		defer func() { over <- o }() // also if finish ends the test
		o.code = -1
		o = finish(p.t, cmd)
	}()
	return func() outcome { return <-over }
}

// measured runs a command that may need much memory, like try. It also returns the peak memory of
// the command and its children in bytes.
func (p person) measured(dir string, argv ...string) (o outcome, peak int64) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := p.s.OnNodeAs(ctx, "n1", p.User, dir, argv...)
	o = finish(p.t, cmd)
	if ctx.Err() != nil {
		p.t.Fatalf("%s: %q does not end: %v", p.Name, argv, o)
	}
	return o, cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
}

// try runs a command on the login node.
func (p person) try(dir string, argv ...string) outcome {
	p.t.Helper()
	return p.tryOn("n1", dir, argv...)
}

// ddpbatch runs the program under test.
func (p person) ddpbatch(dir string, args ...string) outcome {
	p.t.Helper()
	return p.try(dir, append([]string{p.s.binary}, args...)...)
}

// sh runs a shell script, which must succeed, and returns what it prints. The arguments are $1 and
// up.
func (p person) sh(dir, script string, args ...string) string {
	p.t.Helper()
	o := p.try(dir, append([]string{"sh", "-euc", script, "sh"}, args...)...)
	if o.code != 0 {
		p.t.Fatalf("%s: %s: %v", p.Name, script, o)
	}
	return o.stdout
}

// submit submits a job and returns its ID.
func (p person) submit(dir string, args ...string) string {
	p.t.Helper()
	o := p.ddpbatch(dir, append([]string{"submit", "--json"}, args...)...)
	var got struct {
		JobID string `json:"job_id"`
	}
	if err := json.Unmarshal([]byte(o.stdout), &got); o.code != 0 || err != nil || got.JobID == "" {
		p.t.Fatalf("%s: submit %v: %v, %v", p.Name, args, o, err)
	}
	return got.JobID
}

// An attack is a running attacker program.
type attack struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  *bufio.Reader
	power  io.Closer
	stderr strings.Builder
}

// attack starts an attack on the login node. It returns when the attack is in place, with the line
// that the attacker prints then.
func (p person) attack(args ...string) (a *attack, line string) {
	p.t.Helper()
	return startAttack(p.t, p.s.OnNodeAs(p.t.Context(), "n1", p.User, "/", append([]string{p.s.attacker}, args...)...))
}

func startAttack(t *testing.T, cmd *exec.Cmd) (a *attack, line string) {
	t.Helper()
	a = &attack{t: t, cmd: cmd}
	cmd.Stderr = &a.stderr
	power, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	a.power, a.lines = power, bufio.NewReader(output)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err = a.lines.ReadString('\n'); err != nil {
		_ = cmd.Wait()
		t.Fatalf("%v: %v: %s", cmd.Args, err, &a.stderr)
	}
	return a, line
}

// stop ends the attack and returns what the attacker has printed since its start.
func (a *attack) stop() string {
	a.t.Helper()
	a.power.Close()
	rest, _ := io.ReadAll(a.lines)
	if err := a.cmd.Wait(); err != nil {
		a.t.Fatalf("%v: %v: %s", a.cmd.Args, err, &a.stderr)
	}
	return string(rest)
}

// closeQueue keeps submitted jobs pending until the test calls openQueue.
func (s *twoUsers) closeQueue(t *testing.T) (openQueue func()) {
	t.Helper()
	set := func(state string) {
		if o := finish(t, s.Command(t.Context(), "scontrol", "update", "PartitionName=batch", "State="+state)); o.code != 0 {
			t.Fatal(o)
		}
	}
	set("DOWN")
	return func() { set("UP") }
}

// ends waits until a job is over. It returns the job's state and its output, from the path where
// Slurm wrote it, even if another user created the directory.
func (s *twoUsers) ends(t *testing.T, id string) (state, log string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	state, err := s.WaitJob(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	o := finish(t, s.Command(t.Context(), "scontrol", "--oneliner", "show", "job", id))
	for word := range strings.FieldsSeq(o.stdout) {
		if path, ok := strings.CutPrefix(word, "StdOut="); ok {
			text, _ := os.ReadFile(path) // no file: the job did not get that far
			log = string(text)
		}
	}
	return state, log
}

// command returns a job file with a user's program.
func command(name string, nodes int, argv ...string) string {
	list, err := json.Marshal(argv) // strings of JSON are strings of TOML
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("name = %q\n[slurm]\nnodes = %d\ntime = \"00:10:00\"\n[command]\nargv = %s\n", name, nodes, list)
}

// linear returns a job file that trains a small model on two ranks.
func linear(name string, nodes int) string {
	return fmt.Sprintf(`name = %q
[slurm]
nodes = %d
tasks_per_node = %d
time = "00:10:00"
[train]
epochs = 1
batch = 8
[train.model]
kind = "linear"
[train.data]
kind = "synthetic"
inputs = 20
outputs = 2
samples = 512
task = "regression"
[train.optimizer]
kind = "sgd"
lr = 0.05
`, name, nodes, 2/nodes)
}

// foreignRun creates a run directory by hand, as a user could who knows the file formats, and makes
// it writable for everybody.
func (p person) foreignRun(path string, argv ...string) {
	p.t.Helper()
	profile, err := os.ReadFile("../templates/sites/generic.toml")
	if err != nil {
		p.t.Fatal(err)
	}
	p.sh("/", `mkdir -p "$1" && chmod 0777 "$1"`, path)
	p.write(filepath.Join(path, "job.toml"), command(filepath.Base(path), 1, argv...))
	p.write(filepath.Join(path, "site.toml"), string(profile))
	p.write(filepath.Join(path, "record.json"), fmt.Sprintf(`{"format":1,"run":"aaaa","name":%q,"base":"/tmp",`+
		`"created":"2026-01-01T00:00:00Z","version":"x","submissions":[]}`, filepath.Base(path)))
}

// completed waits until a job is over. It fails the test if the job did not complete.
func (s *twoUsers) completed(t *testing.T, id string) (log string) {
	t.Helper()
	state, log := s.ends(t, id)
	if state != "COMPLETED" {
		t.Fatalf("job %s: %s\n%s", id, state, log)
	}
	return log
}

// finishedRun returns a finished run of alice's with a checkpoint. Tests copy it.
func (s *twoUsers) finishedRun(t *testing.T) string {
	t.Helper()
	s.demo.Do(func() {
		alice := person{s.accounts[victim], t, s}
		dir := filepath.Join(alice.Home, "finished")
		makeDir(t, dir, alice.ID, alice.ID, 0o755)
		alice.write(filepath.Join(dir, "train.toml"), linear("demo", 1))
		if o := alice.ddpbatch(dir, "launch", "train.toml"); o.code != 0 {
			t.Fatal(o)
		}
		s.demo.path = filepath.Join(dir, "runs", "demo")
	})
	if s.demo.path == "" {
		t.Fatal("alice has no finished run")
	}
	return s.demo.path
}

// copyRun gives the person a copy of a run at a new path. All users can read the copy.
func (p person) copyRun(from, to string) {
	p.t.Helper()
	script := `mkdir -p "$(dirname "$2")" && cp -r "$1" "$2" && chown -R "$3:$3" "$2" && chmod -R a+rX "$2"`
	if o := finish(p.t, exec.CommandContext(p.t.Context(), "sh", "-euc", script, "sh", from, to, strconv.Itoa(p.ID))); o.code != 0 {
		p.t.Fatal(o)
	}
}

// mustNotExist fails the test if a program that must not run has created its file.
func mustNotExist(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if text, err := os.ReadFile(path); err == nil {
			t.Errorf("%s exists: %s", path, text)
		} else if !os.IsNotExist(err) {
			t.Error(err)
		}
	}
}

// mustFail fails the test unless a command exited with one of ddpbatch's exit codes for errors and
// its output contains all of the words.
func mustFail(t *testing.T, o outcome, words ...string) {
	t.Helper()
	if o.code < 1 || o.code > 5 || strings.Contains(o.stderr, "goroutine ") {
		t.Errorf("not an error of the program: %v", o)
	}
	mustContain(t, o.stdout+o.stderr, words...)
}
