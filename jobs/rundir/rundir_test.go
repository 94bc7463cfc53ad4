package rundir

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

func mustCreate(t *testing.T) Dir {
	t.Helper()
	d, err := Create(filepath.Join(t.TempDir(), "runs", "demo"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

// wants fails the test unless err contains text and, if hint is not empty, has that hint.
func wants(t *testing.T, err error, text, hint string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Fatalf("error %v, want one with %q", err, text)
	}
	if !strings.Contains(hints.Of(err), hint) {
		t.Errorf("error %v has no hint with %q", err, hint)
	}
}

// TestCreate checks that a run directory is private, and that its path must be absolute.
func TestCreate(t *testing.T) {
	d := mustCreate(t)
	if m := mode(t, d.Path); m != 0o700 {
		t.Errorf("mode %04o, want 0700", m)
	}
	if m := mode(t, filepath.Dir(d.Path)); m&0o700 != 0o700 || m&0o022 != 0 {
		t.Errorf("the folder above has mode %04o", m)
	}
	if again, err := Create(d.Path + "/"); err != nil || again.Path != d.Path {
		t.Errorf("again: %v, %v", again, err)
	}
	_, err := Create("runs/demo")
	wants(t, err, "not absolute", "")
}

// TestCreateRefuses checks that files, links, and directories that others can write to are
// rejected.
func TestCreateRefuses(t *testing.T) {
	base := t.TempDir()
	at := func(name string) string { return filepath.Join(base, name) }
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.WriteFile(at("file"), nil, 0o600))
	check(os.Mkdir(at("real"), 0o700))
	check(os.Symlink("real", at("link")))
	check(os.Symlink("nowhere", at("dangling")))
	for name, m := range map[string]fs.FileMode{"group": 0o770, "world": 0o707} {
		check(os.Mkdir(at(name), 0o700))
		check(os.Chmod(at(name), m))
	}
	for _, c := range []struct{ name, text, hint string }{
		{"file", "is not a directory", "--run-dir"},
		{"file/run", "not a directory", "--run-dir"},
		{"link", "symbolic link", "--run-dir"},
		{"dangling", "symbolic link", "--run-dir"},
		{"group", "0770: others could change", "chmod go-w"},
		{"world", "0707: others could change", "chmod go-w"},
	} {
		t.Run(strings.ReplaceAll(c.name, "/", " "), func(t *testing.T) {
			_, err := Create(at(c.name))
			wants(t, err, c.text, c.hint)
		})
	}
}

// TestCreateRefusesOthers checks that a directory of another user is rejected.
func TestCreateRefusesOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root")
		}
		t.Skip("needs root")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	_, err := Create(dir)
	wants(t, err, "belongs to user 65534, and this is user 0", "--run-dir")
}

// TestOpenOwnRejectsReplacedDirectories checks a run directory that a user who can write to a
// parent directory replaces after its creation.
func TestOpenOwnRejectsReplacedDirectories(t *testing.T) {
	for _, tt := range []struct {
		name    string
		root    bool
		replace func(t *testing.T, dir string)
		want    string
	}{
		{"untouched", false, func(*testing.T, string) {}, ""},
		{"another user's", true, func(t *testing.T, dir string) {
			if err := os.Chown(dir, 65534, 65534); err != nil {
				t.Fatal(err)
			}
		}, "belongs to user 65534"},
		{"writable by others", false, func(t *testing.T, dir string) {
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
		}, "mode is 0777"},
		{"symbolic link", false, func(t *testing.T, dir string) {
			if err := os.Rename(dir, dir+".moved"); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(dir+".moved", dir); err != nil {
				t.Fatal(err)
			}
		}, "symbolic link"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.root && os.Geteuid() != 0 {
				if os.Getenv("CI") != "" {
					t.Fatal("needs root")
				}
				t.Skip("needs root")
			}
			d, err := Create(filepath.Join(t.TempDir(), "run"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := d.Prepare("name", "/", "v", []byte("name = \"name\"\n")); err != nil {
				t.Fatal(err)
			}
			tt.replace(t, d.Path)
			_, release, err := OpenOwn(d.Path)
			if tt.want == "" && err == nil {
				release()
				return
			}
			wants(t, err, tt.want, "--run-dir")
			if _, err := Open(d.Path); err != nil {
				t.Errorf("open to look at: %v", err)
			}
		})
	}
}

// TestCreateReadOnly uses a read-only mount, which only the kernel can report.
func TestCreateReadOnly(t *testing.T) {
	if os.Getenv("RUNDIR_READ_ONLY") != "" {
		_, err := Create(os.Getenv("RUNDIR_READ_ONLY"))
		wants(t, err, "it cannot be written into: read-only file system", "--run-dir")
		_, err = Create(filepath.Join(os.Getenv("RUNDIR_READ_ONLY"), "new"))
		wants(t, err, "read-only file system", "--run-dir")
		return
	}
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root")
		}
		t.Skip("needs root")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c",
		`mount -t tmpfs -o ro,mode=0700 none "$1" && RUNDIR_READ_ONLY="$1" exec "$2" -test.run '^TestCreateReadOnly$'`,
		"sh", dir, os.Args[0])
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestPaths checks the files of a run directory. Other programs and older versions rely on their
// names.
func TestPaths(t *testing.T) {
	d := Dir{Path: "/runs/demo"}
	for got, want := range map[string]string{
		d.Spec():                   "/runs/demo/job.toml",
		d.Script():                 "/runs/demo/job.sbatch",
		d.BatchLog("12"):           "/runs/demo/slurm-12.out",
		d.RankLog(3):               "/runs/demo/logs/rank-00003.jsonl",
		d.Metrics():                "/runs/demo/metrics.jsonl",
		d.TensorBoard():            "/runs/demo/tensorboard",
		d.Checkpoints():            "/runs/demo/checkpoints",
		d.Failure():                "/runs/demo/failure.json",
		d.Rendezvous("12", "0", 1): "/runs/demo/rendezvous-12-0-1.json",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestPrepare checks that a new directory gets a record, and that a later submission keeps the
// run's identity.
func TestPrepare(t *testing.T) {
	d := mustCreate(t)
	_, err := Open(d.Path)
	wants(t, err, "it holds no record.json", "ddpbatch submit")
	first, err := d.Prepare("demo", "/home/a", "v1", []byte("one"))
	if err != nil {
		t.Fatal(err)
	}
	if len(first.Run) != 16 || first.Name != "demo" || first.Base != "/home/a" || first.Version != "v1" || time.Since(first.Created) > time.Hour {
		t.Errorf("record %+v", first)
	}
	if _, err := Open(d.Path); err != nil {
		t.Error(err)
	}
	first.Submissions = append(first.Submissions, Submission{JobID: "12", Time: first.Created})
	if err := d.WriteRecord(first); err != nil {
		t.Fatal(err)
	}

	// A later submission from another directory and by another version is the same run.
	second, err := d.Prepare("demo", "/home/b", "v2", []byte("two"))
	if err != nil {
		t.Fatal(err)
	}
	if second.Run != first.Run || second.Version != "v1" || second.Base != "/home/b" || second.LastJob() != "12" {
		t.Errorf("second record %+v", second)
	}
	if read, err := d.ReadRecord(); err != nil || !reflect.DeepEqual(read, second) {
		t.Errorf("read %+v, %v; want %+v", read, err, second)
	}
	if text, err := os.ReadFile(d.Spec()); err != nil || string(text) != "two" {
		t.Errorf("spec %q, %v", text, err)
	}
	for _, path := range []string{d.Spec(), filepath.Join(d.Path, "record.json")} {
		if m := mode(t, path); m != 0o600 {
			t.Errorf("%s has mode %04o", path, m)
		}
	}

	_, err = d.Prepare("other", "/home/b", "v2", []byte("three"))
	wants(t, err, `the run of another job, "demo", and this one is "other"`, "--run-dir")
	if text, _ := os.ReadFile(d.Spec()); string(text) != "two" {
		t.Errorf("the refused spec was stored: %q", text)
	}
	entries, err := os.ReadDir(d.Path)
	if err != nil || len(entries) != 2 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// TestPrepareRefusesForeignFiles checks that a directory with other files is rejected.
func TestPrepareRefusesForeignFiles(t *testing.T) {
	d := mustCreate(t)
	if err := os.WriteFile(filepath.Join(d.Path, "diary"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := d.Prepare("demo", "/home", "v1", nil)
	wants(t, err, `not empty ("diary")`, "--run-dir")
}

// TestPrepareAfterKill checks that leftovers of a killed write do not cause an error.
func TestPrepareAfterKill(t *testing.T) {
	d := mustCreate(t)
	for _, name := range []string{".ddpbatch-123", "lock", "submit.lock"} {
		if err := os.WriteFile(filepath.Join(d.Path, name), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Prepare("demo", "/home", "v1", nil); err != nil {
		t.Error(err)
	}
}

// TestWriteReplacesWhole checks that a reader finds either the old file or the new file.
func TestWriteReplacesWhole(t *testing.T) {
	d := mustCreate(t)
	if _, err := d.Prepare("demo", "/home", "v1", []byte("spec")); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(d.Spec())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Prepare("demo", "/home", "v1", []byte("spec")); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(d.Spec()); err != nil || os.SameFile(before, after) {
		t.Errorf("the spec was written in place (%v)", err)
	}
}

// TestLock checks that only one launcher uses a run directory, and that the error names it.
func TestLock(t *testing.T) {
	d := mustCreate(t)
	unlock, err := d.Lock(Claim{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Lock(Claim{})
	host, _ := os.Hostname()
	wants(t, err, "a launcher is already running there: process ", "stop it first")
	wants(t, err, host, "")
	free, err := d.LockSubmission()
	if err != nil {
		t.Errorf("the locks are not two: %v", err)
	}
	free()
	unlock()
	unlock, err = d.Lock(Claim{})
	if err != nil {
		t.Fatalf("after unlock: %v", err)
	}
	unlock()
	if m := mode(t, filepath.Join(d.Path, "lock")); m != 0o600 {
		t.Errorf("mode %04o", m)
	}
}

// TestLockNotThroughLink checks that a symbolic link in place of the lock file is not
// followed.
func TestLockNotThroughLink(t *testing.T) {
	d := mustCreate(t)
	target := filepath.Join(t.TempDir(), "target")
	if err := os.Symlink(target, filepath.Join(d.Path, "lock")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Lock(Claim{}); err == nil {
		t.Error("locked through a link")
	}
	if _, err := os.Stat(target); err == nil {
		t.Error("the link's target was made")
	}
}

// TestProtectLog checks the mode of a log that Slurm created with the umask of the submitting
// process.
func TestProtectLog(t *testing.T) {
	d := mustCreate(t)
	if err := d.ProtectLog("18"); err != nil {
		t.Errorf("without a log: %v", err)
	}
	if err := os.WriteFile(d.BatchLog("18"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, d.BatchLog("19")); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"18", "19"} {
		if err := d.ProtectLog(id); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	if m := mode(t, d.BatchLog("18")); m != 0o600 {
		t.Errorf("mode %04o", m)
	}
	if m := mode(t, other); m != 0o644 {
		t.Errorf("behind a link: mode %04o", m)
	}
}

// TestCreateDuringCreate checks that a process that opens a new run directory accepts the
// files that another process has just written there.
func TestCreateDuringCreate(t *testing.T) {
	root := t.TempDir()
	for i := range 40 {
		path := filepath.Join(root, strconv.Itoa(i))
		d, err := Create(path)
		if err != nil {
			t.Fatal(err)
		}
		prepared := make(chan error)
		go func() {
			_, err := d.Prepare("x", root, "1", []byte("name = \"x\"\n"))
			prepared <- err
		}()
		for done := false; !done; {
			select {
			case err := <-prepared:
				if err != nil {
					t.Fatal(err)
				}
				done = true
			default:
			}
			if _, err := Create(path); err != nil {
				t.Fatalf("after %d directories: %v", i, err)
			}
		}
	}
}
