package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// busyCores returns how many cores other programs use, measured for a second in which ddpbatch runs
// nothing. Results for ranks that need one core each are valid only if enough cores are idle.
func busyCores() (float64, error) {
	busy, all, err := ticks()
	if err != nil {
		return 0, err
	}
	time.Sleep(time.Second)
	busyThen, allThen, err := ticks()
	if err != nil {
		return 0, err
	}
	if allThen == all {
		return 0, fmt.Errorf("read /proc/stat: no time has passed")
	}
	return float64(busyThen-busy) / float64(allThen-all) * float64(runtime.NumCPU()), nil
}

// ticks returns the ticks in which the cores were busy, and all ticks, since boot.
func ticks() (busy, all int64, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, err
	}
	return parseTicks(string(text))
}

// parseTicks reads the first line of /proc/stat (proc_stat(5)): user, nice, system, idle,
// iowait, irq, softirq, steal; the guests after them are in user and nice.
func parseTicks(text string) (busy, all int64, err error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, 0, fmt.Errorf("read /proc/stat: unexpected first line %q", line)
	}
	for i, f := range fields[1:9] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("read /proc/stat: %w", err)
		}
		all += n
		if i != 3 && i != 4 {
			busy += n
		}
	}
	return busy, all, nil
}
