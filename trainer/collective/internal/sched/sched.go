// Package sched lets ranks that spin yield their core or move to a different one. It does not
// decide when to do so.
package sched

import (
	"bytes"
	"strconv"
	"time"
)

// NoCore is an unknown core.
const NoCore = -1

// Tick is the unit of [Idle]: 1/100 s on every Linux system (USER_HZ).
const Tick = 10 * time.Millisecond

// parseIdle parses the lines of cores in /proc/stat: name, user, nice, system, idle, iowait, ...
func parseIdle(text []byte) []int64 {
	var idle []int64
	for line := range bytes.Lines(text) {
		number, ok := bytes.CutPrefix(line, []byte("cpu"))
		if !ok {
			break // the lines of cores come first
		}
		fields := bytes.Fields(number)
		if len(fields) < 6 || number[0] == ' ' {
			continue // the sum of all cores, or an invalid line
		}
		core, err := strconv.Atoi(string(fields[0]))
		if err != nil || core < len(idle) || core >= 1<<16 {
			continue
		}
		for len(idle) < core {
			idle = append(idle, -1)
		}
		rests, err := strconv.ParseInt(string(fields[4]), 10, 64)
		waits, other := strconv.ParseInt(string(fields[5]), 10, 64)
		if err != nil || other != nil {
			rests, waits = -1, 0
		}
		idle = append(idle, rests+waits)
	}
	return idle
}
