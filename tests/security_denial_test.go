package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// testLeasesOnSharedMemory takes leases on files in /dev/shm that look like leftovers of a
// run.
func testLeasesOnSharedMemory(t *testing.T, s *twoUsers) {
	alice, mallory := s.people(t)
	dir := alice.dir()
	alice.write(filepath.Join(dir, "train.toml"), linear("leased", 1))
	a, line := mallory.attack("lease", fmt.Sprintf("/dev/shm/ddpbatch-%032x", 1), fmt.Sprintf("/dev/shm/ddpbatch-%032x", 2))
	mustContain(t, line, "holds 2 leases")
	o := alice.ddpbatch(dir, "launch", "train.toml")
	if o.code != 0 || !strings.Contains(o.stdout, "finished: 1 epoch") {
		t.Error(o)
	}
	mustContain(t, a.stop(), "nobody opened")
}

// testSilentConnectionsToAProbe uses up the connection limit of a connectivity check with silent
// connections. The other rank starts late, so that the attack is in place before it.
func testSilentConnectionsToAProbe(t *testing.T, s *twoUsers) {
	alice, mallory := s.people(t)
	dir := alice.dir()
	for _, network := range []string{"", `interface = "hsn0"`} {
		name := fmt.Sprintf("probed%d", len(network))
		alice.write(filepath.Join(dir, name+".toml"), linear(name, 2)+"[network]\n"+network+"\n")
		a, _ := mallory.attack("fill", strconv.Itoa(alice.ID), "150")
		late := []string{"strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=listen", "-e", "inject=listen:delay_enter=1500000"}
		rank := func(n int) []string { return append(bareRank(n, 2, 2), s.binary, "run", name+".toml") }
		first := alice.begin("n1", dir, rank(0)...)
		second := alice.begin("n2", dir, append(late, rank(1)...)...)
		o := first()
		for _, o := range []outcome{o, second()} {
			if o.code != 0 {
				t.Error(o)
			}
		}
		if filled := a.stop(); strings.Contains(filled, "filled 0 ") {
			t.Errorf("no listener was filled: %s", filled)
		}
		mustContain(t, o.stdout, "hsn0", "finished: 1 epoch")
		mustNotContain(t, o.stdout+o.stderr, "duplicate address", "does not work")
	}
}

// testFloodOfTheRendezvous opens silent connections to the rendezvous while ranks join.
func testFloodOfTheRendezvous(t *testing.T, s *twoUsers) {
	alice, mallory := s.people(t)
	dir := alice.dir()
	alice.write(filepath.Join(dir, "flooded.toml"), linear("flooded", 1)+"[network]\njoin_timeout = \"2m\"\n")
	rank := func(n int) []string { return append(bareRank(n, 2, 1), s.binary, "run", "flooded.toml") }
	first := alice.begin("n1", dir, rank(0)...)
	var port uint64
	waitUntil(t, "rank 0 to listen", func() bool {
		text := mallory.sh("/", `awk -v u="$1" '$4 == "0A" && $8 == u { n = split($2, a, ":"); print a[n] }' /proc/net/tcp /proc/net/tcp6`, strconv.Itoa(alice.ID))
		line, _, found := strings.Cut(text, "\n")
		if !found {
			return false
		}
		var err error
		if port, err = strconv.ParseUint(line, 16, 16); err != nil {
			t.Fatal(err)
		}
		return true
	})
	a, line := mallory.attack("flood", fmt.Sprintf("127.0.0.1:%d", port), "400")
	mustNotContain(t, line, "opened 0 connections")
	second := alice.try(dir, rank(1)...)
	o := first()
	a.stop()
	if o.code != 0 || second.code != 0 {
		t.Errorf("rank 0: %v\nrank 1: %v", o, second)
	}
	mustContain(t, o.stdout, "finished: 1 epoch")
}

// testPortsAreHeld binds all ports outside the ephemeral port range.
func testPortsAreHeld(t *testing.T, s *twoUsers) {
	alice, mallory := s.people(t)
	dir := alice.dir()
	const setting = "/proc/sys/net/ipv4/ip_local_port_range"
	set := func(ports string) (before string) {
		o := finish(t, s.OnNode(t.Context(), "n1", "sh", "-euc", `cat "$1"; echo "$2" >"$1"`, "sh", setting, ports))
		if o.code != 0 {
			t.Fatal(o)
		}
		return o.stdout
	}
	// A range that leaves few ports, so that few sockets bind all of them.
	defer set(strings.TrimSpace(set("20100 65400")))
	a, line := mallory.attack("ports", "20000", "20099", "65401", "65535")
	if held, _ := strconv.Atoi(strings.Fields(line)[1]); held < 200 {
		t.Fatalf("the attacker %s", line)
	}
	alice.write(filepath.Join(dir, "own.toml"), command("own", 1, "/bin/echo", "the program of alice"))
	if o := alice.ddpbatch(dir, "launch", "own.toml"); o.code != 0 || !strings.Contains(o.stdout, "the program of alice") {
		t.Error(o)
	}
	a.stop()
}

// testPortOfAProgram listens on the MASTER_PORT of a program before the program does. The program
// tells the port, which no other user can see otherwise.
func testPortOfAProgram(t *testing.T, s *twoUsers) {
	alice, mallory := s.people(t)
	dir := alice.dir()
	job := command("late", 1, "sh", "-c",
		"cd "+dir+"; test -e at$RANK && exec echo second start, restarts: $DDPBATCH_RESTART_COUNT; echo $MASTER_ADDR:$MASTER_PORT >new$RANK; mv new$RANK at$RANK; exec sleep 600")
	alice.write(filepath.Join(dir, "late.toml"), strings.Replace(job, "nodes = 1\n", "nodes = 1\ntasks_per_node = 2\n", 1))
	over := alice.begin("n1", dir, s.binary, "launch", "late.toml")
	var address []byte
	waitUntil(t, "the programs to start", func() bool {
		var err error
		address, err = os.ReadFile(filepath.Join(dir, "at0"))
		_, other := os.Stat(filepath.Join(dir, "at1"))
		return err == nil && other == nil
	})
	a, line := mallory.attack("listen", strings.TrimSpace(string(address)))
	mustContain(t, line, "listens on")
	o := over()
	a.stop()
	if o.code != 0 {
		t.Error(o)
	}
	mustContain(t, o.stdout, "second start, restarts: 0")
	mustContain(t, o.stderr, "MASTER_PORT", fmt.Sprintf("UID %d", mallory.ID), "starting again with a different port (1 of 3")
}
