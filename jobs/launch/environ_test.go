package launch

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/netif"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

// TestRankEnviron checks that the job's variables precede the site's, and that internal variables
// are removed.
func TestRankEnviron(t *testing.T) {
	site := &sites.Profile{Env: map[jobs.EnvName]jobs.Text{"COLOR": "green", "HOME": "/site", "NCCL_NET": "AWS Libfabric"}}
	job := &jobs.Job{Setup: jobs.Setup{Venv: "/venv", Env: map[jobs.EnvName]jobs.Text{"COLOR": "blue=1"}}}
	got := rankEnviron([]string{"PATH=/bin", "PYTHONHOME=/x", "DDPBATCH_SECRET=old", "DDPBATCH_ATTENTION=mma", "DDPBATCH_FUSION=none", "COLOR=red", "HOME=/root"}, job, site)
	slices.Sort(got)
	if want := []string{"COLOR=blue=1", "DDPBATCH_ATTENTION=mma", "DDPBATCH_FUSION=none", "HOME=/root", "NCCL_NET=AWS Libfabric", "PATH=/venv/bin:/bin", "VIRTUAL_ENV=/venv"}; !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// TestRankEnvironWithoutPath checks that the directory of programs of a virtual environment is the only
// entry of PATH if PATH is not set. An empty entry would be the current directory.
func TestRankEnvironWithoutPath(t *testing.T) {
	got := rankEnviron(nil, &jobs.Job{Setup: jobs.Setup{Venv: "/venv"}}, &sites.Profile{})
	if want := []string{"VIRTUAL_ENV=/venv", "PATH=/venv/bin"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestNCCLLogs checks that NCCL uses the directory of the run for any name of the run.
func TestNCCLLogs(t *testing.T) {
	if got, want := ncclLogs("/runs/50%pruned/logs"), "/runs/50%%pruned/logs/nccl-%h-%p.log"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestLookPath checks that programs are found only in absolute directories of PATH.
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
	if _, err := lookPath(environ, "data"); err == nil || !strings.Contains(err.Error(), "not found in PATH (2 directories)") {
		t.Errorf("file that is not executable: got %v", err)
	}
	// The files of the current directory must not decide which program runs.
	t.Chdir(dir)
	if _, err := lookPath([]string{"PATH=.:"}, "tool"); err == nil {
		t.Error("found a program in a relative directory of PATH")
	}
	if got, err := lookPath(environ, "./tool"); err != nil || got != "./tool" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := torchrunArgv(environ, "", dir); err != nil || !slices.Equal(got, []string{"python3", "-m", "torch.distributed.run"}) {
		t.Errorf("no torchrun: %q, %v", got, err)
	}
	// Its owner could move it away while it is checked.
	if got, err := torchrunArgv(environ, "", filepath.Join(dir, "missing")); err == nil {
		t.Errorf("no torchrun, missing directory: %q", got)
	}
	// Every user could put a module into the directory, which Python would import.
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if got, err := torchrunArgv(environ, "", dir); err == nil || !strings.Contains(err.Error(), "mode 1777") {
		t.Errorf("no torchrun, public directory: %q, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "torchrun"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := torchrunArgv(environ, "", dir); err != nil || !slices.Equal(got, []string{filepath.Join(dir, "torchrun")}) {
		t.Errorf("torchrun in PATH: %q, %v", got, err)
	}
	if got, err := torchrunArgv(environ, "/venv/bin/python3", dir); err == nil || !strings.Contains(err.Error(), "/venv/bin/python3 -m") {
		t.Errorf("torchrun in PATH, interpreter, public directory: %q, %v", got, err)
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
