//go:build linux

package cluster

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// A layout is the path of a cluster's directory. Its methods return the paths in it.
type layout string

func (l layout) path(elem ...string) string {
	return filepath.Join(append([]string{string(l)}, elem...)...)
}

// slurmEtc returns the path of a file that every node sees in /etc/slurm.
func (l layout) slurmEtc(file string) string { return l.path("slurm", file) }
func (l layout) mungeSocket() string         { return l.path("munge", "socket") }
func (l layout) mungeKey() string            { return l.path("munge", "key") }
func (l layout) state() string               { return l.path("state") }
func (l layout) spool(node string) string    { return l.path("spool", node) }
func (l layout) run(file string) string      { return l.path("run", file) }
func (l layout) gpu() string                 { return l.path("gpu", "nvidia") }
func (l layout) hosts() string               { return l.path("hosts") }
func (l layout) resolv() string              { return l.path("resolv.conf") }
func (l layout) first() string               { return l.path("first.sh") }

// log returns the log of a machine's Slurm daemon. console is the output of its processes. It has the
// daemon's last message if the daemon failed before it opened its log.
func (l layout) log(machine string) string     { return l.path("log", machine+".log") }
func (l layout) console(machine string) string { return l.path("log", machine+".console") }

// again returns the file that makes first.sh restart slurmctld when it exits.
func (l layout) again() string { return l.run("again") }

// ended returns the file to which first.sh writes why a machine's Slurm daemon exited.
func (l layout) ended(machine string) string { return l.run(machine + ".ended") }

// marker returns the file that marks the directory as a cluster's, which may be wiped. It lists the
// cluster's init processes (see leftovers.go). The process that runs the cluster holds a lock on
// it.
func (l layout) marker() string { return l.path("test-cluster") }

// claim takes ownership of the directory: it takes the lock, kills what an earlier cluster left
// running, and removes the files of that cluster.
func (l layout) claim() (lock *os.File, err error) {
	if err := os.MkdirAll(string(l), 0o755); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(string(l))
	if err != nil {
		return nil, err
	}
	if len(entries) > 0 {
		if _, err := os.Stat(l.marker()); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("directory %q has files that are not a test cluster's, such as %q",
				string(l), entries[0].Name())
		}
	}
	lock, err = os.OpenFile(l.marker(), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, fmt.Errorf("directory %q is in use by a running test cluster: %w", string(l), err)
	}
	if err := endLeftovers(lock); err != nil {
		return nil, err
	}
	for _, e := range entries {
		if p := l.path(e.Name()); p != l.marker() {
			if err := os.RemoveAll(p); err != nil {
				return nil, err
			}
		}
	}
	return lock, nil
}

// fill writes all files that the daemons need.
func (l layout) fill(o Options, net subnet, login string) error {
	for _, dir := range []string{"slurm", "munge", "state", "spool", "run", "log", "gpu"} {
		if err := os.Mkdir(l.path(dir), 0o755); err != nil {
			return err
		}
	}
	files := map[string]string{
		l.slurmEtc("slurm.conf"):  slurmConf(o, net),
		l.slurmEtc("cgroup.conf"): cgroupConf,
		l.slurmEtc("gres.conf"):   gresConf(o),
		l.hosts():                 hosts(o, net, login),
		l.resolv():                "",
		l.first():                 first,
	}
	if o.Topology != "" {
		files[l.slurmEtc("topology.conf")] = o.Topology
	}
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := l.fillUsers(o.Users); err != nil {
		return err
	}
	if o.Accounting {
		if err := l.fillAccounting(slurmdbdConf(o, net)); err != nil {
			return err
		}
	}
	for i := range o.GPUs {
		// slurmd requires a device, so these are copies of /dev/null.
		name := l.gpu() + strconv.Itoa(i)
		if err := unix.Mknod(name, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
			return fmt.Errorf("make device %s: %w", name, err)
		}
	}
	for i := 1; i <= o.Nodes; i++ {
		if err := os.Mkdir(l.spool(nodeName(i)), 0o755); err != nil {
			return err
		}
	}
	return l.fillMunge()
}

// fillAccounting creates the database's directory and writes slurmdbd.conf. slurmdbd rejects a file
// that other users can read.
func (l layout) fillAccounting(conf string) error {
	if err := os.Mkdir(l.path("database"), 0o700); err != nil {
		return err
	}
	return os.WriteFile(l.slurmEtc("slurmdbd.conf"), []byte(conf), 0o600)
}

// fillMunge gives munged its directory and a new key. munged rejects both if a different user owns
// them.
func (l layout) fillMunge() error {
	key := make([]byte, 128)
	if _, err := rand.Read(key); err != nil {
		return err
	}
	if err := os.WriteFile(l.mungeKey(), key, 0o400); err != nil {
		return err
	}
	u, err := user.Lookup("munge")
	if err != nil {
		return err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return err
	}
	for _, name := range []string{l.path("munge"), l.mungeKey()} {
		if err := os.Chown(name, uid, gid); err != nil {
			return err
		}
	}
	return nil
}

// longestSocket is the maximum length of the path of a Unix socket, without the terminating zero
// byte.
const longestSocket = 107

// check rejects a directory that a daemon would reject later with a less clear message.
func (l layout) check() error {
	// The longest path is slurmstepd's socket: NODE_JOB.STEP in the node's spool directory.
	if longest := l.spool("n100") + "/n100_4294967295.4294967295"; len(longest) > longestSocket {
		return hints.Errorf("take a directory right below /tmp, or leave Options.Dir empty",
			"directory %q is too long: the path of a socket in it may have %d bytes at most", string(l), longestSocket)
	}
	if strings.ContainsAny(string(l), " \t\n\"#%,[]") { // characters with a meaning in slurm.conf
		return hints.Errorf("take a directory right below /tmp, or leave Options.Dir empty",
			"directory %q has a character that slurm.conf cannot have in a path", string(l))
	}
	return nil
}
