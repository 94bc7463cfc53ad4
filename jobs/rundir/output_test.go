package rundir

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestLaunchLogs checks that each launch has a separate, private log, and that the last ten are
// retained.
func TestLaunchLogs(t *testing.T) {
	d := mustCreate(t)
	now := time.Date(2026, 11, 22, 19, 0, 0, 0, time.UTC)
	var all []string
	for i := range 12 {
		at := now.Add(time.Duration(i) * time.Hour)
		if i == 6 {
			at = now.Add(-time.Hour) // simulate a clock that was set back
		}
		f, err := d.CreateLaunchLog(at)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		if m := mode(t, f.Name()); m != 0o600 {
			t.Errorf("mode %o, want 600", m)
		}
		all = append(all, f.Name())
	}
	for _, other := range []string{"launch-notes.out", "launch-20261122T190000.000Z.out.gz"} {
		if err := os.WriteFile(filepath.Join(d.Path, other), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	logs, err := d.LaunchLogs()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range logs {
		got = append(got, l.Path)
	}
	if want := all[2:]; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestLaunchLogIsNotALink checks that CreateLaunchLog neither follows nor replaces a symbolic link
// that another user created.
func TestLaunchLogIsNotALink(t *testing.T) {
	d := mustCreate(t)
	now := time.Date(2026, 11, 22, 19, 0, 0, 0, time.UTC)
	target := filepath.Join(t.TempDir(), "target")
	if err := os.Symlink(target, filepath.Join(d.Path, "launch-20261122T190000.000Z.out")); err != nil {
		t.Fatal(err)
	}
	f, err := d.CreateLaunchLog(now)
	if err == nil {
		t.Errorf("created %s over a link", f.Name())
	}
	if _, err := os.Stat(target); !os.IsNotExist(err) {
		t.Errorf("the target of the link: %v, want none", err)
	}
	if logs, err := d.LaunchLogs(); err != nil || len(logs) > 0 {
		t.Errorf("got logs %v, %v, want none", logs, err)
	}
}

// TestOutputLog checks that the newest output is the log of the last launch or of a job submitted
// later.
func TestOutputLog(t *testing.T) {
	at := time.Date(2026, 11, 22, 19, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		launched, submitted time.Time
		want                string
	}{
		"nothing":                        {time.Time{}, time.Time{}, ""},
		"launched":                       {at, time.Time{}, "launch-20261122T190000.000Z.out"},
		"submitted":                      {time.Time{}, at, "slurm-18.out"},
		"submitted after the launch":     {at, at.Add(time.Hour), "slurm-18.out"},
		"submitted in the same second":   {at.Add(time.Second / 2), at, "slurm-18.out"},
		"launched after the submission":  {at, at.Add(-time.Second), "launch-20261122T190000.000Z.out"},
		"launched long after submission": {at, at.Add(-time.Hour), "launch-20261122T190000.000Z.out"},
	} {
		t.Run(name, func(t *testing.T) {
			d := mustCreate(t)
			var r Record
			if !tt.submitted.IsZero() {
				r.Submissions = []Submission{{JobID: "18", Time: tt.submitted}}
			}
			if !tt.launched.IsZero() {
				f, err := d.CreateLaunchLog(tt.launched)
				if err != nil {
					t.Fatal(err)
				}
				f.Close()
			}
			if got := strings.TrimPrefix(d.OutputLog(r), d.Path+"/"); !strings.HasPrefix(got, strings.TrimSuffix(tt.want, "000Z.out")) || (got == "") != (tt.want == "") {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
