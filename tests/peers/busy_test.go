package main

import "testing"

// TestTicksOfCores checks the busy and total ticks in /proc/stat.
func TestTicksOfCores(t *testing.T) {
	busy, all, err := parseTicks("cpu  100 20 30 4000 500 6 7 80 9 1\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
	if busy != 243 || all != 4743 || err != nil {
		t.Errorf("%d of %d, %v", busy, all, err)
	}
	for _, text := range []string{"", "cpu 1 2 3\n", "intr 1 2 3 4 5 6 7 8\n", "cpu 1 2 3 4 5 6 x 8\n"} {
		if _, _, err := parseTicks(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}
