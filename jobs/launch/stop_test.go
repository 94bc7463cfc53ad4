package launch

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/process"
)

// TestStopTargets checks which processes of a program get the stop signal.
func TestStopTargets(t *testing.T) {
	usr1 := process.Mask(syscall.SIGUSR1)
	background := process.Mask(syscall.SIGINT) | process.Mask(syscall.SIGQUIT)
	with := func(p userProcess, children ...*userProcess) *userProcess { p.children = children; return &p }
	handler := func(pid int, children ...*userProcess) *userProcess {
		return with(userProcess{Stat: process.Stat{PID: pid}, caught: usr1}, children...)
	}
	plain := func(pid int, children ...*userProcess) *userProcess {
		return with(userProcess{Stat: process.Stat{PID: pid}}, children...)
	}
	shell := func(pid int, children ...*userProcess) *userProcess {
		return with(userProcess{Stat: process.Stat{PID: pid}, shell: true}, children...)
	}
	trap := func(pid int, children ...*userProcess) *userProcess {
		return with(userProcess{Stat: process.Stat{PID: pid}, shell: true, caught: usr1}, children...)
	}
	wrapper := func(pid int, caught uint64, children ...*userProcess) *userProcess {
		return with(userProcess{Stat: process.Stat{PID: pid}, wrapper: true, caught: caught}, children...)
	}
	monitor := &userProcess{Stat: process.Stat{PID: 9}, caught: 0xfffffffd7fc1feff, ignored: background} // a Go program
	worker := func(pid int, caught uint64) *userProcess {
		return &userProcess{Stat: process.Stat{PID: pid}, elasticID: "none", caught: caught}
	}
	for _, tt := range []struct {
		name    string
		program *userProcess
		orphans []*userProcess
		want    []int
		handled bool
		empty   bool
	}{
		{"handler", handler(1), nil, []int{1}, true, false},
		{"handler with data workers", handler(1, handler(2), handler(3)), nil, []int{1}, true, false},
		{"signal is blocked for sigwait", with(userProcess{Stat: process.Stat{PID: 1}, blocked: usr1}), nil, []int{1}, true, false},
		{"no handler", plain(1, plain(2)), nil, []int{1}, false, false},
		{"data worker below a program without a handler", plain(1, handler(2)), nil, []int{1}, false, false},
		{"Go program below a program without a handler", shell(1, plain(2, monitor)), nil, []int{1}, false, false},
		{"Go program", with(userProcess{Stat: process.Stat{PID: 1}, caught: monitor.caught}), nil, []int{1}, true, false},
		{"Go program below a shell", shell(1, with(userProcess{Stat: process.Stat{PID: 2}, caught: monitor.caught})), nil, []int{2}, true, false},
		{"Go program in the background", shell(1, monitor, handler(2)), nil, []int{2}, true, false},
		{"Go program in the background, no handler", shell(1, monitor, plain(2)), nil, []int{1}, false, false},
		{"Go program in the background alone", shell(1, monitor), nil, []int{9}, true, false},
		{"wrapper", wrapper(1, 0, handler(2, handler(3))), nil, []int{2}, true, false},
		{"wrapper that catches the signal", wrapper(1, usr1, shell(2, handler(3))), nil, []int{3}, true, false},
		{"wrapper without a handler below", wrapper(1, 0, plain(2, handler(3))), nil, []int{1}, false, false},
		{"wrapper that catches the signal, without a handler below", wrapper(1, usr1, plain(2, handler(3))), nil, []int{2}, false, false},
		{"torchrun in a wrapper", wrapper(1, usr1, plain(2, worker(3, usr1))), nil, []int{3}, true, false},
		{"worker with a data worker", plain(1, with(userProcess{Stat: process.Stat{PID: 2}, elasticID: "none"}, worker(3, usr1))), nil, []int{2}, false, false},
		{"shell without a trap", shell(1, handler(2, handler(3))), nil, []int{2}, true, false},
		{"shell without a trap and without a handler below", shell(1, plain(2)), nil, []int{1}, false, false},
		{"shell with a trap", trap(1, handler(2)), nil, []int{1, 2}, true, false},
		{"shell with a trap and a command that has no handler", trap(1, plain(2)), nil, []int{1}, true, false},
		{"shell with a trap that waits for the background", trap(1, with(userProcess{Stat: process.Stat{PID: 2}, caught: usr1, ignored: background})), nil, []int{1}, true, false},
		{"shell without a trap and the background", shell(1, with(userProcess{Stat: process.Stat{PID: 2}, caught: usr1, ignored: background})), nil, []int{2}, true, false},
		{"torchrun", plain(1, worker(2, usr1), worker(3, usr1)), nil, []int{2, 3}, true, false},
		{"torchrun that handles the signal", handler(1, worker(2, usr1), plain(3)), nil, []int{2}, true, false},
		{"torchrun, one worker handles", plain(1, worker(2, usr1), worker(3, 0)), nil, []int{2, 3}, true, false},
		{"torchrun, no worker handles", plain(1, worker(2, 0), worker(3, 0)), nil, []int{2, 3}, false, false},
		{"torchrun below a shell", shell(1, plain(2, worker(3, usr1))), nil, []int{3}, true, false},
		{"torchrun without workers", with(userProcess{Stat: process.Stat{PID: 1}, launcher: true, caught: usr1}), nil, nil, false, true},
		{"deepspeed", with(userProcess{Stat: process.Stat{PID: 1}, launcher: true}, with(userProcess{Stat: process.Stat{PID: 2}, launcher: true}, handler(3), handler(4))), nil, []int{3, 4}, true, false},
		{"workers that are shells", plain(1, with(userProcess{Stat: process.Stat{PID: 2}, elasticID: "none", shell: true}, worker(3, usr1))), nil, []int{3}, true, false},
		{"the shell has ended", nil, []*userProcess{handler(2, handler(3)), plain(4)}, []int{2}, true, false},
		{"shell below a shell ends meanwhile", shell(1, with(userProcess{Stat: process.Stat{PID: 2, Ended: true}}, worker(3, usr1))), nil, []int{3}, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := stopRequest{signal: syscall.SIGUSR1}
			r.findTargets(tt.program, tt.orphans)
			var got []int
			handled := false
			for _, p := range r.targets {
				got = append(got, p.PID)
				handled = handled || p.handles(syscall.SIGUSR1)
			}
			if !slices.Equal(got, tt.want) || handled != tt.handled || r.noWorkers != tt.empty {
				t.Errorf("got %v, handled %v, empty %v, want %v, %v, %v", got, handled, r.noWorkers, tt.want, tt.handled, tt.empty)
			}
		})
	}
}

// TestIsLauncher checks which command lines start a launcher of workers, directly or through
// Python.
func TestIsLauncher(t *testing.T) {
	for command, want := range map[string]bool{
		"torchrun --nnodes 2 train.py":                  true,
		"/usr/bin/python3 /usr/bin/torchrun train.py":   true,
		"python3.11 -u -m torch.distributed.run t.py":   true,
		"python3.13t -m torch.distributed.run t.py":     true,
		"pypy3 -m torch.distributed.run t.py":           true,
		"python3 -m accelerate.commands.launch t.py":    true,
		"/opt/venv/bin/accelerate launch train.py":      true,
		"python -u -m deepspeed.launcher.launch --x 1":  true,
		"python3 train.py torchrun":                     false,
		"python3 -m train -m torch.distributed.run":     false,
		"bash -c torchrun":                              false,
		"pythonista torchrun":                           false,
		"python3":                                       false,
		"/usr/bin/python3 -u /home/ada/accelerate/x.py": false,
	} {
		if got := isLauncher(strings.Fields(command)); got != want {
			t.Errorf("%s: got %v, want %v", command, got, want)
		}
	}
}

// TestIsWrapper checks which command lines start a wrapper, such as time or uv run.
func TestIsWrapper(t *testing.T) {
	for command, want := range map[string]bool{
		"/usr/bin/time -v python3 train.py":                true,
		"uv run --no-sync train.py":                        true,
		"/usr/bin/python3 /opt/conda/bin/conda run -n x t": true,
		"uv sync":                        false,
		"python3 train.py env":           false,
		"python3 -u train.py uv run":     false,
		"bash -c time":                   false,
		"wandb-core --port-filename run": false,
		"python3 -m":                     false,
	} {
		if got := isWrapper(strings.Fields(command)); got != want {
			t.Errorf("%s: got %v, want %v", command, got, want)
		}
	}
	if !isWrapper([]string{"Apptainer runtime parent", ""}) {
		t.Error("apptainer is not a wrapper")
	}
}

// TestExitOfStoppedLauncher checks that a stopped launcher gets the exit code of its workers.
func TestExitOfStoppedLauncher(t *testing.T) {
	exited := func(code int) syscall.WaitStatus { return syscall.WaitStatus(code << 8) }
	for _, tt := range []struct {
		name     string
		launcher bool
		code     int
		workers  []syscall.WaitStatus
		want     int
	}{
		{"workers saved", true, 1, []syscall.WaitStatus{exited(3), exited(3)}, 3},
		{"torchrun stopped the second", true, 1, []syscall.WaitStatus{exited(3), syscall.WaitStatus(syscall.SIGTERM)}, 3},
		{"torchrun stopped the first", true, 1, []syscall.WaitStatus{syscall.WaitStatus(syscall.SIGTERM), exited(3), exited(0)}, 3},
		{"workers were killed by the signal", true, 1, []syscall.WaitStatus{syscall.WaitStatus(syscall.SIGTERM)}, 143},
		{"workers finished", true, 0, []syscall.WaitStatus{exited(0)}, 0},
		{"workers finished, torchrun was stopped", true, 1, []syscall.WaitStatus{exited(0)}, 3},
		{"a worker failed", true, 1, []syscall.WaitStatus{exited(3), exited(1)}, 1},
		{"a worker crashed", true, 1, []syscall.WaitStatus{syscall.WaitStatus(syscall.SIGSEGV)}, 1},
		{"unknown", true, 1, nil, 3},
		{"torchrun itself was killed", true, 143, []syscall.WaitStatus{exited(3)}, 3},
		{"torchrun itself was killed, workers unknown", true, 143, nil, 143},
		{"a worker failed before the stop", true, 1, []syscall.WaitStatus{exited(3)}, 1},
		{"not a launcher", false, 1, []syscall.WaitStatus{exited(3)}, 1},
	} {
		r := stopRequest{statuses: tt.workers, failed: strings.Contains(tt.name, "before the stop")}
		if tt.launcher {
			r.launchers = []*userProcess{{}}
		}
		if got := r.resultCode(tt.code); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestProcessesOfAProgram checks the information from /proc about a shell with a trap and its
// command, and how the command ended.
func TestProcessesOfAProgram(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "trap 'exit 4' USR1; (sleep 300; exit 3); :")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	group := cmd.Process.Pid
	defer func() { _ = syscall.Kill(-group, syscall.SIGKILL); _ = cmd.Wait() }()
	var program *userProcess
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if program, _ = findProcesses(group, group); program != nil && len(program.children) == 1 && len(program.children[0].children) == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("got %+v", program)
		}
	}
	child := program.children[0]
	if !program.shell || !program.handles(syscall.SIGUSR1) || program.handles(syscall.SIGTERM) || child.isBackground(program) || child.Parent != group || child.Group != group {
		t.Errorf("got %+v with %+v", program, child)
	}
	if err := syscall.Kill(child.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// The shell may have waited for the command first.
	if status, known := child.waitForEnd(nil); known && (!status.Signaled() || status.Signal() != syscall.SIGKILL) {
		t.Errorf("got status %x, want killed by SIGKILL", status)
	}
	self, _ := findProcesses(os.Getpid(), -1)
	if self == nil || !slices.ContainsFunc(self.children, func(c *userProcess) bool { return c.identity() == program.identity() }) {
		t.Errorf("this process or its child is missing: %+v", self)
	}
}

// TestWorkersThatStartAfterTheStop checks that workers that a launcher starts while others
// save are stopped as well. If the launcher starts workers after all others have ended, it is
// stopped.
func TestWorkersThatStartAfterTheStop(t *testing.T) {
	t.Chdir(t.TempDir())
	const worker = `TORCHELASTIC_RUN_ID=none sh -c "sh -c 'trap \"touch stopped-$N\" USR1; touch ready-$N; until test -e end-$N; do sleep 0.1; done'; :" & `
	cmd := exec.Command("/bin/sh", "-c", "export N; for N in 1 2 3; do until test -e start-$N; do sleep 0.1; done; "+worker+"done; wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	group := cmd.Process.Pid
	defer func() { _ = syscall.Kill(-group, syscall.SIGKILL); _ = cmd.Wait() }()
	awaitFile := func(name string) {
		t.Helper()
		for end := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
			if _, err := os.Stat(name); err == nil {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s is missing", name)
			}
		}
	}
	touch := func(name string) {
		t.Helper()
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	touch("start-1")
	awaitFile("ready-1")
	var end time.Time
	r := requestStop(group, group, syscall.SIGUSR1, true)
	awaitFile("stopped-1")
	if !r.signalNewWorkers(&end) || !end.IsZero() {
		t.Error("a worker that is still saving is taken for a new one")
	}
	touch("start-2")
	awaitFile("ready-2")
	if !r.signalNewWorkers(&end) || !end.IsZero() {
		t.Error("the launcher is stopped while workers save")
	}
	awaitFile("stopped-2")
	touch("end-1")
	touch("end-2")
	for limit := time.Now().Add(5 * time.Minute); end.IsZero(); time.Sleep(10 * time.Millisecond) {
		if !r.signalNewWorkers(&end) || time.Now().After(limit) {
			t.Fatal("no end of the workers is noticed")
		}
	}
	touch("start-3")
	awaitFile("ready-3")
	if r.signalNewWorkers(&end) {
		t.Error("the launcher may restart its workers after the stop")
	}
}

// stopOnceReady sends SIGUSR1 after a program has written a file.
func stopOnceReady(file string) <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	go func() {
		for {
			if _, err := os.Stat(file); err == nil {
				signals <- syscall.SIGUSR1
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	return signals
}

// TestWrapperEndsBeforeItsCommand checks that a command can still save after the stop signal
// has ended its shell.
func TestWrapperEndsBeforeItsCommand(t *testing.T) {
	dir := t.TempDir()
	// The outer shell ends after the inner shell has received the signal and before it has
	// saved.
	script := `sh -c 'trap "kill -TERM $PPID; sleep 1; echo saved >` + dir + `/saved; exit 3" USR1; touch ` + dir + `/ready; while :; do sleep 0.1; done'; :`
	result, said, err := launched(t, 1, "program", "[command]\nargv = [\"/bin/sh\", \"-c\", '''"+script+"''']\n", stopOnceReady(dir+"/ready"))
	if _, missing := os.Stat(dir + "/saved"); err != nil || missing != nil || result.Failure != nil {
		t.Errorf("%+v, %v, %v\n%s", result, err, missing, said)
	}
}

// TestStoppedProgramLeavesAMonitorBehind checks that a background process that catches the
// signal and continues does not delay the end of the program.
func TestStoppedProgramLeavesAMonitorBehind(t *testing.T) {
	dir := t.TempDir()
	script := `sh -c "trap : USR1; touch ` + dir + `/monitor; while :; do sleep 0.1; done" & ` +
		`sh -c "trap \"exit 3\" USR1; until test -e ` + dir + `/monitor; do sleep 0.1; done; touch ` + dir + `/ready; while :; do sleep 0.1; done"; exit $?`
	// The timeout of launched is shorter than minOrphanTimeout.
	result, said, err := launched(t, 1, "program", "[command]\nargv = [\"/bin/sh\", \"-c\", '''"+script+"''']\n", stopOnceReady(dir+"/ready"))
	if err != nil || result.Failure != nil || result.Exit != 3 {
		t.Errorf("%+v, %v\n%s", result, err, said)
	}
}

// TestStopSignalArrivesAfterTheProgramEnded checks that Slurm's signal may end the program
// before this process receives it. If the attempt is aborted, receivedStop must not wait: the
// launcher kills a rank that takes longer.
func TestStopSignalArrivesAfterTheProgramEnded(t *testing.T) {
	for _, tt := range []struct {
		script string
		abort  bool
		want   bool
	}{
		{"kill -TERM $$", false, true},
		{"exit 143", false, true},
		{"exit 138", false, true},
		{"exit 0", false, false},
		{"kill -TERM $$", true, false},
	} {
		cmd := exec.Command("/bin/sh", "-c", tt.script)
		_ = cmd.Run()
		signals, aborted := make(chan os.Signal, 1), make(chan struct{})
		if tt.abort {
			close(aborted)
		}
		timer := time.AfterFunc(4*signalDelay, func() { signals <- syscall.SIGTERM })
		if _, got := receivedStop(cmd.ProcessState, signals, aborted, nil); got != tt.want {
			t.Errorf("%+v: got %v", tt, got)
		}
		timer.Stop()
	}
}

// TestTargetsOfShellThatEndsMeanwhile checks that a command of a shell is found if the shell ended
// while /proc was read: the shell has ended, but the command still has it as its parent.
func TestTargetsOfShellThatEndsMeanwhile(t *testing.T) {
	command := &userProcess{Stat: process.Stat{PID: 102}, caught: process.Mask(syscall.SIGTERM)}
	shell := &userProcess{Stat: process.Stat{PID: 99, Ended: true}, shell: true, children: []*userProcess{command}}
	r := &stopRequest{pid: shell.PID, signal: syscall.SIGTERM}
	r.findTargets(shell, nil)
	if !slices.Equal(r.targets, []*userProcess{command}) {
		t.Errorf("got targets %v, want the command", r.targets)
	}
}

// TestShellEndsWhileItIsDescribed checks that a shell is not taken for torchrun if it ends before its
// environment is read: all processes of a rank have TORCHELASTIC_RUN_ID.
func TestShellEndsWhileItIsDescribed(t *testing.T) {
	cmd := exec.Command("bash", "-c", "kill -STOP $$")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	stat, err := process.Read(cmd.Process.Pid)
	if err == nil {
		err = cmd.Process.Kill()
	}
	if err != nil {
		t.Fatal(err)
	}
	(&userProcess{Stat: stat}).waitForEnd(nil) // not Wait: the parent of a real shell has not waited either
	command := &userProcess{Stat: process.Stat{PID: 1 << 30}, elasticID: "run", caught: process.Mask(syscall.SIGTERM)}
	shell := &userProcess{Stat: stat}
	shell.describe()
	shell.children = []*userProcess{command}
	r := &stopRequest{pid: shell.PID, signal: syscall.SIGTERM}
	r.findTargets(shell, nil)
	if len(r.launchers) > 0 || !slices.Equal(r.targets, []*userProcess{command}) {
		t.Errorf("got %d launchers and targets %v, want only the command", len(r.launchers), r.targets)
	}
}
