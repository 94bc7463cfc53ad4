package tests

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// threeNodes returns a small training job on three nodes, with additional keys of [network].
func threeNodes(name, more string) string {
	text := fmt.Sprintf(fashion, name, 3, 1, 1, 64)
	text = strings.Replace(text, `path = "/usr/share/datasets/fashion-mnist"`, `path = "builtin:fashion-mnist"`, 1)
	return text + "\n[network]\n" + more + "\n"
}

// fast returns the address of a node on the fast network.
func (s site) fast(node string) string {
	s.t.Helper()
	a, err := s.Address(node, "hsn0")
	if err != nil {
		s.t.Fatal(err)
	}
	return a.String()
}

// on runs a command on a node.
func (s site) on(node string, argv ...string) {
	s.t.Helper()
	if o := finish(s.t, s.OnNode(s.t.Context(), node, argv...)); o.code != 0 {
		s.t.Fatalf("%s: %v: %v", node, argv, o)
	}
}

// TestSwitchThatDropsLargePackets makes the switch drop large packets to one node. The links are
// up, the addresses are correct, and small packets arrive, so only the connectivity check detects
// the fault. The test checks that the job uses the next best network and warns with the hosts and
// the fix.
func TestSwitchThatDropsLargePackets(t *testing.T) {
	s := newSite(t, cluster.Options{})
	if err := s.SwitchMTU("n2", 1500); err != nil {
		t.Fatal(err)
	}
	for _, node := range s.Nodes() {
		// Send one packet at a time, as hardware adapters do. Veth interfaces do not by default.
		s.on(node, "ip", "link", "set", "hsn0", "gso_max_segs", "1")
	}
	s.write("job.toml", threeNodes("mtu", ""))
	id := s.submit("job.toml")
	s.completed(id)
	log := s.log("mtu", id)
	mustContain(t, log, "warning: network 10.20.", "failed the connectivity check, using 10.10.", "mtu mismatch", "n2 (hsn0, "+s.fast("n2")+")", "finished: 1 epoch")

	// A configured network is never replaced by another network.
	s.write("named.toml", threeNodes("named", `interface = "hsn0"`))
	id = s.submit("named.toml")
	s.ends(id, "FAILED")
	log = s.log("named", id)
	mustContain(t, log, "mtu mismatch", "n2 (hsn0, "+s.fast("n2")+")", "ddpbatch: error:", "ddpbatch: hint:")
	if o := s.ddpbatch("wait", "named"); o.code != 1 {
		t.Errorf("a network that does not work is no lost rank: %v", o)
	}
	if strings.Contains(log, "finished") {
		t.Errorf("got a training, want an error before it:\n%s", log)
	}
}

// TestNodeWithoutFastLink takes the link of one node down before the job starts. It checks that all
// nodes use the network that they have in common, and that the warning names the better network and
// the node without it.
func TestNodeWithoutFastLink(t *testing.T) {
	s := newSite(t, cluster.Options{})
	if err := s.LinkDown("n3", "hsn0"); err != nil {
		t.Fatal(err)
	}
	s.write("job.toml", threeNodes("down", ""))
	id := s.submit("job.toml")
	s.completed(id)
	mustContain(t, s.log("down", id), "(eth0 on n1)", "would be better (mtu 9000) but does not reach every host: hsn0 on n3 is unusable: administratively down", "finished: 1 epoch")

	s.write("named.toml", threeNodes("named", `interface = "hsn0"`))
	id = s.submit("named.toml")
	s.ends(id, "FAILED")
	mustContain(t, s.log("named", id), "hsn0", "n3", "ddpbatch: error:")
}

// TestBlackholedPeer makes a route of one node drop packets to one peer: first before the job
// starts, and then during training, where the error must name the ranks on both sides.
func TestBlackholedPeer(t *testing.T) {
	s := newSite(t, cluster.Options{})
	hole := []string{"blackhole", s.fast("n2") + "/32"}
	s.on("n1", append([]string{"ip", "route", "add"}, hole...)...)
	s.write("job.toml", threeNodes("hole", ""))
	id := s.submit("job.toml")
	s.completed(id)
	mustContain(t, s.log("hole", id), "(eth0 on n1)", "finished: 1 epoch")

	s.on("n1", append([]string{"ip", "route", "del"}, hole...)...)
	s.write("later.toml", strings.Replace(threeNodes("later", `collective_timeout = "10s"`), "epochs = 1", "epochs = 100000", 1))
	id = s.submit("later.toml")
	waitForText(t, filepath.Join(s.run("later"), "slurm-"+id+".out"), "epoch 2/")
	s.on("n1", append([]string{"ip", "route", "add"}, hole...)...)
	s.ends(id, "FAILED")
	// The first rank to detect the failure is one of the two, or one connected to both. The two may
	// be in the same operation, or one may be ahead.
	log := s.log("later", id)
	if !regexp.MustCompile(`error: .*no answer within 10s: (that rank does not respond to a query of its state|that rank has left the operation, but its message to rank [01] was lost|ranks [0-9, -]+ wait for each other)`).MatchString(log) {
		t.Errorf("the log does not say who is cut off:\n%s", log)
	}
}

// TestLinkLostWhileTraining checks that the error of a failed job names a link that failed during
// training, with the time.
func TestLinkLostWhileTraining(t *testing.T) {
	s := newSite(t, cluster.Options{})
	job := strings.Replace(threeNodes("cut", `collective_timeout = "10s"`), "epochs = 1", "epochs = 1000", 1)
	s.write("job.toml", job)
	id := s.submit("job.toml")
	waitForText(t, filepath.Join(s.run("cut"), "slurm-"+id+".out"), "epoch 1/1000")
	if err := s.LinkDown("n2", "hsn0"); err != nil {
		t.Fatal(err)
	}
	s.ends(id, "FAILED")
	log := s.log("cut", id)
	mustContain(t, log, "warning: n2: ", "hsn0: link down", "noticed before: n2: ")
	failure := s.file(filepath.Join("runs", "cut", "failure.json"))
	mustContain(t, failure, "noticed before: n2: ", "hsn0")
}

// TestMissingNCCLConf checks that ddpbatch warns about a missing NCCL configuration file and still
// starts the user's program, because NCCL ignores such a file.
func TestMissingNCCLConf(t *testing.T) {
	s := newSite(t, cluster.Options{})
	s.write("job.toml", `name = "conf"
[slurm]
nodes = 2
time = "00:05:00"
[setup.env]
NCCL_CONF_FILE = "/no/such.conf"
[command]
argv = ["sh", "-c", "echo interface=$NCCL_SOCKET_IFNAME"]
`)
	id := s.submit("job.toml")
	s.completed(id)
	mustContain(t, s.log("conf", id), "interface==hsn0", "warning: ", "/no/such.conf")
}
