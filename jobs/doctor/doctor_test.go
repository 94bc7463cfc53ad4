package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/netif"
)

// levelsOf returns the level of each finding by part.
func levelsOf(findings []Finding) map[string]Level {
	all := map[string]Level{}
	for _, f := range findings {
		all[f.Part] = f.Level
	}
	return all
}

// TestSlurm checks that each setting has a level, and a hint if the level is not OK.
func TestSlurm(t *testing.T) {
	for name, tt := range map[string]struct {
		key, value string
		want       Level
	}{
		"version":           {"SLURM_VERSION", "22.05.8", OK},
		"an old one":        {"SLURM_VERSION", "20.02.1", Warn},
		"no version":        {"SLURM_VERSION", "newest", Warn},
		"requeue":           {"JobRequeue", "1", OK},
		"no requeue":        {"JobRequeue", "0", OK},
		"kill at once":      {"KillWait", "5 sec", Warn},
		"kill later":        {"KillWait", "30 sec", OK},
		"preempt cancel":    {"PreemptMode", "CANCEL", Warn},
		"preempt requeue":   {"PreemptMode", "REQUEUE", OK},
		"preempt gang":      {"PreemptMode", "GANG,SUSPEND", Warn},
		"requeue our code":  {"RequeueExit", "1-5,9", Fail},
		"requeue another":   {"RequeueExit", "7", OK},
		"hold our code":     {"RequeueExitHold", "3", Warn},
		"processes stay":    {"ProctrackType", "proctrack/linuxproc", Warn},
		"processes go":      {"ProctrackType", "proctrack/cgroup", OK},
		"not bound":         {"TaskPlugin", "task/none", Warn},
		"bound":             {"TaskPlugin", "task/cgroup,task/affinity", OK},
		"whole nodes":       {"SelectType", "select/linear", Warn},
		"slow to see":       {"SlurmdTimeout", "0 sec", Warn},
		"no accounts":       {"AccountingStorageType", "accounting_storage/none", Warn},
		"environment kept":  {"AccountingStoreFlags", "job_comment,job_env", Warn},
		"append":            {"JobFileAppend", "0", OK},
		"limits":            {"PropagateResourceLimits", "ALL", OK},
		"signals":           {"SlurmctldParameters", "preempt_send_user_signal", OK},
		"unknown to doctor": {"Zippy", "1", ""},
		"not set":           {"RequeueExit", "(null)", ""},
	} {
		found := Slurm(map[string]string{tt.key: tt.value})
		if tt.want == "" {
			if len(found) != 0 {
				t.Errorf("%s: %+v", name, found)
			}
			continue
		}
		if len(found) != 1 || found[0].Level != tt.want || !strings.HasPrefix(found[0].Detail, tt.value) || (found[0].Hint == "") != (tt.want == OK) {
			t.Errorf("%s: %+v, want %s", name, found, tt.want)
		}
	}
}

// TestGPUsOfAMD checks that a node with AMD GPUs gets one finding, which says that the trainer needs
// CUDA, and that a node that also has a GPU from NVIDIA is checked for CUDA.
func TestGPUsOfAMD(t *testing.T) {
	amd, nvidia := netif.GPU{Vendor: netif.AMD}, netif.GPU{Vendor: netif.NVIDIA}
	lookup := func(string) (string, bool) { return "", false }
	only := checkGPUs(lookup, &netif.Inventory{GPUs: []netif.GPU{amd, amd}})
	if len(only) != 1 || only[0].Level != Warn || !strings.Contains(only[0].Detail, "2 GPUs from AMD") || !strings.Contains(only[0].Detail, "needs CUDA") || only[0].Hint == "" {
		t.Errorf("got %+v", only)
	}
	for _, gpus := range [][]netif.GPU{nil, {nvidia}, {amd, nvidia}} {
		if got := checkGPUs(lookup, &netif.Inventory{GPUs: gpus}); len(got) < 3 || got[0].Part != "driver" {
			t.Errorf("GPUs %v: got %+v", gpus, got)
		}
	}
}

// TestLimits checks which resource limits cause warnings, with and without RDMA.
func TestLimits(t *testing.T) {
	const text = `Limit                     Soft Limit           Hard Limit           Units     
Max processes             %d                128               processes 
Max open files            %d                 4096                 files     
Max locked memory         %d             unlimited             bytes     
Max core file size        0                    unlimited            bytes     
`
	read := func(n int) map[string]limit { return parseLimits(fmt.Sprintf(text, n, n, n)) }
	if got := levelsOf(evaluateLimits(read(64), false)); got["limit nproc"] != Warn || got["limit nofile"] != Warn || got["limit memlock"] != OK || got["limit core"] != OK {
		t.Errorf("small ones: %v", got)
	}
	if got := levelsOf(evaluateLimits(read(65536), true)); got["limit nproc"] != OK || got["limit nofile"] != OK || got["limit memlock"] != Fail {
		t.Errorf("with RDMA: %v", got)
	}
	if own := levelsOf(checkLimits(false)); len(own) < 4 {
		t.Errorf("those of this process: %v", own)
	}
}

// TestFiles checks that a working file system has no finding with the level Fail, and that no files
// remain.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	found := checkFiles(dir, false)
	if len(found) != 5 || CountFailed(found) != 0 {
		t.Errorf("%+v", found)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if found := checkFiles(dir+"/none", false); len(found) != 1 || found[0].Level != Fail {
		t.Errorf("a folder that is not there: %+v", found)
	}
	token := dir + "/token"
	if err := os.WriteFile(token, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if f := checkToken(token, "n1"); f.Level != OK {
		t.Errorf("%+v", f)
	}
	if _, err := os.Stat(answerPath(token, "n1")); err != nil {
		t.Error(err)
	}
}

// TestExamine checks that the current machine can be examined without a panic.
func TestExamine(t *testing.T) {
	n := Examine(t.Context(), Options{Lookup: os.LookupEnv, Dir: t.TempDir()})
	got := levelsOf(n.Findings)
	for _, part := range []string{"driver", "nccl", "processor", "kernel", "clock", "/dev/shm", "limit nofile", "files", "files lock"} {
		if got[part] == "" {
			t.Errorf("no finding of %s: %v", part, got)
		}
	}
}

// host returns the inventory of a host with two interfaces. The slow one is first, by name and
// order.
func host(name string, n byte, fast string) netif.Inventory {
	link := func(index int, name string, mtu int, addr netip.Prefix) netif.Link {
		return netif.Link{Index: index, Name: name, ARPHRD: "ether", Flags: netif.Up | netif.Running | netif.LowerUp, Oper: "up", MTU: mtu, Speed: -1, Driver: "e", PCI: fmt.Sprint(index), Addrs: []netip.Prefix{addr}}
	}
	slow, quick := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 10, 0, n}), 24), netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 20, 0, n}), 24)
	return netif.Inventory{Host: name, Links: []netif.Link{link(2, "eth0", 1500, slow), link(3, fast, 9000, quick)},
		Routes: []netif.Route{{Dst: slow.Masked(), Dev: "eth0"}, {Dst: quick.Masked(), Dev: fast}}}
}

// TestMerge checks that equal findings of all nodes appear once, and that other findings list
// their hosts.
func TestMerge(t *testing.T) {
	at := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	node := func(name string, n byte, kernel string, off time.Duration) Node {
		return Node{Host: name, Time: at.Add(off), Inventory: host(name, n, "hsn0"), Findings: []Finding{pass("kernel", kernel), pass("/dev/shm", fmt.Sprint(n, " GiB"))}}
	}
	nodes := []Node{node("n1", 1, "6.1.0", time.Second), node("n2", 2, "6.1.0", time.Second), node("n3", 3, "5.14.0", -time.Hour)}
	nodes[1].Findings = append(nodes[1].Findings, fail("gpu 0", "broken", "replace it"))
	found := merge(nodes, at, at.Add(2*time.Second))
	var lines []string
	for _, f := range found {
		lines = append(lines, fmt.Sprintf("%s|%s|%s|%s", f.Part, f.Level, f.Hosts, f.Detail))
	}
	all := strings.Join(lines, "\n")
	for _, want := range []string{
		"network|ok||10.20.0.0/24 (hsn0 on n1, mtu 9000)",
		"nccl alone|look||selects eth0; ddpbatch selects hsn0",
		"kernel|ok|n[1-2]|6.1.0",
		"kernel|ok|n3|5.14.0",
		"kernel differs|look||n[1-2]: 6.1.0; n3: 5.14.0",
		"/dev/shm|ok||1 GiB",
		"gpu 0|bad|n2|broken",
		"gpu 0|look||only on 1 of 3 nodes",
		"clocks of the nodes|look||different from the first node's: n3 by at least -1h0m0s",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
	if strings.Contains(all, "/dev/shm differs") {
		t.Errorf("what is free differs always:\n%s", all)
	}
}

// TestOpenOwnRejects checks that openNewDir rejects a directory that another user has put in
// place of the created one.
func TestOpenOwnRejects(t *testing.T) {
	for name, replace := range map[string]func(path string) error{
		"other user": func(path string) error { return os.Chown(path, 65534, 65534) },
		"writable":   func(path string) error { return os.Chmod(path, 0o777) },
		"pipe":       func(path string) error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)) },
		"link to a private directory": func(path string) error {
			other := path + ".other"
			return errors.Join(os.Remove(path), os.Mkdir(other, 0o700), os.WriteFile(filepath.Join(other, "key"), nil, 0o600), os.Symlink(other, path))
		},
	} {
		path := t.TempDir()
		if err := errors.Join(os.Chmod(path, 0o700), replace(path)); err != nil {
			t.Fatal(err)
		}
		root, err := openNewDir(path) // does not wait for a writer of the pipe
		if err == nil {
			root.Close()
			t.Errorf("%s: it is accepted", name)
		}
	}
}

// TestFilesStayInTheOpenDirectory checks that files are created only in the open directory,
// even if another directory replaces it.
func TestFilesStayInTheOpenDirectory(t *testing.T) {
	path, valuable := filepath.Join(t.TempDir(), "work"), filepath.Join(t.TempDir(), "valuable")
	if err := errors.Join(os.Mkdir(path, 0o700), os.WriteFile(valuable, []byte("keep"), 0o600)); err != nil {
		t.Fatal(err)
	}
	root, err := openNewDir(path)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	err = errors.Join(os.Rename(path, path+".old"), os.Mkdir(path, 0o700))
	for _, name := range []string{"a", "b", "lock", "small", "large", "time"} {
		err = errors.Join(err, os.Symlink(valuable, filepath.Join(path, name)))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, try := range []func(*os.Root) Finding{checkRename, checkLock, checkSpeed, checkFileClock} {
		try(root)
	}
	if text, err := os.ReadFile(valuable); err != nil || string(text) != "keep" {
		t.Errorf("the file behind the links has %d bytes, %v", len(text), err)
	}
}

// TestCreateEmptyFollowsNoLink checks that createEmpty does not write through a symbolic link.
func TestCreateEmptyFollowsNoLink(t *testing.T) {
	valuable, path := filepath.Join(t.TempDir(), "valuable"), filepath.Join(t.TempDir(), "token")
	if err := errors.Join(os.WriteFile(valuable, []byte("keep"), 0o600), os.Symlink(valuable, path)); err != nil {
		t.Fatal(err)
	}
	if err := createEmpty(path); err == nil {
		t.Error("it writes through the link")
	}
	if text, err := os.ReadFile(valuable); err != nil || string(text) != "keep" {
		t.Errorf("%q, %v", text, err)
	}
}
