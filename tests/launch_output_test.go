package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/program"
)

// TestOutputFillsTheDisk checks that a program that prints more than the disk can hold runs to its
// end, that ddpbatch warns once, and that logging continues when there is space again.
func TestOutputFillsTheDisk(t *testing.T) {
	program.NeedRoot(t, "mounting a small disk")
	home := t.TempDir()
	run := filepath.Join(home, "runs", "loud")
	// The program frees the disk after all earlier output has been forwarded, because buffered output
	// would fill the disk again.
	job := `name = "loud"
[command]
output_limit = "64 KiB"
argv = ["sh", "-c", "head -c 200000 /dev/zero >runs/loud/ballast; head -c 2000000 /dev/zero; echo; echo full; until grep -aqx full shown; do sleep 0.1; done; rm runs/loud/ballast; echo; echo the end"]
`
	if err := os.WriteFile(filepath.Join(home, "job.toml"), []byte(job), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(run, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", run, "tmpfs", 0, "size=600k,mode=0700"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Unmount(run, 0); err != nil {
			t.Error(err)
		}
	}()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", binary+" launch job.toml -n 1 >shown")
	cmd.Dir = home
	o := finish(t, cmd)
	shown, err := os.ReadFile(filepath.Join(home, "shown"))
	if err != nil {
		t.Fatal(err)
	}
	o.stdout = string(shown)
	if o.code != 0 || len(o.stdout) < 2_000_000 || !strings.HasSuffix(o.stdout, "\nthe end\n") {
		t.Errorf("exit code %d, %d bytes on the terminal, %s", o.code, len(o.stdout), o.stderr)
	}
	if n := strings.Count(o.stderr, "warning: write the log of this launch"); n != 1 || !strings.Contains(o.stderr, "no space left on device") {
		t.Errorf("%d warnings, want one: %s", n, o.stderr)
	}
	log := here(t, home, "logs", "loud")
	if log.code != 0 || !strings.Contains(log.stdout, " bytes are missing here") || !strings.HasSuffix(log.stdout, "\nthe end\n") {
		t.Errorf("the log: exit code %d, %d bytes, its end: %q", log.code, len(log.stdout), log.stdout[max(0, len(log.stdout)-200):])
	}
}
