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
)

// layout is a cluster's directory and says where everything in it lies.
type layout string

func (l layout) path(elem ...string) string {
	return filepath.Join(append([]string{string(l)}, elem...)...)
}

// slurmEtc is what every node of the cluster sees as /etc/slurm.
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

// log is the log of a machine's Slurm daemon; console is what its processes print, which is
// the daemon's last word where it did not get as far as its log.
func (l layout) log(machine string) string     { return l.path("log", machine+".log") }
func (l layout) console(machine string) string { return l.path("log", machine+".console") }

// again is a file that has slurmctld started again when it ends.
func (l layout) again() string { return l.run("again") }

// ended is written when a machine's Slurm daemon ends, and says how.
func (l layout) ended(machine string) string { return l.run(machine + ".ended") }

// marker is the file that says that the directory is a cluster's and may be wiped. Its content
// is the list of the cluster's first processes (see leftovers.go); its lock is held by the
// process that runs the cluster.
func (l layout) marker() string { return l.path("test-cluster") }

// claim makes the directory this process's own: it takes the lock, ends what an earlier cluster
// left running, and removes what that cluster left in the directory.
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

// fill writes everything that the daemons need to find.
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
		// slurmd wants a device, so these are copies of /dev/null.
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

// fillAccounting makes the database's directory and writes slurmdbd.conf, which slurmdbd refuses
// where others can read it.
func (l layout) fillAccounting(conf string) error {
	if err := os.Mkdir(l.path("database"), 0o700); err != nil {
		return err
	}
	return os.WriteFile(l.slurmEtc("slurmdbd.conf"), []byte(conf), 0o600)
}

// fillMunge gives munged its directory and a new key: it refuses both where they belong to
// another user than its own.
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

// longestSocket is the length of the longest path of a Unix socket, less the closing zero byte.
const longestSocket = 107

// check refuses a directory that a daemon would refuse later and less clearly.
func (l layout) check() error {
	// slurmstepd's socket: NODE_JOB.STEP in the node's spool directory.
	if longest := l.spool("n100") + "/n100_4294967295.4294967295"; len(longest) > longestSocket {
		return &hinted{fmt.Errorf("directory %q is too long: the path of a socket in it may have %d bytes at most", string(l), longestSocket),
			"take a directory right below /tmp, or leave Options.Dir empty"}
	}
	if strings.ContainsAny(string(l), " \t\n\"#%,[]") { // all of these mean something in slurm.conf
		return &hinted{fmt.Errorf("directory %q has a character that slurm.conf cannot have in a path", string(l)),
			"take a directory right below /tmp, or leave Options.Dir empty"}
	}
	return nil
}

// hinted is an error that also says what to do.
type hinted struct {
	error
	hint string
}

// Hint says in one line what to do about the error.
func (h *hinted) Hint() string { return h.hint }

// Unwrap returns the error without the hint.
func (h *hinted) Unwrap() error { return h.error }
