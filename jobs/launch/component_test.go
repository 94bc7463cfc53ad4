package launch

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// TestComponentPortOfAnotherUser checks that the ranks do not start if another user listens on the
// port of a component, although the component itself waits. Each attempt has a different port.
func TestComponentPortOfAnotherUser(t *testing.T) {
	needsRoot(t)
	section := shellJob(t, "echo the program runs") +
		strings.Replace(shellJob(t, "MASTER_PORT=$DDPBATCH_COMPONENT_PORT MASTER_ADDR=$DDPBATCH_COMPONENT_HOST exec BIN other-user listen DIR"),
			"[command]", "[[component]]\nname = \"server\"", 1)
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
