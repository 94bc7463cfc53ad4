package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/templates/sites"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// TestMain also runs the test binary as a rank that Run starts, and as "ddpbatch start". The rank's
// behavior is in the variable BEHAVIOUR, which is passed like the job's own variables.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "run" {
		os.Exit(rank(os.Args[3]))
	}
	if len(os.Args) > 1 && os.Args[1] == "fake-torchrun" {
		os.Exit(fakeTorchrun())
	}
	if len(os.Args) > 3 && os.Args[1] == "start" {
		path, err := lookPath(os.Environ(), os.Args[3])
		if err == nil {
			err = syscall.Exec(path, os.Args[3:], os.Environ())
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(127)
	}
	if len(os.Args) > 3 && os.Args[1] == "other-user" {
		os.Exit(otherUser(os.Args[2], os.Args[3]))
	}
	os.Exit(m.Run())
}

// generic returns the site profile without settings.
func generic() *sites.Profile {
	p, err := sites.Finder{}.Find("generic", "")
	if err != nil {
		panic(err)
	}
	return p
}

func rank(dir string) int {
	place, err := DetectRank(os.LookupEnv, "")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	job, err := jobs.Load(filepath.Join(dir, "job.toml"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	special := place.Rank == 1
	behaviour := os.Getenv("BEHAVIOUR")
	switch {
	case behaviour == "absent" && special:
		time.Sleep(time.Minute)
	case behaviour == "crash at start" && special:
		return 1
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGUSR1)
	spec := "spec"
	if behaviour == "other spec" && special {
		spec = "other"
	}
	joined, err := Join(context.Background(), JoinOptions{Job: job, Site: generic(), Dir: rundir.Dir{Path: dir}, Info: place, Program: "program", Spec: spec,
		Lookup: os.LookupEnv, Say: func(string) {}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	exit, failure := 0, error(nil)
	switch {
	case behaviour == "fail" && special:
		exit, failure = 9, errors.New("the third argument is wrong")
	case behaviour == "die" && special:
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case behaviour == "exits without a word" && special:
		os.Exit(0)
	case behaviour == "stick" && special:
		// This rank ignores the stop request and SIGTERM.
		signal.Ignore(syscall.SIGTERM)
		select {}
	case behaviour == "stick":
		exit, failure = 1, errors.New("one of us sticks")
	case strings.HasPrefix(behaviour, "train,"):
		exit, failure = train(joined, job, dir)
	case behaviour == "program":
		exit, failure = joined.Program(context.Background(), ProgramOptions{Environ: os.Environ(),
			Stdout: os.Stdout, Stderr: os.Stderr, Signals: signals, Say: func(string) {}})
	case behaviour == "fail" || behaviour == "die" || behaviour == "wait" || behaviour == "exits without a word":
		select {
		case <-joined.Session.Context().Done():
			exit, failure = 4, context.Cause(joined.Session.Context())
		case <-joined.Session.Stopping():
			fmt.Println("stopping:", joined.Session.StopReason())
			exit = 3
		}
	case behaviour == "once":
		// This rank fails in the first attempt after it has saved a checkpoint, and succeeds
		// in the second.
		if os.Getenv(envAttempt) == "1" && special {
			exit, failure = 1, errors.New("not yet")
		}
	}
	if _, launched := os.LookupEnv(LauncherVariable); !launched && failure != nil {
		fmt.Fprintln(os.Stderr, failure)
	}
	joined.Leave(exit, failure)
	return exit
}

// lastDir is the run directory of the last call of launched.
var lastDir rundir.Dir

// launched runs n ranks with the given behavior. It returns the result and the messages.
func launched(t *testing.T, n int, behaviour, more string, signals <-chan os.Signal) (Result, string, error) {
	t.Helper()
	joinTimeout := "1m" // for a busy machine
	if behaviour == "absent" || behaviour == "crash at start" {
		joinTimeout = "5s"
	}
	text := fmt.Sprintf("name = \"t\"\n[network]\njoin_timeout = %q\n[setup]\nenv = { BEHAVIOUR = %q }\n", joinTimeout, behaviour) + more
	if !strings.Contains(more, "[command]") && !strings.Contains(more, "[train]") {
		text += "[command]\nargv = [\"true\"]\n"
	}
	job, err := jobs.Parse("job.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := rundir.Create(filepath.Join(t.TempDir(), "run"))
	if err != nil {
		t.Fatal(err)
	}
	lastDir = dir
	if _, err := dir.Prepare("t", dir.Path, "v", []byte(text)); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	var mu sync.Mutex
	var said []string
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	result, err := Run(ctx, Options{Job: job, Site: generic(), Dir: dir, Binary: os.Args[0], Program: "program", Spec: "spec", Environ: os.Environ(),
		Processes: n, Stdout: out, Stderr: out, Signals: signals, Say: func(line string) {
			mu.Lock()
			defer mu.Unlock()
			said = append(said, line)
		}})
	printed, _ := os.ReadFile(out.Name())
	_, ferr := os.Stat(dir.Failure())
	if (result.Failure != nil) != (ferr == nil) {
		t.Errorf("failure %v, failure.json: %v", result.Failure, ferr)
	}
	return result, strings.Join(said, "\n") + "\n" + string(printed), err
}

// TestHowAttemptsEnd checks the exit code, the state, and the reason of an attempt for each way in
// which a rank can fail.
func TestHowAttemptsEnd(t *testing.T) {
	for _, tt := range []struct {
		behaviour string
		exit      int
		state     rendezvous.State
		want      string
	}{
		{"quiet", 0, "", ""},
		{"fail", 9, rendezvous.Failed, "the third argument is wrong"},
		{"die", exitLost, rendezvous.Lost, "rank 1 on "},
		{"exits without a word", exitLost, rendezvous.Lost, "rank 1 on "},
		{"absent", exitLost, rendezvous.Missing, "1 of 3 ranks did not join within 5s: rank 1 on "},
		{"crash at start", exitLost, rendezvous.Missing, "1 of 3 ranks did not join"},
		{"other spec", exitLost, "", "reads another job file"},
		{"stick", 1, rendezvous.Failed, "one of us sticks"},
	} {
		t.Run(tt.behaviour, func(t *testing.T) {
			result, said, err := launched(t, 3, tt.behaviour, "", nil)
			if err != nil {
				t.Fatal(err)
			}
			if result.Exit != tt.exit {
				t.Errorf("exit code %d, want %d\n%s", result.Exit, tt.exit, said)
			}
			if tt.want == "" {
				if result.Failure != nil {
					t.Errorf("failure %v", result.Failure)
				}
				return
			}
			if result.Failure == nil || result.Failure.State != tt.state || !strings.Contains(result.Failure.Reason, tt.want) {
				t.Errorf("failure %+v, want %q", result.Failure, tt.want)
			}
			if tt.behaviour == "die" {
				f, r := result.Failure, result.Ranks[1]
				if f.Exit != 128+9 || f.Signal != "SIGKILL" || !strings.HasSuffix(f.Reason, "its process was killed by SIGKILL") || r.Exit != f.Exit || r.Signal != f.Signal {
					t.Errorf("a killed rank: first %+v, rank %+v", f, r)
				}
			}
		})
	}
}

// TestStopReachesTheRanks checks that each signal stops all ranks with its reason.
func TestStopReachesTheRanks(t *testing.T) {
	for s, want := range map[os.Signal]stopReason{syscall.SIGUSR1: reasonSignal, syscall.SIGTERM: reasonTerminated, os.Interrupt: reasonTerminated} {
		signals := make(chan os.Signal, 1)
		time.AfterFunc(300*time.Millisecond, func() { signals <- s })
		result, said, err := launched(t, 3, "wait", "[restart]\nmax_without_progress = 5\n", signals)
		if err != nil || result.Exit != 3 || result.Failure != nil {
			t.Errorf("%v: %+v, %v", s, result, err)
		}
		if n := strings.Count(said, "stopping: "+string(want)); n != 3 {
			t.Errorf("%v: %d ranks were told:\n%s", s, n, said)
		}
	}
}

// TestSecondInterruptEndsAtOnce checks that a second interrupt does not wait for ranks that ignore
// the first.
func TestSecondInterruptEndsAtOnce(t *testing.T) {
	dir := t.TempDir()
	signals := make(chan os.Signal)
	ready := signalWhenExists(t, dir+"/ready")
	interrupt := func() {
		select {
		case signals <- os.Interrupt:
		case <-t.Context().Done():
		}
	}
	go func() {
		<-ready
		interrupt()
		interrupt() // a repetition: the launcher receives it after it has recorded the time of the first
		time.Sleep(signalRepeatInterval)
		interrupt()
	}()
	section := shellJob(t, "trap '' TERM; cd "+dir+"; touch up$RANK; until [ -e up0 ] && [ -e up1 ]; do sleep 0.1; done; touch ready; sleep 600")
	result, said, err := launched(t, 2, "program", section, signals)
	if err != nil || result.Exit != exitCanceled {
		t.Errorf("%+v, %v\n%s", result, err, said)
	}
}

// TestRepeatedInterruptIsOneStop checks that interrupts in quick succession, which timeout(1) causes
// on Control-C, are one stop request: the ranks can save.
func TestRepeatedInterruptIsOneStop(t *testing.T) {
	dir := t.TempDir()
	signals := make(chan os.Signal, 3)
	section := shellJob(t, "trap 'sleep 1; touch "+dir+"/saved; exit 3' TERM; touch "+dir+"/ready; while :; do sleep 0.1; done")
	ready := signalWhenExists(t, dir+"/ready")
	go func() {
		<-ready
		for range cap(signals) {
			signals <- os.Interrupt
		}
	}()
	result, said, err := launched(t, 1, "program", section, signals)
	if _, unsaved := os.Stat(dir + "/saved"); err != nil || unsaved != nil || result.Exit != exitStopped {
		t.Errorf("%+v, %v, %v\n%s", result, err, unsaved, said)
	}
}

// TestRestartsAreBoundedByProgress checks that restarts without progress end after the given
// number.
func TestRestartsAreBoundedByProgress(t *testing.T) {
	result, said, err := launched(t, 2, "once", "[restart]\nmax_without_progress = 1\n", nil)
	if err != nil || result.Exit != 0 || !strings.Contains(said, "not yet; starting again (1 of 1 without progress)") {
		t.Errorf("%+v, %v\n%s", result, err, said)
	}
	result, said, err = launched(t, 2, "fail", "[restart]\nmax_without_progress = 2\n", nil)
	if err != nil || result.Exit != 9 || strings.Count(said, "starting again") != 2 || !strings.Contains(said, "giving up: no progress in 2 restarts") {
		t.Errorf("%+v, %v\n%s", result, err, said)
	}
}

// TestWorkersDoNotOutliveTheProgram checks that the workers of a program end with it,
// regardless of how it ends, and if the rank's process is killed.
func TestWorkersDoNotOutliveTheProgram(t *testing.T) {
	for name, end := range map[string]string{"well": "exit 0", "badly": "exit 3", "killed": "kill -KILL $$", "with its rank": "kill -KILL $PPID; sleep 300"} {
		pidfile := filepath.Join(t.TempDir(), "pid")
		_, said, err := launched(t, 1, "program", fmt.Sprintf("[command]\nargv = [\"/bin/sh\", \"-c\", \"sleep 300 & echo $! > %s; %s\"]\n", pidfile, end), nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(pidfile)
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, said)
		}
		var pid int
		fmt.Sscan(string(text), &pid)
		for end := time.Now().Add(5 * time.Minute); syscall.Kill(pid, 0) == nil; time.Sleep(10 * time.Millisecond) {
			if stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); strings.Contains(string(stat), ") Z ") {
				break // a zombie: its parent has not waited for it yet
			}
			if time.Now().After(end) {
				t.Fatalf("%s: the worker outlived its program", name)
			}
		}
	}
}

// TestSignalToARank checks that a rank forwards a signal to its program.
func TestSignalToARank(t *testing.T) {
	result, said, err := launched(t, 2, "program",
		"[command]\nargv = [\"/bin/sh\", \"-c\", \"trap 'exit 5' TERM; kill -TERM $PPID; while :; do sleep 0.1; done\"]\n", nil)
	if err != nil || result.Exit != 5 || result.Failure != nil {
		t.Errorf("%+v, %v\n%s", result, err, said)
	}
}

// TestProgramsEnd checks the exit code and the reason for each way in which a user's program can
// end.
func TestProgramsEnd(t *testing.T) {
	for _, tt := range []struct {
		name, argv string
		exit       int
		want       string
	}{
		{"well", `["/bin/sh", "-c", "exit 0"]`, 0, ""},
		{"with a code", `["/bin/sh", "-c", "test $RANK = 0 || exit 7; sleep 30"]`, 7, "sh ended with exit code 7"},
		{"by a signal", `["/bin/sh", "-c", "test $RANK = 0 || kill -SEGV $$; sleep 30"]`, 128 + 11, "sh was killed by signal 11"},
		{"not found", `["no-such-program"]`, 1, `start "no-such-program": not found in PATH`},
		{"not executable", `["/etc/passwd"]`, 1, `start "/etc/passwd": `},
	} {
		t.Run(tt.name, func(t *testing.T) {
			result, said, err := launched(t, 2, "program", "[command]\nargv = "+tt.argv+"\n", nil)
			if err != nil || result.Exit != tt.exit {
				t.Fatalf("%+v, %v\n%s", result, err, said)
			}
			if tt.want == "" && result.Failure != nil || tt.want != "" && (result.Failure == nil || !strings.Contains(result.Failure.Reason, tt.want)) {
				t.Errorf("failure %v, want %q", result.Failure, tt.want)
			}
		})
	}
}

// TestCheckSingleLauncher checks that several launchers in one step are rejected.
func TestCheckSingleLauncher(t *testing.T) {
	for tasks, want := range map[int]bool{0: true, 1: true, 2: false, 8: false} {
		if err := CheckSingleLauncher(slurm.Allocation{StepTasks: tasks}); (err == nil) != want || err != nil && !strings.Contains(err.Error(), "once per allocation") {
			t.Errorf("a step of %d tasks: %v", tasks, err)
		}
	}
}
