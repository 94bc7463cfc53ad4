package inspect

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// startPython runs a Python program that prints "ready" and returns its process ID. The program
// must end when its input ends.
func startPython(t *testing.T, program string) int {
	t.Helper()
	path, err := exec.LookPath("/usr/bin/python3")
	if err != nil && os.Getenv("CI") != "" {
		t.Fatal("CI needs /usr/bin/python3")
	}
	if err != nil {
		t.Skip("no /usr/bin/python3")
	}
	cmd := exec.Command(path, "-I", "-c", program)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the program did not survive: %v", err)
		}
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	return cmd.Process.Pid
}

// TestFaulthandler reads the stacks of Python programs, twice. It sends no signal to a program that
// would not survive it or that uses it for something else.
func TestFaulthandler(t *testing.T) {
	const (
		head = `import faulthandler, os, signal, sys, tempfile, threading
def work():
    print("ready", flush=True)
    sys.stdin.read()
def register(name, sig):
    with tempfile.NamedTemporaryFile(prefix="ddpbatch-stacks-" + name + "-") as f:
        faulthandler.register(sig, os.dup(f.fileno()))
`
		noFile = "the program has not registered faulthandler"
	)
	for _, tt := range []struct {
		name, program, want string // want is an error unless it is empty
	}{
		{"registered", head + "threading.Thread(target=threading.Event().wait, daemon=True).start()\nregister('SIGUSR2', signal.SIGUSR2)\nwork()\n", ""},
		{"other signal", head + "register('SIGQUIT', signal.SIGQUIT)\nwork()\n", ""},
		{"not handled", head + "register('SIGUSR1', signal.SIGUSR2)\nwork()\n", "faulthandler: the program does not handle SIGUSR1"},
		{"unknown signal", head + "register('SIGX', signal.SIGUSR2)\nwork()\n", "faulthandler: unknown signal SIGX"},
		{"signal that stops", head + "register('SIGTERM', signal.SIGTERM)\nwork()\n", "faulthandler: SIGTERM in the file name"},
		{"file that is only read", head + "with tempfile.NamedTemporaryFile(prefix='ddpbatch-stacks-SIGUSR2-') as f:\n    g = open(f.name)\n" +
			"signal.signal(signal.SIGUSR2, lambda *_: sys.exit(1))\nwork()\n", noFile},
		{"own handler", head + "signal.signal(signal.SIGUSR2, lambda *_: sys.exit(1))\nwork()\n", noFile},
		{"nothing", head + "work()\n", noFile},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Rank{PID: startPython(t, tt.program)}
			for range 2 {
				stack, err := r.faulthandler(t.Context())
				if tt.want != "" {
					if err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, errNoStackFile) != (tt.want == noFile) {
						t.Fatalf("got %q, %v, want the error %q", stack, err, tt.want)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if frames := mainThread(stack, sourceFaulthandler); len(frames) != 2 || !strings.HasPrefix(frames[0], "work (<string>:") {
					t.Errorf("got frames %q of\n%s", frames, stack)
				}
			}
		})
	}
}

// TestReadStack checks that the stack of a program comes from faulthandler if py-spy is missing, and
// that the reason names a problem with faulthandler.
func TestReadStack(t *testing.T) {
	const program = `import faulthandler, os, signal, sys, tempfile
with tempfile.NamedTemporaryFile(prefix="ddpbatch-stacks-SIGUSR2-") as f:
    faulthandler.register(signal.SIGUSR2, os.dup(f.fileno()))
def work():
    print("ready", flush=True)
    sys.stdin.read()
`
	empty := []string{"PATH=" + t.TempDir()}
	r := Rank{PID: startPython(t, program+"work()\n")}
	r.readStack(t.Context(), empty)
	if r.Source != sourceFaulthandler || !strings.HasPrefix(r.Doing, "work (<string>:") || r.Reason != "" {
		t.Errorf("got %+v", r)
	}
	r = Rank{PID: startPython(t, program+"faulthandler.unregister(signal.SIGUSR2)\nwork()\n")}
	r.readStack(t.Context(), empty)
	if r.Source != sourceKernel || !strings.Contains(r.Reason, "py-spy is not") || !strings.Contains(r.Reason, "does not handle SIGUSR2") {
		t.Errorf("got %+v", r)
	}
}
