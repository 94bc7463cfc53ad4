package launch

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

// TestComponentPortOfAnotherUser checks that the ranks do not start if another user listens on the
// port of a component, although the component itself waits. Each attempt has a different port. An
// optional component makes no difference.
func TestComponentPortOfAnotherUser(t *testing.T) {
	needsRoot(t)
	section := shellJob(t, "echo the program runs") +
		componentJob(t, "MASTER_PORT=$DDPBATCH_COMPONENT_PORT MASTER_ADDR=$DDPBATCH_COMPONENT_HOST exec BIN other-user listen DIR")
	result, said, err := launched(t, 2, "program", section, nil)
	if err != nil || result.Exit == 0 || result.Failure == nil || !result.Failure.PortTaken || strings.Contains(said, "the program runs") {
		t.Fatalf("%+v, %+v, %v\n%s", result, result.Failure, err, said)
	}
	for _, want := range []string{`of component "server" on `, "user UID 61099 listens on "} {
		if !strings.Contains(result.Failure.Reason, want) {
			t.Errorf("no %q in %q", want, result.Failure.Reason)
		}
	}
	checkPortRestarts(t, said, maxPortRestarts)
}

// TestPortOfAnEndedComponent checks that the port of an optional component that has ended is reserved
// while the program runs, and resets connections, so that no other user can answer the ranks.
func TestPortOfAnEndedComponent(t *testing.T) {
	client := filepath.Join(t.TempDir(), "client.py")
	const code = `import os, socket
port = int(os.environ["DDPBATCH_COMPONENT_SERVER_PORT"])
try:
    socket.create_server(("", port))
except OSError as e:
    print("bind fails:", e)
try:
    with socket.create_connection(("127.0.0.1", port)) as s:
        print("read:", s.recv(1))
except OSError as e:
    print("connection fails:", e)
`
	if err := os.WriteFile(client, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	section := fmt.Sprintf("[[component]]\nname = \"server\"\noptional = true\nargv = [\"false\"]\n[command]\nargv = [\"python3\", %q]\n", client)
	result, said, err := launched(t, 1, "program", section, nil)
	if err != nil || result.Exit != 0 {
		t.Fatalf("%+v, %v\n%s", result, err, said)
	}
	for _, want := range []string{"bind fails: ", "connection fails: "} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
}

// awaitFailedComponent is shell code that waits until the first attempt has recorded the failure of a
// component. The reservation of its port follows.
const awaitFailedComponent = "until grep -qs failed {run_dir}/components/attempt-0001-*; do sleep 0.1; done; "

// TestPortOfAnEndedComponentOnOneAddress checks that another user who has the port of a component on a
// different address does not prevent the reservation of the address that the ranks use.
func TestPortOfAnEndedComponentOnOneAddress(t *testing.T) {
	needsRoot(t)
	const server = "env -i MASTER_PORT=$DDPBATCH_COMPONENT_PORT MASTER_ADDR=127.0.0.77 setsid BIN other-user listen DIR & " +
		"until grep -q :$(printf %04X $DDPBATCH_COMPONENT_PORT) /proc/net/tcp; do sleep 0.1; done; exit 1"
	const program = awaitFailedComponent + `until out=$(python3 -c 'import os, socket; ` +
		`socket.create_connection((os.environ["DDPBATCH_COMPONENT_SERVER_HOST"], os.environ["DDPBATCH_COMPONENT_SERVER_PORT"])).recv(1)' 2>&1); ` +
		`case $out in *refused*) false ;; esac; do sleep 0.1; done; echo "$out"; exit 1`
	result, said, err := launched(t, 1, "program", shellJob(t, program)+componentJob(t, server)+"ready = \"none\"\n", nil)
	if err != nil || !strings.Contains(said, "Connection reset by peer") {
		t.Errorf("%+v, %v\n%s", result, err, said)
	}
}

// TestBoundPortOfAComponent checks that an attempt ends if another user has bound the port of an
// optional component, so that it cannot listen.
func TestBoundPortOfAComponent(t *testing.T) {
	needsRoot(t)
	result, said, err := launched(t, 1, "program", shellJob(t, "echo the program runs")+componentJob(t, bindComponentPort), nil)
	if err != nil || result.Exit != 0 || strings.Count(said, "the program runs") != 1 {
		t.Errorf("%+v, %v\n%s", result, err, said)
	}
	checkPortRestarts(t, said, 1)
}

// bindComponentPort is a component whose port another user binds in the first attempt.
const bindComponentPort = "test -e DIR/bound && exit 1; " +
	"env -i MASTER_PORT=$DDPBATCH_COMPONENT_PORT setsid BIN other-user bind DIR & until test -e DIR/bound; do sleep 0.1; done; exit 1"

// TestBoundPortOfAnEndedComponent checks that an attempt ends if another user has bound the port of a
// component that has ended, so that it cannot be reserved, and listens on it later.
func TestBoundPortOfAnEndedComponent(t *testing.T) {
	needsRoot(t)
	for _, tt := range []struct{ name, before string }{
		{name: "no process is left"},
		{name: "a process is left", before: "setsid sh -c 'while test -e DIR; do sleep 0.2; done' >/dev/null 2>&1 & "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := componentJob(t, tt.before+bindComponentPort+" # in DIR") + "ready = \"none\"\n"
			_, dir, _ := strings.Cut(server, "# in ")
			dir, _, _ = strings.Cut(dir, "\"")
			program := strings.ReplaceAll("test -e SHARED/listen && exit 0; "+awaitFailedComponent+": >SHARED/listen; exec sleep 100", "SHARED", dir)
			result, said, err := launched(t, 1, "program", shellJob(t, program)+server, nil)
			if err != nil || result.Exit != 0 || !strings.Contains(said, "user UID 61099 listens on ") {
				t.Errorf("%+v, %v\n%s", result, err, said)
			}
			checkPortRestarts(t, said, 1)
		})
	}
}

// componentJob returns the section of an optional component for a line of shell, like [shellJob].
func componentJob(t *testing.T, line string) string {
	t.Helper()
	return strings.Replace(shellJob(t, line), "[command]", "[[component]]\nname = \"server\"\noptional = true", 1)
}

// TestStopWhileComponentStarts checks that a stop request ends the wait for a component, and that the
// run then counts as stopped, not as failed.
func TestStopWhileComponentStarts(t *testing.T) {
	started := filepath.Join(t.TempDir(), "started")
	signals := signalWhenExists(t, started)
	section := fmt.Sprintf("[command]\nargv = [\"echo\", \"the program runs\"]\n[[component]]\nname = \"server\"\nargv = [\"sh\", \"-c\", \"touch %s; exec sleep 600\"]\n", started)
	result, said, err := launched(t, 2, "program", section, signals)
	if err != nil || result.Failure != nil || result.Exit != exitStopped || !result.Stopped || strings.Contains(said, "the program runs") {
		t.Errorf("%+v, %+v, %v\n%s", result, result.Failure, err, said)
	}
	if want := "stopped as requested: the program had not started; start it again"; result.ReportedSave || !strings.Contains(said, want) {
		t.Errorf("reported save: %v, want %q in\n%s", result.ReportedSave, want, said)
	}
	if got, want := outcome.Read(lastDir, "").ProgramAdvice("launch"), "the program had not started; launch it again"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	states, err := lastDir.ReadComponents()
	if err != nil || len(states) != 1 || states[0].Phase != rundir.ComponentStopped {
		t.Errorf("got states %+v, %v", states, err)
	}
}

// TestComponentsStartAgain checks that a component that fails counts as a failure of the attempt, after
// which all ranks and components start again, and that its grace time ends with SIGKILL.
func TestComponentsStartAgain(t *testing.T) {
	section := "[restart]\nmax_without_progress = 1\n[command]\nargv = [\"sh\", \"-c\", \"test $DDPBATCH_ATTEMPT = 2 && echo second attempt || exec sleep 600\"]\n" +
		"[[component]]\nname = \"server\"\nready = \"file\"\nstop_grace = \"100ms\"\n" +
		"argv = [\"sh\", \"-c\", \"touch $DDPBATCH_READY_FILE; test {attempt} = 1 && exit 6; trap 'echo stays' TERM; while :; do sleep 0.1; done\"]\n"
	result, said, err := launched(t, 2, "program", section, nil)
	if err != nil || result.Failure != nil || result.Exit != 0 || strings.Count(said, "second attempt\n") != 2 {
		t.Errorf("%+v, %+v, %v\n%s", result, result.Failure, err, said)
	}
	if !strings.Contains(said, "ended with exit code 6") || !strings.Contains(said, "starting again") {
		t.Error(said)
	}
}

// TestComponentRestartsWhileAttemptEnds checks that a component that starts again when another rank
// fails counts as stopped, not as failed.
func TestComponentRestartsWhileAttemptEnds(t *testing.T) {
	dir := t.TempDir()
	in := func(line string) string { return strings.ReplaceAll(line, "DIR", dir) }
	const program = "touch DIR/runs; test $RANK = 0 && exec sleep 600; until test -e DIR/second; do sleep 0.1; done; exit 9"
	const server = "test -e DIR/runs && touch DIR/second && exec sleep 600; touch {ready_file}; until test -e DIR/runs; do sleep 0.1; done; exit 6"
	section := fmt.Sprintf("[command]\nargv = [\"sh\", \"-c\", %q]\n", in(program)) +
		fmt.Sprintf("[[component]]\nname = \"server\"\nready = \"file\"\nrestart = 1\nargv = [\"sh\", \"-c\", %q]\n", in(server))
	result, said, err := launched(t, 2, "program", section, nil)
	if err != nil || result.Exit != 9 {
		t.Errorf("%+v, %v\n%s", result, err, said)
	}
	states, err := lastDir.ReadComponents()
	if err != nil || len(states) != 1 || states[0].Phase != rundir.ComponentStopped || states[0].Restarts != 1 {
		t.Errorf("got states %+v, %v", states, err)
	}
}

// TestComponentStopsAfterItsProgram checks that a component that ends because of Slurm's SIGTERM has not
// failed, also if the program of its rank has ended before. Slurm signals all processes of a step.
func TestComponentStopsAfterItsProgram(t *testing.T) {
	dir := t.TempDir()
	in := func(line string) string { return strings.ReplaceAll(line, "DIR", dir) }
	const program = "test $RANK = 0 && exec touch DIR/first; until test -e DIR/stopped; do sleep 0.1; done; sleep 1"
	const server = "touch {ready_file}; until test -e DIR/first; do sleep 0.1; done; sleep 1; kill -TERM $PPID; touch DIR/stopped"
	section := fmt.Sprintf("[command]\nargv = [\"sh\", \"-c\", %q]\n", in(program)) +
		fmt.Sprintf("[[component]]\nname = \"server\"\nready = \"file\"\nargv = [\"sh\", \"-c\", %q]\n", in(server))
	result, said, err := launched(t, 2, "program", section, nil)
	if err != nil || result.Failure != nil || result.Exit != 0 {
		t.Errorf("%+v, %+v, %v\n%s", result, result.Failure, err, said)
	}
}

// TestFailedComponentDecidesTheExitCode checks that the failure of a component stays the cause if the
// program that ends because of it exceeds stop_grace.
func TestFailedComponentDecidesTheExitCode(t *testing.T) {
	dir := t.TempDir()
	in := func(line string) string { return strings.ReplaceAll(line, "DIR", dir) }
	const program = "trap '' USR1; trap 'touch DIR/ending' TERM; touch DIR/runs; while :; do sleep 0.1; done"
	const server = "touch {ready_file}; until test -e DIR/runs; do sleep 0.1; done; exit 6"
	section := fmt.Sprintf("[command]\nstop_grace = \"1ms\"\nargv = [\"sh\", \"-c\", %q]\n", in(program)) +
		fmt.Sprintf("[[component]]\nname = \"server\"\nready = \"file\"\nargv = [\"sh\", \"-c\", %q]\n", in(server))
	result, said, err := launched(t, 1, "program", section, signalWhenExists(t, dir+"/ending"))
	if err != nil || result.Exit != exitFailed || result.Failure == nil || !strings.Contains(result.Failure.Reason, "ended with exit code 6") {
		t.Errorf("%+v, %+v, %v\n%s", result, result.Failure, err, said)
	}
}

// TestComponentListens checks that only a listener of the component itself makes it ready: neither
// a listener of another program of this user, nor one on a different address.
func TestComponentListens(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	socket, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for _, tt := range []struct {
		name, host, run string
		inherits        bool // the component has the listening socket
		daemon          bool // another process with the component's variables has it
		want            string
	}{
		{"no listener of its own", "127.0.0.1", "a", false, false, "a different program of this user listens on 127.0.0.1"},
		{"own listener", "127.0.0.1", "b", true, false, ""},
		{"own listener on a different address", "127.0.0.2", "c", true, false, "it listens on 127.0.0.1:"},
		{"daemon", "127.0.0.1", "d", false, true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			environ := []string{"DDPBATCH_RUN_ID=" + tt.run + t.Name(), "DDPBATCH_COMPONENT=server"}
			start := func(inherits bool, environ []string) *exec.Cmd {
				cmd := exec.Command("/bin/sleep", "600")
				cmd.Env = environ
				if inherits {
					cmd.ExtraFiles = []*os.File{socket}
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
				return cmd
			}
			cmd := start(tt.inherits, nil)
			if tt.daemon {
				start(true, environ)
			}
			p := &component{spec: &jobs.Component{Name: "server"}, environ: environ,
				at:      componentAddress{Host: tt.host, Port: listener.Addr().(*net.TCPAddr).Port},
				current: &componentProcess{cmd: cmd, group: cmd.Process.Pid}}
			err := p.checkListens()
			if got := fmt.Sprint(err); tt.want == "" && err != nil || tt.want != "" && !strings.Contains(got, tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestDecideComponents checks that all ranks receive the addresses of all nodes in order.
func TestDecideComponents(t *testing.T) {
	replies, err := decideComponents([][]byte{
		[]byte(`[{"index":0,"node":0,"host":"10.0.0.1","port":1},{"index":1,"node":0,"host":"10.0.0.1","port":2}]`),
		[]byte(`[]`),
		[]byte(`[{"index":1,"node":1,"host":"10.0.0.2","port":3}]`),
	})
	const want = `[{"index":0,"node":0,"host":"10.0.0.1","port":1},{"index":1,"node":0,"host":"10.0.0.1","port":2},{"index":1,"node":1,"host":"10.0.0.2","port":3}]`
	if err != nil || len(replies) != 3 || string(replies[0]) != want || string(replies[2]) != want {
		t.Errorf("got %q, %v", replies, err)
	}
	if _, err := decideComponents([][]byte{[]byte(`[]`), []byte(`{`)}); err == nil || !strings.Contains(err.Error(), "rank 1") {
		t.Errorf("invalid payload: %v", err)
	}
}

// TestComponentEnviron checks that a component has no variables of the rank that starts it, and the
// GPUs and trackers that the user or Slurm has set.
func TestComponentEnviron(t *testing.T) {
	r := &Rank{job: &jobs.Job{Command: &jobs.Command{}, Components: []jobs.Component{{Name: "ray-head"}, {Name: "worker", EveryNode: true}}}, site: generic()}
	r.Info.NodeRank = 1
	c := &components{r: r, o: ProgramOptions{Environ: []string{"CUDA_VISIBLE_DEVICES=1", "RANK=9", "DDPBATCH_SECRET=secret"}},
		all: []componentAddress{{0, 0, "10.0.0.1", 1}, {1, 0, "10.0.0.1", 2}, {1, 1, "fd00::2", 3}}}
	got := c.componentEnviron([]string{"RANK=1", "MASTER_PORT=5", "TORCHELASTIC_RUN_ID=x", "WANDB_RUN_ID=x", "CUDA_VISIBLE_DEVICES=0,1", "DDPBATCH_RUN_DIR=/runs/x", "PATH=/bin"})
	want := []string{"CUDA_VISIBLE_DEVICES=1", "DDPBATCH_COMPONENT_RAY_HEAD_ADDRESS=10.0.0.1:1", "DDPBATCH_COMPONENT_RAY_HEAD_ADDRESSES=10.0.0.1:1",
		"DDPBATCH_COMPONENT_RAY_HEAD_HOST=10.0.0.1", "DDPBATCH_COMPONENT_RAY_HEAD_PORT=1", "DDPBATCH_COMPONENT_WORKER_ADDRESS=[fd00::2]:3",
		"DDPBATCH_COMPONENT_WORKER_ADDRESSES=10.0.0.1:2,[fd00::2]:3", "DDPBATCH_COMPONENT_WORKER_HOST=fd00::2", "DDPBATCH_COMPONENT_WORKER_PORT=3",
		"DDPBATCH_RUN_DIR=/runs/x", "PATH=/bin"}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	values := componentPlaceholders(r.job.Components, got)
	if values["component.worker.addresses"] != "10.0.0.1:2,[fd00::2]:3" || values["component.ray-head.port"] != "1" || len(values) != 8 {
		t.Errorf("got placeholders %q", values)
	}
}

// TestStopShortensStopGrace checks that a component that stays after SIGTERM does not delay the end of
// a run for its whole stop_grace if a stop was requested, before or after the program has ended.
func TestStopShortensStopGrace(t *testing.T) {
	for _, tt := range []struct {
		name, program, signalAt string
		exit                    int
	}{
		{"before the end of the program", "trap 'exit 3' USR1; touch DIR/runs; while :; do sleep 0.1; done", "runs", exitStopped},
		{"after the end of the program", "exit 0", "stays", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			signals := signalWhenExists(t, filepath.Join(dir, tt.signalAt))
			section := fmt.Sprintf("[slurm]\nsignal_before_end = \"4s\"\n[command]\nargv = [\"sh\", \"-c\", %q]\n", strings.ReplaceAll(tt.program, "DIR", dir)) +
				"[[component]]\nname = \"server\"\nready = \"file\"\nstop_grace = \"1h\"\n" +
				fmt.Sprintf("argv = [\"sh\", \"-c\", \"trap 'touch %s/stays' TERM; touch {ready_file}; while :; do sleep 0.1; done\"]\n", dir)
			result, said, err := launched(t, 1, "program", section, signals)
			if err != nil || result.Failure != nil || result.Exit != tt.exit {
				t.Errorf("%+v, %+v, %v\n%s", result, result.Failure, err, said)
			}
		})
	}
}

// TestGraceNearTheTimeLimit checks that stop_grace ends before the time limit of the job.
func TestGraceNearTheTimeLimit(t *testing.T) {
	end := time.Now().Add(10 * time.Minute)
	for _, tt := range []struct {
		name string
		end  time.Time
		max  time.Duration
	}{
		{"before the limit", end, 5 * time.Minute},
		{"after an extended limit", time.Now().Add(-time.Hour), time.Hour},
	} {
		if got := fitGrace(time.Hour, []string{fmt.Sprintf("SLURM_JOB_END_TIME=%d", tt.end.Unix())}); got <= 0 || got > tt.max || tt.max == time.Hour && got != tt.max {
			t.Errorf("%s: got %s, want at most %s", tt.name, got, tt.max)
		}
	}
}

// signalWhenExists returns a channel that delivers SIGUSR1 when a file exists.
func signalWhenExists(t *testing.T, path string) <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	go func() {
		for {
			if _, err := os.Stat(path); err == nil {
				signals <- syscall.SIGUSR1
				return
			}
			select {
			case <-t.Context().Done():
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return signals
}
