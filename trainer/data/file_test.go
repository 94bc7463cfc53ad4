package data

import (
	"net"
	"path/filepath"
	"syscall"
	"testing"
)

// TestOnlyRegularFilesAreRead checks that Open immediately rejects everything except regular
// files. Opening a pipe would wait for a writer, and a device never ends.
func TestOnlyRegularFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	pipe, socket := filepath.Join(dir, "pipe"), filepath.Join(dir, "socket")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for path, what := range map[string]string{
		pipe:        "not a regular file, but a pipe",
		socket:      "not a regular file",
		"/dev/zero": "not a regular file, but a device",
		dir:         "is a directory",
	} {
		for _, kind := range []string{KindCSV, KindText, KindTokens, KindSafetensors} {
			_, _, err := Open(t.Context(), Options{Kind: kind, Path: path, Context: 4})
			if want := `read "` + path + `": ` + what; err == nil || err.Error() != want {
				t.Errorf("%s: error %v,\nwant  %s", kind, err, want)
			}
		}
	}
	images := mnistDir(t)
	labels := filepath.Join(images, "train-labels-idx1-ubyte")
	if err := syscall.Mkfifo(labels, 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err = Open(t.Context(), Options{Kind: KindIDX, Path: images})
	if want := `read "` + labels + `": not a regular file, but a pipe`; err == nil || err.Error() != want {
		t.Errorf("idx: error %v,\nwant  %s", err, want)
	}
}
