package slurm

import "testing"

func TestExitText(t *testing.T) {
	for exitCode, want := range map[string]string{
		"0:0":   "exit code 0",
		"3:0":   "exit code 3",
		"127:0": "exit code 127",
		"0:9":   "killed by signal 9 (SIGKILL)",
		"0:15":  "killed by signal 15 (SIGTERM)",
		"0:53":  "exit code 0:53", // no signal, but slurmstepd's number for a file that it cannot open
		"0:125": "exit code 0:125",
		"":      "exit code ",
		"x:y":   "exit code x:y",
	} {
		if got := ExitText(exitCode); got != want {
			t.Errorf("%q: got %q, want %q", exitCode, got, want)
		}
	}
}
