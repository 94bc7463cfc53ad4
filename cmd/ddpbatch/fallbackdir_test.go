package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs/launch"
)

// TestFallbackDirIsRejected checks that launch and run do not use files in /tmp if Slurm started them
// there because the directory of the job does not exist on the node, nor files of other users there.
func TestFallbackDirIsRejected(t *testing.T) {
	existing := t.TempDir()
	missing, link := filepath.Join(existing, "missing"), filepath.Join(existing, "link")
	below, err := os.MkdirTemp(fallbackDir, "ddpbatch-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(below) })
	own, foreign, foreignLink, foreignDir := filepath.Base(below)+"/own.toml", filepath.Base(below)+"/foreign.toml", filepath.Base(below)+"/link.toml", filepath.Base(below)+"/dir"
	err = errors.Join(os.Symlink(fallbackDir, link), os.WriteFile(filepath.Join(fallbackDir, own), nil, 0o600), os.WriteFile(filepath.Join(fallbackDir, foreign), nil, 0o644),
		os.Symlink("own.toml", filepath.Join(fallbackDir, foreignLink)), os.Symlink(".", filepath.Join(fallbackDir, foreignDir)))
	for _, name := range []string{foreign, foreignLink, foreignDir} {
		if os.Geteuid() == 0 {
			err = errors.Join(err, os.Lchown(filepath.Join(fallbackDir, name), 61001, -1))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	const another = "belongs to user 61001"
	for _, tt := range []struct {
		name, dir, submitDir string
		job                  string
		command              []string
		outside              bool   // of a Slurm job
		fails                string // part of the error
	}{
		{name: "missing directory", dir: "/tmp", submitDir: missing, job: "job.toml", fails: missing},
		{name: "missing directory, with a command", dir: "/tmp", submitDir: missing, command: []string{"./train.py"}, fails: missing},
		{name: "missing directory, and a link to /tmp", dir: link, submitDir: missing, job: "job.toml", fails: missing},
		{name: "script changed to /tmp", dir: "/tmp", submitDir: existing, job: own},
		{name: "submitted in /tmp", dir: "/tmp", submitDir: "/tmp", job: own},
		{name: "script changed to another directory", dir: existing, submitDir: missing, job: "job.toml"},
		{name: "job file of another user", dir: "/tmp", submitDir: existing, job: foreign, fails: another},
		{name: "job file of another user, submitted in /tmp", dir: link, submitDir: "/tmp", job: "./" + foreign, fails: another},
		{name: "link of another user", dir: "/tmp", submitDir: existing, job: foreignLink, fails: another},
		{name: "own file through a directory of another user", dir: "/tmp", submitDir: existing, job: foreignDir + "/own.toml", fails: another},
		{name: "absolute path", dir: "/tmp", submitDir: existing, job: "/tmp/" + foreign},
		{name: "outside of a job", dir: "/tmp", submitDir: missing, job: foreign, outside: true},
		{name: "program of another user", dir: "/tmp", submitDir: existing, command: []string{"python3", "-u", foreign}, fails: another},
		{name: "flag", dir: "/tmp", submitDir: existing, command: []string{"true", "-" + foreign}},
	} {
		if tt.fails == another && os.Geteuid() != 0 {
			continue // requires root
		}
		p := &program{Dir: tt.dir, Command: tt.command, Env: []string{"SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n1", "SLURM_SUBMIT_DIR=" + tt.submitDir}}
		if tt.outside {
			p.Env = p.Env[2:]
		}
		launchErr := (&launchCmd{Job: tt.job}).checkAllocation(p, &launch.Options{})
		runErr := launchErr
		if tt.job != "" {
			// Without an error of this check, the job file is invalid or does not exist.
			runErr = (&runCmd{Job: tt.job}).Run(t.Context(), p)
		}
		for command, err := range map[string]error{"launch": launchErr, "run": runErr} {
			isExpected := err != nil && strings.Contains(err.Error(), tt.fails)
			if tt.fails == "" {
				isExpected = err == nil || command == "run" && !strings.Contains(err.Error(), "Slurm starts") && !strings.Contains(err.Error(), missing)
			}
			if !isExpected {
				t.Errorf("%s: %s: got error %v, want %q", tt.name, command, err, tt.fails)
			}
		}
	}
}
