package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// fakeJobs is a Slurm that keeps everything in the folder $FAKE_DIR: the calls it
// got, and for each job its script, environment and folder. The file job-ID.state
// has a line for each time that squeue is asked, the last one for all later
// times: "STATE reason code:signal". Where there is a file PROGRAM.fails, that
// program says what is in it and fails.
type fakeJobs struct{ dir string }

func (f fakeJobs) path(name string) string { return filepath.Join(f.dir, name) }

func fakeSlurm(program string, run func(fakeJobs, []string) error) int {
	f := fakeJobs{os.Getenv("FAKE_DIR")}
	calls, err := os.OpenFile(f.path("calls"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		fmt.Fprintln(calls, program, strings.Join(os.Args[1:], " "))
		err = calls.Close()
	}
	if err == nil {
		var says []byte
		if says, err = os.ReadFile(f.path(program + ".fails")); err == nil {
			err = fmt.Errorf("%s", strings.TrimSpace(string(says)))
		} else {
			err = run(f, os.Args[1:])
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func fakeSbatch(f fakeJobs, args []string) error {
	if args[0] == "--test-only" {
		script, err := io.ReadAll(os.Stdin)
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, "sbatch: Job 7 to start at 2026-01-01T00:00:00 using 4 processors on nodes n[1-2] in partition all")
		return os.WriteFile(f.path("tested.sbatch"), script, 0o600)
	}
	script, err := os.ReadFile(args[len(args)-1])
	if err != nil {
		return err
	}
	id := 101
	for {
		if _, err := os.Stat(f.path(fmt.Sprintf("job-%d.sbatch", id))); err != nil {
			break
		}
		id++
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"sbatch": string(script), "env": strings.Join(os.Environ(), "\n") + "\n", "dir": dir + "\n", "state": "PENDING Resources 0:0\n",
	} {
		if err := os.WriteFile(f.path(fmt.Sprintf("job-%d.%s", id, name)), []byte(text), 0o600); err != nil {
			return err
		}
	}
	fmt.Println(id)
	return nil
}

// state returns the state, reason and exit code of a job, and takes the line away
// if it is not the last.
func (f fakeJobs) state(id string, take bool) ([]string, error) {
	path := f.path("job-" + id + ".state")
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("slurm_load_jobs error: Invalid job id specified")
	}
	first, rest, _ := strings.Cut(string(text), "\n")
	if take && rest != "" {
		if err := os.WriteFile(path, []byte(rest), 0o600); err != nil {
			return nil, err
		}
	}
	return strings.Fields(first), nil
}

func fakeSqueue(f fakeJobs, args []string) error {
	for _, a := range args {
		ids, ok := strings.CutPrefix(a, "--jobs=")
		if !ok {
			continue
		}
		for id := range strings.SplitSeq(ids, ",") {
			s, err := f.state(id, true)
			if err != nil && !strings.Contains(ids, ",") {
				return err
			}
			if err == nil {
				fmt.Printf("%s|%s|%s|n[1-2]|0:10|N/A|N/A|name\n", id, s[0], s[1])
			}
		}
	}
	return nil
}

func fakeScontrol(f fakeJobs, args []string) error {
	s, err := f.state(args[len(args)-1], false)
	if err == nil {
		fmt.Printf("JobId=%s JobName=name\n   JobState=%s Reason=%s Dependency=(null)\n   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=%s\n",
			args[len(args)-1], s[0], s[1], s[2])
	}
	return err
}

func fakeSacct(fakeJobs, []string) error {
	return fmt.Errorf("Slurm accounting storage is disabled")
}

func fakeScancel(f fakeJobs, args []string) error {
	return os.WriteFile(f.path("job-"+args[len(args)-1]+".state"), []byte("CANCELLED None 0:15\n"), 0o600)
}
