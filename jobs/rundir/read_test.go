package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// readers lists functions that read every file that this package reads.
var readers = []struct {
	file string
	read func(d Dir) (found bool, err error)
}{
	{"record.json", func(d Dir) (bool, error) { r, err := d.ReadRecord(); return r.Name != "", err }},
	{"record.json", func(d Dir) (bool, error) { return d.SalvageRecord().Name != "", nil }},
	{"job.toml", func(d Dir) (bool, error) { text, err := d.ReadSpec(); return len(text) > 0, err }},
	{"site.toml", func(d Dir) (bool, error) { text, err := d.ReadSite(); return len(text) > 0, err }},
	{"live.json", func(d Dir) (bool, error) { _, ok := d.ReadLive(); return ok, nil }},
	{"ended.json", func(d Dir) (bool, error) { _, ok := d.ReadEnd(); return ok, nil }},
	{"network.json", func(d Dir) (bool, error) { n, err := d.ReadNetwork(); return n != nil, err }},
	{"attempts.jsonl", func(d Dir) (bool, error) { all, err := d.ReadAttempts(); return len(all) > 0, err }},
	{"lock", func(d Dir) (bool, error) { _, ok := d.Launcher(); return ok, nil }},
	{"rendezvous-1-0-0.json", func(d Dir) (bool, error) { text, err := d.ReadRendezvous("1", "0", 0); return len(text) > 0, err }},
	{"slurm-1.out", func(d Dir) (bool, error) { return opens(OpenFile(d.BatchLog("1"))) }},
	{"logs/rank-00000.jsonl", func(d Dir) (bool, error) { return opens(d.OpenRankLog(0)) }},
	{"trace/rank-00000.jsonl", func(d Dir) (bool, error) { return opens(d.OpenTrace("rank-00000.jsonl")) }},
}

func opens(f *os.File, err error) (bool, error) {
	if err == nil {
		f.Close()
	}
	return err == nil, err
}

// fill writes a valid file for each of the readers.
func fill(t *testing.T, d Dir) {
	t.Helper()
	text := map[string]string{
		"record.json":    `{"format":1,"run":"a","name":"n","base":"/","created":"2026-01-01T00:00:00Z","version":"v","submissions":[]}`,
		"lock":           `{"pid":1,"host":"h","time":"2026-01-01T00:00:00Z","launcher":true,"start":1}`,
		"attempts.jsonl": `{"event":"begin"}` + "\n",
	}
	for _, r := range readers {
		path := filepath.Join(d.Path, r.file)
		content, ok := text[r.file]
		if !ok {
			content = "{}"
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReadersRejectLinksAndPipes checks a run directory of another user, who may put FIFOs, or
// symbolic links to private files, into it.
func TestReadersRejectLinksAndPipes(t *testing.T) {
	for _, tt := range []struct {
		name    string
		replace func(path string) error
		nested  bool // only for files in a subdirectory
	}{
		{name: "link", replace: func(path string) error {
			return errors.Join(os.Rename(path, path+".moved"), os.Symlink(path+".moved", path))
		}},
		{name: "FIFO", replace: func(path string) error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) }},
		{name: "folder that is a link to the outside", nested: true, replace: func(path string) error {
			folder := filepath.Dir(path)
			outside := filepath.Join(filepath.Dir(filepath.Dir(folder)), "outside-"+filepath.Base(folder))
			return errors.Join(os.Rename(folder, outside), os.Symlink(outside, folder))
		}},
	} {
		for _, r := range readers {
			if tt.nested && filepath.Dir(r.file) == "." {
				continue
			}
			t.Run(tt.name+" "+r.file, func(t *testing.T) {
				d := mustCreate(t)
				fill(t, d)
				if ok, err := r.read(d); !ok || err != nil {
					t.Fatalf("as it was written: %v, %v", ok, err)
				}
				if err := tt.replace(filepath.Join(d.Path, r.file)); err != nil {
					t.Fatal(err)
				}
				held, release, err := d.Hold()
				if err != nil {
					t.Fatal(err)
				}
				defer release()
				for name, dir := range map[string]Dir{"by path": d, "held": held} {
					if found, _ := r.read(dir); found { // does not wait for a writer
						t.Errorf("%s: read", name)
					}
				}
			})
		}
	}
}

// TestPipesInsteadOfDirectories checks that a FIFO at the path of a directory is an error, and that no
// reader waits for its writer.
func TestPipesInsteadOfDirectories(t *testing.T) {
	for _, c := range []struct {
		name, pipe string // relative to the run directory
		read       func(Dir) error
	}{
		{"measurements", "usage", func(d Dir) error { _, err := d.ReadUsage(100); return err }},
		{"states of components", "components", func(d Dir) error { _, err := d.ReadComponents(); return err }},
		{"attempts", "logs", func(d Dir) error { _, err := d.OutputAttempts(); return err }},
		{"output of an attempt", "logs/attempt-0001", func(d Dir) error { _, err := d.ListRankOutput(1); return err }},
		{"traces of PyTorch", "logs", func(d Dir) error { _, err := d.MoveTraces(1, time.Time{}); return err }},
		{"evidence", "evidence/attempt-0001", func(d Dir) error { return d.WriteEvidence(1, "stacks", nil) }},
		{"the run directory", ".", func(d Dir) error {
			_, release, err := d.Hold()
			if err == nil {
				release()
			}
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := mustCreate(t)
			path := filepath.Join(d.Path, c.pipe)
			err := os.MkdirAll(filepath.Dir(path), 0o700)
			if c.pipe == "." {
				err = os.Remove(d.Path)
			}
			if err := errors.Join(err, syscall.Mkfifo(path, 0o600)); err != nil {
				t.Fatal(err)
			}
			if err := c.read(d); !errors.Is(err, syscall.ENOTDIR) {
				t.Errorf("got %v, want %v", err, syscall.ENOTDIR)
			}
		})
	}
}

// TestHeldDirectoryIsReadAfterReplacement checks that reads use the checked directory, also for
// the trials of a sweep, although a user who can write to a parent directory replaces the run
// directory after the check.
func TestHeldDirectoryIsReadAfterReplacement(t *testing.T) {
	d := mustCreate(t)
	inner := d.Element(1)
	if err := os.MkdirAll(inner.Path, 0o700); err != nil {
		t.Fatal(err)
	}
	fill(t, d)
	fill(t, inner)
	held, release, err := OpenOwn(d.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	move(t, d.Path)
	if err := os.Mkdir(d.Path, 0o700); err != nil {
		t.Fatal(err)
	}
	element, releaseElement, err := held.Element(1).Hold()
	if err != nil {
		t.Fatal(err)
	}
	defer releaseElement()
	for name, dir := range map[string]Dir{"run": held, "element": held.Element(1), "held element": element} {
		for _, r := range readers {
			if filepath.Base(r.file) == "slurm-1.out" {
				continue // opened by path
			}
			if ok, err := r.read(dir); !ok || err != nil {
				t.Errorf("%s: %s: %v, %v", name, r.file, ok, err)
			}
		}
		if err := dir.WriteEnd(End{Exit: 3}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, err := os.ReadDir(d.Path); err != nil || len(left) > 0 {
		t.Errorf("in the new directory: %v, %v", left, err)
	}
}

// TestHoldRejectsOthers checks that Hold checks the directory that it opened.
func TestHoldRejectsOthers(t *testing.T) {
	d := mustCreate(t)
	if err := os.Chmod(d.Path, 0o770); err != nil {
		t.Fatal(err)
	}
	_, _, err := d.Hold()
	wants(t, err, "mode is 0770", "chmod go-w")
}

// TestAppendRankLogRejectsLinks checks that AppendRankLog writes neither through a symbolic link
// nor into a FIFO.
func TestAppendRankLogRejectsLinks(t *testing.T) {
	d := mustCreate(t)
	f, err := d.AppendRankLog(0)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if m := mode(t, d.RankLog(0)); m != 0o600 {
		t.Errorf("mode %04o", m)
	}
	inside := filepath.Join(d.Path, "inside")
	if err := errors.Join(os.Symlink(inside, d.RankLog(1)), syscall.Mkfifo(d.RankLog(2), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.AppendRankLog(1); !errors.Is(err, safefile.ErrLink) {
		t.Errorf("link: %v", err)
	}
	if _, err := d.AppendRankLog(2); !errors.Is(err, safefile.ErrNotRegular) {
		t.Errorf("FIFO: %v", err)
	}
	if _, err := os.Lstat(inside); err == nil {
		t.Error("created the target of the link")
	}
}
