package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/runs"
)

// fakeJobs is a fake Slurm that stores its state in the directory $FAKE_DIR: the calls that it
// received, and each job's script, environment, and working directory. The file job-ID.state
// has one line per squeue query, "STATE reason code:signal [start restarts]". The last line
// applies to all later queries. If the file PROGRAM.fails exists, PROGRAM prints its contents
// and fails.
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
	if args[0] == "--version" {
		fmt.Println("slurm 22.05.8")
		return nil
	}
	path := args[len(args)-1]
	script, err := os.ReadFile(path)
	if strings.HasPrefix(path, "-") {
		path = "(null)"
		script, err = io.ReadAll(os.Stdin)
	}
	if err != nil {
		return err
	}
	comment := ""
	for _, a := range args {
		if text, ok := strings.CutPrefix(a, "--comment="); ok {
			comment = text
		}
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
		"comment": comment, "path": path,
	} {
		if err := os.WriteFile(f.path(fmt.Sprintf("job-%d.%s", id, name)), []byte(text), 0o600); err != nil {
			return err
		}
	}
	for _, index := range elementsOf(string(script)) {
		if err := os.WriteFile(f.path(fmt.Sprintf("job-%d_%d.state", id, index)), []byte("PENDING Resources 0:0\n"), 0o600); err != nil {
			return err
		}
	}
	if _, err := os.Stat(f.path("sbatch.kills")); err == nil {
		return syscall.Kill(os.Getppid(), syscall.SIGKILL) // kill the process that waits for the answer
	}
	if _, err := os.Stat(f.path("sbatch.silent")); err == nil {
		return fmt.Errorf("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation")
	}
	fmt.Println(id)
	return nil
}

// elementsOf returns the indices in the --array directive of a script.
func elementsOf(script string) []int {
	_, rest, ok := strings.Cut(script, "#SBATCH --array=")
	if !ok {
		return nil
	}
	list, _, _ := strings.Cut(rest, "\n")
	list, _, _ = strings.Cut(list, "%")
	all, err := runs.ParseTrials(list, 1<<20)
	if err != nil {
		panic(err)
	}
	return all
}

// state returns the state, the reason, and the exit code of a job. If take is set, it removes
// the line unless it is the last one.
func (f fakeJobs) state(id string, take bool) ([]string, error) {
	path := f.path("job-" + id + ".state")
	text, err := os.ReadFile(path)
	for err == nil && len(text) == 0 { // a test is writing the file
		time.Sleep(time.Millisecond)
		text, err = os.ReadFile(path)
	}
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
			if err := f.queued(id); err != nil && !strings.Contains(ids, ",") {
				return err
			}
		}
	}
	if slices.Contains(args, "--me") {
		return f.comments(slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, "Command:") }))
	}
	return nil
}

// queued prints the line of a job, or one line per task of a job array.
func (f fakeJobs) queued(id string) error {
	files, err := filepath.Glob(f.path("job-" + id + "_*.state"))
	if err != nil {
		return err
	}
	elements := []string{id}
	if len(files) > 0 {
		elements = nil
	}
	for _, file := range files {
		elements = append(elements, strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "job-"), ".state"))
	}
	for _, id := range elements {
		s, err := f.state(id, true)
		if err != nil {
			return err
		}
		raw, task, isElement := strings.Cut(id, "_")
		if !isElement {
			task = "N/A"
		}
		code, signal, _ := strings.Cut(s[2], ":")
		c, _ := strconv.Atoi(code)
		n, _ := strconv.Atoi(signal)
		s = append(s, "N/A", "0")
		fmt.Printf("%s|%s|%s|%s|n[1-2]|0:10|%s|N/A|%s|%d|%s\n", raw, raw, task, s[0], s[3], s[4], c<<8|n, s[1])
	}
	return nil
}

// comments prints all jobs with their comments, and with the paths of their scripts and output
// if scripts is set.
func (f fakeJobs) comments(scripts bool) error {
	files, err := filepath.Glob(f.path("job-*.comment"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		id := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "job-"), ".comment")
		if path, err := os.ReadFile(f.path("job-" + id + ".path")); scripts && err == nil {
			script, err := os.ReadFile(f.path("job-" + id + ".sbatch"))
			if err != nil {
				return err
			}
			_, output, _ := strings.Cut(string(script), "#SBATCH --output=")
			output, _, _ = strings.Cut(output, "\n")
			text = fmt.Appendf(text, "|%s|%s", path, output)
		}
		fmt.Printf("%s|%s|N/A|0|%s\n", id, id, text)
	}
	return nil
}

func fakeSacct(fakeJobs, []string) error {
	return fmt.Errorf("Slurm accounting storage is disabled")
}

func fakeScancel(f fakeJobs, args []string) error {
	id := args[len(args)-1]
	elements, err := filepath.Glob(f.path("job-" + id + "_*.state"))
	if err != nil {
		return err
	}
	for _, path := range append(elements, f.path("job-"+id+".state")) {
		if err := os.WriteFile(path, []byte("CANCELLED None 0:15\n"), 0o600); err != nil {
			return err
		}
	}
	return nil
}
