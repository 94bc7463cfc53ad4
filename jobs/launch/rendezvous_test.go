package launch

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// TestRendezvousFileOfAnotherUserIsRejected checks that ranks without a launcher find rank 0
// through a file. A rank must not join the run of another user, and must not wait for a FIFO.
func TestRendezvousFileOfAnotherUserIsRejected(t *testing.T) {
	for _, tt := range []struct {
		name   string
		root   bool
		create func(path string) error
		want   string
	}{
		{"own file", false, func(path string) error { return os.WriteFile(path, []byte("own"), 0o600) }, ""},
		{"another user's file", true, func(path string) error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Chown(path, 65534, 65534)
		}, "belongs to user 65534"},
		{"file that others can read", false, func(path string) error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Chmod(path, 0o644)
		}, "other users have access"},
		{"FIFO", false, func(path string) error { return syscall.Mkfifo(path, 0o600) }, "not a regular file"},
		{"symbolic link", false, func(path string) error { return os.Symlink("/etc/passwd", path) }, "symbolic link"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.root && os.Geteuid() != 0 {
				if os.Getenv("CI") != "" {
					t.Fatal("needs root")
				}
				t.Skip("needs root")
			}
			d := rundir.Dir{Path: t.TempDir()}
			if err := tt.create(d.Rendezvous("1", "0", 0)); err != nil {
				t.Fatal(err)
			}
			text, err := waitForRendezvous(t.Context(), func() ([]byte, error) { return d.ReadRendezvous("1", "0", 0) })
			if tt.want == "" && (err != nil || string(text) != "own") {
				t.Errorf("got %q, %v", text, err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestWatchRendezvous checks that a rank notices when a new file replaces rank 0's file of an
// earlier start.
func TestWatchRendezvous(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rendezvous.json")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	changed := make(chan struct{})
	read := func() ([]byte, error) { return os.ReadFile(path) }
	go watchRendezvous(t.Context(), read, []byte("old"), func() { close(changed) })
	if err := os.Remove(path); err != nil { // between two starts
		t.Fatal(err)
	}
	select {
	case <-changed:
		t.Fatal("a file that is gone is no other address")
	case <-time.After(500 * time.Millisecond):
	}
	if err := os.WriteFile(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	<-changed
}

// TestWaitForRendezvousRetries checks that waitForRendezvous waits for a file that does not exist
// yet. On NFS, a file that is replaced can also disappear while it is read.
func TestWaitForRendezvousRetries(t *testing.T) {
	answers := []error{os.ErrNotExist, &os.PathError{Op: "read", Path: "x", Err: syscall.ESTALE}, nil}
	text, err := waitForRendezvous(t.Context(), func() ([]byte, error) {
		err := answers[0]
		answers = answers[1:]
		return []byte("text"), err
	})
	if err != nil || string(text) != "text" || len(answers) > 0 {
		t.Errorf("got %q, %v, %d answers left", text, err, len(answers))
	}
}

// stepOptions returns the options of a launch in an allocation of two nodes.
func stepOptions(t *testing.T) Options {
	t.Helper()
	text := "name = \"t\"\n[slurm]\nnodes = 2\n[setup]\nenv = { OWN = \"1\" }\n[command]\nargv = [\"true\"]\n"
	job, err := jobs.Parse("job.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := rundir.Create(filepath.Join(t.TempDir(), "run"))
	if err == nil {
		_, err = dir.Prepare("t", dir.Path, "v", []byte(text))
	}
	if err != nil {
		t.Fatal(err)
	}
	return Options{Job: job, Site: generic(), Dir: dir, Binary: "/bin/ddpbatch", Environ: []string{"PATH=/bin", envSecret + "=of an outer job"},
		Allocation: &slurm.Allocation{JobID: "7", Nodes: []string{"n1", "n2"}}, Say: func(string) {}}
}

// TestSecretIsNotInTheStep checks that Slurm does not get the secret of the attempt. Slurm
// sends the environment and the arguments of a step unencrypted over the management network,
// so the secret must not be in them, nor in a file that other users can read.
func TestSecretIsNotInTheStep(t *testing.T) {
	o := stepOptions(t)
	a, err := newAttempt(t.Context(), o, 3, o.Allocation.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	defer a.server.Close()
	lookup := lookupIn(a.environ)
	join := JoinOptions{Job: o.Job, Dir: o.Dir, Info: RankInfo{Host: "n1"}, Lookup: lookup}
	secret, err := loadSecret(t.Context(), join)
	if err != nil {
		t.Fatal(err)
	}
	if secret == (wire.Secret{}) {
		t.Fatal("the secret is empty")
	}
	s := buildStep(o, o.Allocation.Nodes, slices.Repeat([]int{1}, len(o.Allocation.Nodes)))
	for _, text := range append(s.SrunArgv(), a.environ...) {
		if strings.Contains(text, secret.Encode()) {
			t.Errorf("the secret travels in %.40q", text)
		}
	}
	if value, set := lookup(envSecret); set {
		t.Errorf("%s is set to %.10q", envSecret, value)
	}
	name, _ := lookup(envSecretIn)
	if name == "" || name != filepath.Base(name) {
		t.Errorf("the file is named %q, want a name in the run directory", name)
	}
	info, err := os.Lstat(filepath.Join(o.Dir.Path, name))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o600 {
		t.Errorf("mode of the file is %v, want 0600", info.Mode())
	}
	// Users' programs do not get the secret.
	for _, text := range rankEnviron(a.environ, o.Job, o.Site) {
		if strings.HasPrefix(text, envPrefix) {
			t.Errorf("a program gets %.40q", text)
		}
	}
	a.removeSecret()
	if _, err := os.Lstat(filepath.Join(o.Dir.Path, name)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}

// TestEachAttemptHasItsSecrets checks that no two attempts of a launcher share a key.
func TestEachAttemptHasItsSecrets(t *testing.T) {
	seen := map[string]bool{}
	o := stepOptions(t)
	for number := range 3 {
		a, err := newAttempt(t.Context(), o, number, o.Allocation.Nodes)
		if err != nil {
			t.Fatal(err)
		}
		defer a.server.Close()
		lookup := lookupIn(a.environ)
		secret, err := loadSecret(t.Context(), JoinOptions{Job: o.Job, Dir: o.Dir, Info: RankInfo{Host: "n1"}, Lookup: lookup})
		if err != nil {
			t.Fatal(err)
		}
		report, _ := lookup(envReportKey)
		for _, key := range []string{secret.Encode(), report} {
			if key == "" || seen[key] {
				t.Errorf("attempt %d: key is empty or repeated", number)
			}
			seen[key] = true
		}
	}
}

// TestSecretIsRemovedWhenJoined checks that the file with the secret exists until all ranks have joined,
// and no longer.
func TestSecretIsRemovedWhenJoined(t *testing.T) {
	o := stepOptions(t)
	a, err := newAttempt(t.Context(), o, 1, o.Allocation.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	defer a.server.Close()
	defer a.removeSecretWhenJoined()()
	secret, err := loadSecret(t.Context(), JoinOptions{Job: o.Job, Dir: o.Dir, Info: RankInfo{Host: "n1"}, Lookup: lookupIn(a.environ)})
	if err != nil {
		t.Fatal(err)
	}
	for rank, host := range o.Allocation.Nodes {
		if _, err := os.Lstat(filepath.Join(o.Dir.Path, a.secret)); err != nil {
			t.Fatalf("before rank %d has joined: %v", rank, err)
		}
		s, err := rendezvous.Join(t.Context(), []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(a.server.Port()))}, secret, rendezvous.Identity{Rank: rank, WorldSize: a.world, Host: host})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Leave(0, nil) }()
	}
	for range 10_000 {
		if _, err := os.Lstat(filepath.Join(o.Dir.Path, a.secret)); errors.Is(err, fs.ErrNotExist) {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error("the file is still there")
}

// TestFailedAttemptLeavesNoSecret checks that an attempt that cannot begin leaves no file with its
// secret.
func TestFailedAttemptLeavesNoSecret(t *testing.T) {
	o := stepOptions(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o.Job.Command.CheckpointDir = jobs.Text(filepath.Join(file, "x"))
	before, err := os.ReadDir(o.Dir.Path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newAttempt(t.Context(), o, 3, o.Allocation.Nodes); err == nil {
		t.Fatal("got no error")
	}
	after, err := os.ReadDir(o.Dir.Path)
	if err != nil || len(after) != len(before) {
		t.Errorf("got %v, %v, want %v", after, err, before)
	}
}

// TestFailedStartEndsAttempt checks that an attempt whose ranks cannot start leaves no goroutine and no
// file with its secret.
func TestFailedStartEndsAttempt(t *testing.T) {
	o := stepOptions(t)
	o.Environ = []string{"PATH=/nonexistent"}
	a, err := newAttempt(t.Context(), o, 3, o.Allocation.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := a.run(t.Context()); err == nil && r.Failure == nil {
		t.Fatal("got no failure")
	}
	if _, err := o.Dir.ReadSecret(a.secret); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v for the secret", err)
	}
	stacks := make([]byte, 1<<20)
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		left := string(stacks[:runtime.Stack(stacks, true)])
		if !strings.Contains(left, "created by github.com/ddpbatch/ddpbatch/jobs/launch.(*attempt)") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("goroutines are left:\n%s", left)
		}
	}
}

// TestSecretsOfKilledLaunchersAreRemoved checks that each attempt has its own file, and that
// the next launcher removes only the files of a launcher that was killed.
func TestSecretsOfKilledLaunchersAreRemoved(t *testing.T) {
	d := rundir.Dir{Path: t.TempDir()}
	var names []string
	for range 2 {
		name, err := d.WriteSecret(1, []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if names[0] == names[1] {
		t.Errorf("two attempts share the file %q", names[0])
	}
	other := filepath.Join(d.Path, "other")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.RemoveSecrets(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(d.Path)
	if err != nil || len(entries) != 1 || entries[0].Name() != "other" {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// TestLoadSecret checks that a rank waits for a file that its node sees late, and rejects a
// file of another user.
func TestLoadSecret(t *testing.T) {
	want := wire.Secret{1, 2, 3}
	for _, tt := range []struct {
		name  string
		write func(t *testing.T, d rundir.Dir, path string)
		err   string // part of the error; empty for no error
	}{
		{"file that appears late", func(t *testing.T, d rundir.Dir, path string) {
			go func() {
				time.Sleep(2 * secretPollInterval)
				_ = os.WriteFile(path, nil, 0o600) // file without its content
				time.Sleep(2 * secretPollInterval)
				_ = os.WriteFile(path, []byte(want.Encode()), 0o600)
			}()
		}, ""},
		{"no file", func(*testing.T, rundir.Dir, string) {}, "no such file"},
		{"file that others can read", func(t *testing.T, d rundir.Dir, path string) {
			if err := errors.Join(os.WriteFile(path, []byte(want.Encode()), 0o600), os.Chmod(path, 0o644)); err != nil {
				t.Fatal(err)
			}
		}, "other users have access"},
		{"file of another user", func(t *testing.T, d rundir.Dir, path string) {
			if err := errors.Join(os.WriteFile(path, []byte(want.Encode()), 0o600), os.Chown(path, 65534, -1)); err != nil {
				t.Fatal(err) // the tests run as root
			}
		}, "belongs to user 65534"},
		{"symbolic link", func(t *testing.T, d rundir.Dir, path string) {
			if err := errors.Join(os.WriteFile(path+".real", []byte(want.Encode()), 0o600), os.Symlink(filepath.Base(path)+".real", path)); err != nil {
				t.Fatal(err)
			}
		}, "symbolic link"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := stepOptions(t)
			tt.write(t, o.Dir, filepath.Join(o.Dir.Path, "secret-1-x"))
			ctx := t.Context()
			if tt.name == "no file" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 2*secretPollInterval)
				defer cancel()
			}
			secret, err := loadSecret(ctx, JoinOptions{Job: o.Job, Dir: o.Dir, Info: RankInfo{Host: "n2"},
				Lookup: lookupIn([]string{envSecretIn + "=secret-1-x"})})
			if tt.err == "" && (err != nil || secret != want) {
				t.Errorf("got %v", err)
			}
			var hint interface{ Hint() string }
			if tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), "n2") ||
				!strings.Contains(err.Error(), "secret-1-x") || !errors.As(err, &hint)) {
				t.Errorf("got %v, want %q with host, file, and hint", err, tt.err)
			}
		})
	}
}
