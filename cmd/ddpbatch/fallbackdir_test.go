package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs/launch"
)

// TestFallbackDirIsRejected checks that commands do not use files in /tmp if Slurm started them there
// because the directory of the job does not exist on the node, nor files and directories of other users
// there.
func TestFallbackDirIsRejected(t *testing.T) {
	existing := t.TempDir()
	missing, link := filepath.Join(existing, "missing"), filepath.Join(existing, "link")
	below, err := os.MkdirTemp(fallbackDir, "ddpbatch-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(below) })
	name := filepath.Base(below)
	own, foreign, foreignLink, foreignDir := name+"/own.toml", name+"/foreign.toml", name+"/link.toml", name+"/dir"
	foreignModule, foreignProgram := name+"-module", name+"-program" // in /tmp itself
	err = errors.Join(os.Symlink(fallbackDir, link), os.WriteFile(filepath.Join(fallbackDir, own), nil, 0o600), os.WriteFile(filepath.Join(fallbackDir, foreign), nil, 0o644),
		os.Symlink("own.toml", filepath.Join(fallbackDir, foreignLink)), os.Symlink(".", filepath.Join(fallbackDir, foreignDir)),
		os.WriteFile(filepath.Join(fallbackDir, foreignModule+".py"), nil, 0o644), os.Mkdir(filepath.Join(fallbackDir, foreignProgram), 0o755),
		os.Mkdir(filepath.Join(below, "src"), 0o755))
	for _, name := range []string{foreign, foreignLink, foreignDir, foreignModule + ".py", foreignProgram} {
		t.Cleanup(func() { os.Remove(filepath.Join(fallbackDir, name)) })
		if os.Geteuid() == 0 {
			err = errors.Join(err, os.Lchown(filepath.Join(fallbackDir, name), 61001, -1))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	const another, unknown = "belongs to user 61001", "check who owns"
	for _, tt := range []struct {
		name, dir, submitDir string
		job                  string
		command              []string
		launcher             string
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
		{name: "missing job file, which another user could create", dir: "/tmp", submitDir: existing, job: name + "/missing.toml", fails: unknown},
		{name: "missing program, which another user could create", dir: "/tmp", submitDir: existing, command: []string{"./" + name + "/missing"}, fails: unknown},
		{name: "missing argument", dir: "/tmp", submitDir: existing, command: []string{"true", "0.1"}},
		{name: "directory that was moved away", dir: "/tmp/" + name + "/away", submitDir: existing, command: []string{"make"}, fails: unknown},
		{name: "value of an option", dir: "/tmp", submitDir: existing, command: []string{"true", "--config=" + foreign}, fails: another},
		{name: "value of a key", dir: "/tmp", submitDir: existing, command: []string{"true", "data.path=./" + foreignModule + ".py"}, fails: another},
		{name: "number in an option", dir: "/tmp", submitDir: existing, command: []string{"true", "--lr=0.1"}},
		{name: "flag", dir: "/tmp", submitDir: existing, command: []string{"true", "-" + foreign}},
		{name: "module of another user", dir: "/tmp", submitDir: existing, command: []string{"python3", "-u", "-m", foreignModule}, fails: another},
		{name: "package of another user", dir: "/tmp", submitDir: existing, command: []string{"python3", "-m", foreignProgram + ".train"}, fails: another},
		{name: "program in PATH with the name of a file", dir: "/tmp", submitDir: existing, command: []string{foreignModule + ".py"}},
		{name: "script of another user for torchrun", dir: "/tmp", submitDir: existing, launcher: "torchrun", command: []string{foreignModule + ".py"}, fails: another},
		{name: "missing script for torchrun, which another user could create", dir: "/tmp", submitDir: existing, launcher: "torchrun", command: []string{name + "-missing.py"}, fails: unknown},
		{name: "program in PATH for one rank", dir: "/tmp", submitDir: existing, launcher: "rank", command: []string{foreignModule + ".py"}},
		{name: "argument with the name of a directory", dir: "/tmp", submitDir: existing, command: []string{"true", "--epochs", foreignProgram}},
		{name: "program in a directory of another user", dir: "/tmp", submitDir: existing, command: []string{foreignProgram + "/true"}, fails: another},
		{name: "script changed to a directory of another user", dir: "/tmp/" + foreignProgram, submitDir: missing, job: "job.toml", fails: another},
		{name: "command in a directory of another user", dir: filepath.Join(link, foreignProgram), submitDir: existing, command: []string{"make"}, fails: another},
		{name: "script changed through a link of another user", dir: "/tmp/" + foreignDir + "/src", submitDir: existing, job: "job.toml", fails: another},
		{name: "file of another user in an own directory", dir: below, submitDir: existing, job: "foreign.toml"},
		{name: "file of another user above an own directory", dir: below, submitDir: existing, command: []string{"python3", "../" + foreignModule + ".py"}, fails: another},
	} {
		if tt.fails == another && os.Geteuid() != 0 {
			continue // requires root
		}
		p := &program{Dir: tt.dir, Command: tt.command, Env: []string{"SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n1", "SLURM_SUBMIT_DIR=" + tt.submitDir}}
		if tt.outside {
			p.Env = p.Env[2:]
		}
		errs := map[string]error{}
		if tt.job == "" {
			errs["launch"] = (&launchCmd{Launcher: tt.launcher}).checkAllocation(p, &launch.Options{})
		} else {
			// Without an error of this check, the job file is invalid or does not exist.
			errs["launch"] = (&launchCmd{Job: tt.job}).Run(t.Context(), p)
			errs["run"] = (&rank{program: p}).open(t.Context(), &runCmd{Job: tt.job})
			errs["submit"] = (&submitCmd{Job: tt.job}).Run(t.Context(), p)
			if tt.fails != "" {
				_, errs["env"] = (&envCmd{Site: "./" + tt.job}).network(t.Context(), p, launch.RankInfo{})
			}
			errs["repair"] = (&repairCmd{Which: "run", Job: tt.job}).Run(t.Context(), p)
		}
		for command, err := range errs {
			isExpected := err != nil && strings.Contains(err.Error(), tt.fails)
			if tt.fails == "" {
				isExpected = err == nil || tt.job != "" && !strings.Contains(err.Error(), "Slurm starts") && !strings.Contains(err.Error(), missing)
			}
			if !isExpected {
				t.Errorf("%s: %s: got error %v, want %q", tt.name, command, err, tt.fails)
			}
		}
	}
}
