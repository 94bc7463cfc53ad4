package launch

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/netif"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

func TestCandidatePortsAreOutsideTheEphemeralRange(t *testing.T) {
	for _, tt := range []struct{ low, high int }{{32768, 60999}, {1024, 65535}, {15000, 25000}, {49152, 65535}, {1024, 30000}, {20000, 20000}} {
		total := 0
		first := candidatePort(tt.low, tt.high, func(n int) int { total = n; return 0 })
		if total == 0 {
			if tt.low > firstPort || tt.high < 65535 || first != 0 {
				t.Errorf("%v: nothing is offered", tt)
			}
			continue
		}
		seen := map[int]bool{}
		for i := range total {
			p := candidatePort(tt.low, tt.high, func(int) int { return i })
			if p < firstPort || p > 65535 || p >= tt.low && p <= tt.high || seen[p] {
				t.Fatalf("%v: port %d", tt, p)
			}
			seen[p] = true
		}
	}
}

// TestPortSearchFallsBackToTheKernel checks the search if another user occupies all ports that
// ddpbatch prefers.
func TestPortSearchFallsBackToTheKernel(t *testing.T) {
	for _, tt := range []struct {
		name      string
		low, high int
		free      func(port int) bool
		want      func(port int) bool
	}{
		{"preferred port is free", 32768, 60999, func(port int) bool { return true }, func(port int) bool { return port >= firstPort && port < 32768 || port > 60999 }},
		{"all preferred ports are occupied", 32768, 60999, func(port int) bool { return port == 0 }, func(port int) bool { return port == 0 }},
		{"no port is preferred", 1024, 65535, func(port int) bool { return port == 0 }, func(port int) bool { return port == 0 }},
	} {
		got, err := searchPort(tt.low, tt.high, func(port int) (int, error) {
			if tt.free(port) {
				return port, nil
			}
			return 0, syscall.EADDRINUSE
		})
		if err != nil || !tt.want(got) {
			t.Errorf("%s: got %d, %v", tt.name, got, err)
		}
	}
	if port, err := tryPort("127.0.0.1", 0); err != nil || port == 0 {
		t.Errorf("port of the kernel's choice: got %d, %v", port, err)
	}
}

func TestRankEnviron(t *testing.T) {
	site := &sites.Profile{Env: map[jobs.EnvName]jobs.Text{"COLOR": "green", "HOME": "/site", "NCCL_NET": "AWS Libfabric"}}
	job := &jobs.Job{Setup: jobs.Setup{Venv: "/venv", Env: map[jobs.EnvName]jobs.Text{"COLOR": "blue=1"}}}
	got := rankEnviron([]string{"PATH=/bin", "PYTHONHOME=/x", "DDPBATCH_SECRET=old", "DDPBATCH_ATTENTION=mma", "COLOR=red", "HOME=/root"}, job, site)
	slices.Sort(got)
	if want := []string{"COLOR=blue=1", "DDPBATCH_ATTENTION=mma", "HOME=/root", "NCCL_NET=AWS Libfabric", "PATH=/venv/bin:/bin", "VIRTUAL_ENV=/venv"}; !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"tool": 0o755, "data": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	environ := []string{"PATH=/nowhere", "PATH=/nothing:" + dir}
	if got, err := lookPath(environ, "tool"); err != nil || got != filepath.Join(dir, "tool") {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := lookPath(environ, "data"); err == nil || !strings.Contains(err.Error(), "not in PATH (2 directories)") {
		t.Errorf("file that is not executable: got %v", err)
	}
	if got, err := lookPath(environ, "./tool"); err != nil || got != "./tool" {
		t.Errorf("%q, %v", got, err)
	}
	if got := torchrunArgv(environ); !slices.Equal(got, []string{"python3", "-m", "torch.distributed.run"}) {
		t.Errorf("no torchrun: %q", got)
	}
}

func TestFindPlace(t *testing.T) {
	env := func(kv ...string) func(string) (string, bool) {
		return lookupIn(kv)
	}
	p, err := DetectRank(env(envLocalRank+"=1", envLocalSize+"=3"), "")
	if err != nil || p.Rank != 1 || p.WorldSize != 3 || p.LocalRank != 1 || p.Nodes != 1 || p.InSlurm() {
		t.Errorf("local: %+v, %v", p, err)
	}
	for want, e := range map[string][]string{
		`is "x", not a whole number from 0`: {envLocalRank + "=x", envLocalSize + "=3"},
		`is "", not a whole number from 1`:  {envLocalRank + "=0"},
		"is 3, but there are 3 ranks":       {envLocalRank + "=3", envLocalSize + "=3"},
	} {
		if _, err := DetectRank(env(e...), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", e, err, want)
		}
	}
	var none *slurm.NoStepError
	if _, err := DetectRank(env(), ""); !errors.As(err, &none) {
		t.Errorf("nothing set: %v", err)
	}
}

func node(i int, addr string) nodeReport {
	inv := netif.Inventory{Links: []netif.Link{
		{Index: 1, Name: "lo", ARPHRD: "loopback", Flags: netif.Up | netif.Running | netif.LowerUp, Oper: "unknown", MTU: 65536, Speed: -1, Addrs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}},
		{Index: 2, Name: "fast" + string(rune('0'+i)), ARPHRD: "ether", Flags: netif.Up | netif.Running | netif.LowerUp, Oper: "up", MTU: 9000, Speed: -1, Addrs: []netip.Prefix{netip.MustParsePrefix(addr)}},
	}}
	inv.Routes = []netif.Route{}
	return nodeReport{Node: i, Host: "n" + string(rune('1'+i)), Inventory: &inv}
}

func TestDecideNetwork(t *testing.T) {
	encode := func(reports ...nodeReport) (out [][]byte) {
		for _, r := range reports {
			b, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, b)
		}
		return out
	}
	a, b := node(0, "10.20.0.1/24"), node(1, "10.20.0.2/24")
	second := nodeReport{Node: 1, Host: "n2"}
	decideNetwork := func(payloads [][]byte) ([][]byte, error) {
		return newNegotiation(&jobs.Job{}, &sites.Profile{}, func(rundir.Network) error { return nil }, func(string) {}).decideNetwork(payloads)
	}
	replies, err := decideNetwork(encode(a, second, b, nodeReport{Node: 0}))
	if err != nil {
		t.Fatal(err)
	}
	for rank, want := range []string{"fast0", "fast1", "fast1", "fast0"} {
		var got networkDecision
		if err := json.Unmarshal(replies[rank], &got); err != nil || got.Choice.Interface != want {
			t.Errorf("rank %d: %s, %v; want %s", rank, got.Choice.Interface, err, want)
		}
	}
	for want, payloads := range map[string][][]byte{
		"two ranks report":                      encode(a, a),
		"no rank reports the network of node 0": encode(b),
		"no rank reports a network":             encode(second),
		"rank 1 is on node 7 of 1":              encode(a, nodeReport{Node: 7}),
		"rank 0's network report":               {[]byte("{")},
		"choose a common network: ":             encode(a, node(1, "192.168.7.2/24")),
	} {
		if _, err := decideNetwork(payloads); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestOnce(t *testing.T) {
	for tasks, want := range map[int]bool{0: true, 1: true, 2: false, 8: false} {
		if err := CheckSingleLauncher(slurm.Allocation{StepTasks: tasks}); (err == nil) != want || err != nil && !strings.Contains(err.Error(), "once per allocation") {
			t.Errorf("a step of %d tasks: %v", tasks, err)
		}
	}
}

// TestReachableAddresses checks that ranks use the management network to reach the launcher,
// if there is one: the address of the interface with the default route comes first.
func TestReachableAddresses(t *testing.T) {
	inv := *node(0, "10.20.0.1/24").Inventory
	inv.Links = append(inv.Links, netif.Link{Index: 3, Name: "eth0", Addrs: []netip.Prefix{
		netip.MustParsePrefix("fe80::1/64"), netip.MustParsePrefix("10.10.0.1/24"), netip.MustParsePrefix("fd00::1/64")}})
	if got := reachableAddresses(inv); !slices.Equal(got, []string{"10.20.0.1", "10.10.0.1", "fd00::1"}) {
		t.Errorf("without a default route: %q", got)
	}
	inv.Routes = []netif.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Dev: "eth0"}}
	if got := reachableAddresses(inv); !slices.Equal(got, []string{"10.10.0.1", "fd00::1", "10.20.0.1"}) {
		t.Errorf("with a default route on eth0: %q", got)
	}
}
