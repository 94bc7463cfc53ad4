// Package sched lets ranks that wait without sleeping leave their core to others, or leave
// it for another. It does not say when.
package sched

import (
	"bytes"
	"strconv"
	"time"
)

// Nowhere is a core that is not known.
const Nowhere = -1

// Tick is the unit of [Idle], 1/100 s on every Linux (USER_HZ).
const Tick = 10 * time.Millisecond

// parseIdle reads /proc/stat's lines of cores: name, user, nice, system, idle, iowait, ...
func parseIdle(text []byte) []int64 {
	var idle []int64
	for line := range bytes.Lines(text) {
		number, ok := bytes.CutPrefix(line, []byte("cpu"))
		if !ok {
			break // they are the first lines
		}
		fields := bytes.Fields(number)
		if len(fields) < 6 || number[0] == ' ' {
			continue // the sum of all, or nothing of use
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
