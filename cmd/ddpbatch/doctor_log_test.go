package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// TestLogOfAnotherUserIsNotAPipe checks that `doctor --log` does not wait for the writer of a FIFO of another
// user, and reads a pipe of this user, such as <(command).
func TestLogOfAnotherUserIsNotAPipe(t *testing.T) {
	requireRoot(t)
	p := &program{}
	p.Dir = t.TempDir()
	path := filepath.Join(p.Dir, "log")
	for _, own := range []bool{true, false} {
		if own {
			if err := unix.Mkfifo(path, 0o644); err != nil {
				t.Fatal(err)
			}
			writer, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer writer.Close()
		} else if err := os.Chown(path, 61001, -1); err != nil {
			t.Fatal(err)
		}
		open, run, err := (&doctorCmd{Log: "log"}).logFile(p)
		if err != nil || run != nil {
			t.Fatal(run, err)
		}
		f, err := open() // does not wait for a writer
		if err == nil {
			f.Close()
		}
		if own && err != nil || !own && !errors.Is(err, safefile.ErrNotRegular) {
			t.Errorf("own %v: got %v", own, err)
		}
	}
}
