package rundir

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestHeldDirectoryIsFollowed checks that writes to a held directory follow the directory, and
// CheckPlace detects the move.
func TestHeldDirectoryIsFollowed(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, path string) (now string) // empty if it was deleted
		want   string                                       // expected in the error; empty if no error
	}{
		{"in place", func(_ *testing.T, path string) string { return path }, ""},
		{"moved", func(t *testing.T, path string) string { return move(t, path) }, "was moved to"},
		{"moved, and another made", func(t *testing.T, path string) string {
			now := move(t, path)
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
			return now
		}, "was moved to"},
		{"moved, and a link left", func(t *testing.T, path string) string {
			now := move(t, path)
			if err := os.Symlink(now, path); err != nil {
				t.Fatal(err)
			}
			return now
		}, ""},
		{"the folder around it moved", func(t *testing.T, path string) string {
			return filepath.Join(move(t, filepath.Dir(path)), filepath.Base(path))
		}, "was moved to"},
		{"deleted", func(t *testing.T, path string) string {
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
			return ""
		}, "was deleted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := Create(filepath.Join(t.TempDir(), "runs", "r"))
			if err != nil {
				t.Fatal(err)
			}
			d, release, err := d.Hold()
			if err != nil {
				t.Fatal(err)
			}
			defer release()
			now := tt.change(t, d.Path)
			err = d.CheckPlace()
			var moved *MovedError
			if (tt.want == "") != (err == nil) || err != nil && (!errors.As(err, &moved) || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if moved != nil && (moved.Hint() == "" || now != "" && moved.Now != now) {
				t.Errorf("it is at %q, want %q; hint %q", moved.Now, now, moved.Hint())
			}
			if d.IsDeleted() != (now == "") {
				t.Errorf("deleted: %v", d.IsDeleted())
			}
			// A run can resume only from a directory with checkpoints.
			if moved != nil && strings.Contains(moved.Hint(), "resumes") {
				t.Errorf("it has no checkpoint: hint %q", moved.Hint())
			}
			werr := errors.Join(d.WriteEnd(End{Exit: 3, Time: time.Now()}), d.WriteLive(Live{}), d.AppendAttempt(AttemptEvent{Event: AttemptEnded}))
			if (werr == nil) != (now != "") {
				t.Errorf("write: %v", werr)
			}
			if now == "" {
				return
			}
			there := Dir{Path: now}
			if e, ok := there.ReadEnd(); !ok || e.Exit != 3 {
				t.Errorf("no end in %q", now)
			}
			if all, err := there.ReadAttempts(); err != nil || len(all) != 1 {
				t.Errorf("attempts %v, %v", all, err)
			}
		})
	}
}

func move(t *testing.T, path string) (now string) {
	t.Helper()
	now = path + "-moved"
	if err := os.Rename(path, now); err != nil {
		t.Fatal(err)
	}
	return now
}

// TestHoldRejectsExchangedDirectory checks that a directory that was checked is not opened if
// another user puts a link to a different run of the owner, or that run itself, at its path.
func TestHoldRejectsExchangedDirectory(t *testing.T) {
	for name, open := range map[string]func(string) (Dir, error){
		"create":   Create,
		"existing": Existing,
		"own": func(path string) (Dir, error) {
			info, err := os.Lstat(path) // as in OpenOwn
			return Dir{Path: path, checked: info}, err
		},
	} {
		for how, exchange := range map[string]func(other, path string) error{"link": os.Symlink, "rename": os.Rename} {
			t.Run(name+" "+how, func(t *testing.T) {
				path, other := mustCreate(t).Path, mustCreate(t).Path
				d, err := open(path)
				if err != nil {
					t.Fatal(err)
				}
				now := move(t, path)
				if err := exchange(other, path); err != nil {
					t.Fatal(err)
				}
				if _, release, err := d.Hold(); !errors.Is(err, errReplaced) {
					t.Errorf("got %v, want %v", err, errReplaced)
					if err == nil {
						release()
					}
				}
				// The owner may move the directory and leave a link to it.
				if err := errors.Join(os.RemoveAll(path), os.Symlink(now, path)); err != nil {
					t.Fatal(err)
				}
				_, release, err := d.Hold()
				if err != nil {
					t.Fatal(err)
				}
				release()
			})
		}
	}
}

// TestRemoveKeepsAnotherDirectory checks that a run is not removed if a user who can write to the
// directory above renames another run to its path.
func TestRemoveKeepsAnotherDirectory(t *testing.T) {
	d := mustCreate(t)
	write := func(path string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(path, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(d.Path)
	held, release, err := d.Hold()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	moved := d.Path + ".moved"
	if err := errors.Join(os.Rename(d.Path, moved), os.Mkdir(d.Path, 0o700)); err != nil {
		t.Fatal(err)
	}
	write(d.Path)
	if err := held.Remove(); err == nil {
		t.Error("it removes a directory with files")
	}
	if _, err := os.Stat(filepath.Join(d.Path, "file")); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(moved); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
	if err := (Dir{Path: d.Path}).Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(d.Path); err == nil {
		t.Error("the directory is still there")
	}
}

// TestPathsBelowHeldDirectory checks that files are opened by their paths in the held directory, even
// if a different directory is at its path, and that no link is followed.
func TestPathsBelowHeldDirectory(t *testing.T) {
	d, err := Create(filepath.Join(t.TempDir(), "runs", "r"))
	if err != nil {
		t.Fatal(err)
	}
	held, release, err := d.Hold()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := os.WriteFile(d.Metrics(), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	now, other := move(t, d.Path), t.TempDir()
	if err := os.Symlink(other, d.Path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.Metrics(), []byte("the other run"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := held.OpenPath(held.Metrics())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := io.ReadAll(f); string(got) != "mine" {
		t.Errorf("got %q, %v", got, err)
	}
	if info, err := held.StatPath(held.Metrics()); err != nil || info.Size() != 4 {
		t.Errorf("got %v, %v", info, err)
	}
	if err := held.WriteTrace(3, func(w io.Writer) error { _, err := io.WriteString(w, "trace"); return err }); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(Dir{Path: now}.Trace(3)); string(got) != "trace" {
		t.Errorf("trace: got %q, %v", got, err)
	}
	if left, _ := os.ReadDir(other); len(left) != 1 {
		t.Errorf("files in the other directory: %v", left)
	}
	for _, link := range []string{filepath.Join(other, "metrics.jsonl"), "metrics.jsonl"} {
		if err := os.Symlink(link, filepath.Join(now, "program.jsonl")); err != nil {
			t.Fatal(err)
		}
		if f, err := held.OpenPath(held.ProgramMetrics()); err == nil {
			f.Close()
			t.Errorf("opened the link to %q", link)
		}
		os.Remove(filepath.Join(now, "program.jsonl"))
	}
	if f, err := held.OpenPath("/etc/passwd"); err == nil {
		f.Close()
		t.Error("opened a file outside of the directory")
	}
}

// TestRemoveCode checks that the snapshot of a submission is removed from the held directory only.
func TestRemoveCode(t *testing.T) {
	held, release, err := mustCreate(t).Hold()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	code, err := held.OpenCode()
	if err != nil {
		t.Fatal(err)
	}
	defer code.Close()
	if err := errors.Join(code.Mkdir("ab12", 0o700), code.WriteFile("ab12/train.py", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	now := move(t, held.Path)
	// Another user links to a directory in which the user has renamed the data of the owner.
	data := filepath.Join(t.TempDir(), "ab12")
	if err := errors.Join(os.Mkdir(data, 0o700), os.WriteFile(filepath.Join(data, "results"), nil, 0o600),
		os.Mkdir(held.Path, 0o700), os.Symlink(filepath.Dir(data), filepath.Join(held.Path, "code"))); err != nil {
		t.Fatal(err)
	}
	if err := held.RemoveCode("ab12"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(data, "results")); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(filepath.Join(now, "code")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestJobIDsOfHeldDirectory checks that logs in a different directory at the path of a held directory do
// not name jobs of the run.
func TestJobIDsOfHeldDirectory(t *testing.T) {
	d, release, err := mustCreate(t).Hold()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for _, name := range []string{"slurm-18.out", "slurm-19_3.out", "slurm-0x1.out", "slurm-.out", "slurm-20.err"} {
		if err := os.WriteFile(filepath.Join(d.Path, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	move(t, d.Path)
	if err := errors.Join(os.Mkdir(d.Path, 0o700), os.WriteFile(filepath.Join(d.Path, "slurm-77.out"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if got, want := d.JobIDs(), []string{"18", "19_3"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestOpenRun checks which directory OpenRun opens for a single run and for a sweep.
func TestOpenRun(t *testing.T) {
	base := t.TempDir()
	made := func(name string, sweep *SweepRecord) Dir {
		d, err := Create(filepath.Join(base, name))
		if err != nil {
			t.Fatal(err)
		}
		r := NewRecord(name, base, "1")
		r.Sweep = sweep
		if err := d.WriteRecord(r); err != nil {
			t.Fatal(err)
		}
		return d
	}
	single, sweep, first := made("single", nil), made("sweep", &SweepRecord{Elements: make([]ElementRecord, 2)}), 0
	trial, err := Create(sweep.Element(first).Path)
	if err != nil {
		t.Fatal(err)
	}
	missing := 1
	for _, tt := range []struct {
		name  string
		path  string
		index *int
		want  string
		err   string
	}{
		{name: "single run", path: single.Path, want: single.Path},
		{name: "single run with an index", path: single.Path, index: &first, want: single.Path},
		{name: "trial", path: sweep.Path, index: &first, want: trial.Path},
		{name: "no index", path: sweep.Path, err: "belongs to a sweep"},
		{name: "missing trial", path: sweep.Path, index: &missing, err: "no such file"},
		{name: "missing run", path: filepath.Join(base, "other"), err: "no such file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, release, err := OpenRun(tt.path, tt.index)
			if err != nil {
				if tt.err == "" || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want %q", err, tt.err)
				}
				return
			}
			defer release()
			if d.Path != tt.want || !d.IsHeld() || tt.err != "" {
				t.Errorf("got %q, want %q; error %q", d.Path, tt.want, tt.err)
			}
		})
	}
}
