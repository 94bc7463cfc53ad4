package mpi_test

import (
	"bytes"
	"encoding/gob"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// implementation is an MPI library of this machine.
type implementation struct {
	name, mpirun, library string
	options               []string
}

var implementations = []implementation{
	{"Open MPI", "mpirun.openmpi", "libmpi.so.40", []string{"--allow-run-as-root", "--bind-to", "none", "--oversubscribe"}},
	{"MPICH", "mpirun.mpich", "libmpich.so.12", nil},
}

// output records the output of a process.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start starts n ranks of this binary with an environment variable, and stops them when the test
// ends.
func (i implementation) start(t testing.TB, n int, variable string) (*exec.Cmd, *output) {
	t.Helper()
	path, err := exec.LookPath(i.mpirun)
	if err != nil {
		t.Skipf("%v: run tests/setup.sh", err)
	}
	arguments := append([]string{"-n", strconv.Itoa(n)}, i.options...)
	cmd := exec.Command(path, append(arguments, os.Args[0])...)
	cmd.Env = append([]string{
		// All ranks share a host, so UCX does not need TCP, which fails if an interface of another
		// test disappears while UCX lists the interfaces. A test can choose another transport.
		"UCX_TLS=self,sm",
		// UCX 1.13 patches mmap and other functions of the C library while other threads may call
		// them. Only RDMA needs this.
		"UCX_MEM_MMAP_HOOK_MODE=none",
	}, os.Environ()...)
	cmd.Env = append(cmd.Env, variable, "OMPI_MCA_mpi_yield_when_idle=1")
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGTERM) }) // mpirun stops its ranks
	return cmd, out
}

// ranks starts processes that serve a test as ranks of MPI.
func (i implementation) ranks(t testing.TB, n int, timeout time.Duration) []*remote {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "ranks")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	cmd, out := i.start(t, n, workerVariable+"="+timeout.String()+","+socket)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait(); listener.Close() }()
	all := make([]*remote, n)
	for range n {
		conn, err := listener.Accept()
		if err != nil {
			t.Fatalf("%s ended: %v\n%s", i.mpirun, <-ended, out)
		}
		r := &remote{conn: conn, send: gob.NewEncoder(conn), waiting: map[uint64]chan answer{}}
		receive := gob.NewDecoder(conn)
		var first answer
		if err := receive.Decode(&first); err != nil {
			t.Fatalf("%s: %v\n%s", i.mpirun, err, out)
		}
		if first.Error != "" {
			t.Fatal(first.Error)
		}
		all[first.Rank] = r
		go r.read(receive)
	}
	t.Cleanup(func() {
		for _, r := range all {
			r.conn.Close()
		}
		select {
		case <-ended:
		case <-time.After(2 * time.Minute):
			t.Errorf("%s did not end\n%s", i.mpirun, out)
		}
	})
	return all
}
