package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// Signals are the signals that a thread catches, blocks, and ignores, see [Mask].
type Signals struct {
	Caught, Blocked, Ignored uint64
}

// Mask returns the set that contains only s.
func Mask(s syscall.Signal) uint64 { return 1 << (uint(s) - 1) }

// ReadSignals reads /proc/PID/status, which is about the main thread, or /proc/PID/task/TID/status.
func ReadSignals(path string) (Signals, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Signals{}, err
	}
	return parseSignals(text)
}

// parseSignals parses the content of a status file (proc(5)).
func parseSignals(text []byte) (s Signals, err error) {
	sets := map[string]*uint64{"SigCgt": &s.Caught, "SigBlk": &s.Blocked, "SigIgn": &s.Ignored}
	for line := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		set := sets[string(name)]
		if set == nil {
			continue
		}
		if *set, err = strconv.ParseUint(string(bytes.TrimSpace(value)), 16, 64); err != nil {
			return Signals{}, fmt.Errorf("parse %s: %w", name, err)
		}
		delete(sets, string(name))
	}
	for name := range sets {
		return Signals{}, fmt.Errorf("no %s in the status of a process", name)
	}
	return s, nil
}
