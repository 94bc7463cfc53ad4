package process

import (
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestParse checks /proc/PID/stat of a process whose name has spaces and parentheses, and invalid
// texts.
func TestParse(t *testing.T) {
	numbers := func(from, to string) string {
		return strings.Repeat(from+" ", 8) + "10 20 30 40 " + strings.Repeat(from+" ", 4) + to + strings.Repeat(" 0", 29) + " 9"
	}
	got, err := Parse([]byte("7 (a) S 9) b) Z 5 6 " + numbers("1", "190")))
	want := Stat{PID: 7, Parent: 5, Group: 6, Start: 190, CPU: 100, Ended: true, Status: 9}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, text := range []string{"", "7 (sleep) S 1 2", "7 (sleep", "x (sleep) S 5 6 " + numbers("1", "190"), "7 (sleep) S 5 6 " + numbers("1", "x"),
		"7 (sleep) S 5 6 " + strings.Replace(numbers("1", "190"), "20", "x", 1)} {
		if got, err := Parse([]byte(text)); err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
}

// TestSignalChecksTheStartTime checks that a process does not get a signal for an earlier
// process with the same PID.
func TestSignalChecksTheStartTime(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	s, err := Read(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := Signal(pid, s.Start-1, syscall.SIGKILL); !errors.Is(err, ErrEnded) {
		t.Errorf("another process: got %v, want %v", err, ErrEnded)
	}
	if err := Signal(pid, s.Start, syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if s := cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %x, want only SIGTERM", s)
	}
	if err := Signal(pid, s.Start, syscall.SIGTERM); !errors.Is(err, ErrEnded) {
		t.Errorf("a process that has ended: got %v, want %v", err, ErrEnded)
	}
}

// TestParseSignals checks the sets of signals in a status file.
func TestParseSignals(t *testing.T) {
	const status = "Name:\tpython3\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000001\nSigCgt:\t0000000100000800\n"
	got, err := parseSignals([]byte(status))
	if want := (Signals{Caught: 0x100000800, Ignored: 1}); got != want || err != nil {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if got.Caught&Mask(syscall.SIGUSR2) == 0 || got.Caught&Mask(syscall.SIGUSR1) != 0 {
		t.Errorf("%#x is not the set of SIGUSR2 and signal 33", got.Caught)
	}
	for _, text := range []string{"", strings.Replace(status, "SigIgn", "Sig", 1), strings.Replace(status, "\t0000000100000800", "\tx", 1)} {
		if got, err := parseSignals([]byte(text)); err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
}

// FuzzParse checks that no file of /proc stops the program.
func FuzzParse(f *testing.F) {
	f.Add([]byte("7 (sleep) S 1 2"))
	f.Add([]byte("SigCgt:\t1\nSigBlk:\t2\nSigIgn:\t3\n"))
	f.Fuzz(func(_ *testing.T, text []byte) {
		_, _ = Parse(text)
		_, _ = parseSignals(text)
	})
}
