package checkpoint

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

const sparse = 1 << 40 // bytes; hashing them takes many minutes

// enlarge gives a file of a checkpoint a size without using disk space, and records the size in the
// manifest.
func enlarge(t *testing.T, path, file string, size int64) {
	t.Helper()
	m, err := readManifest(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range m.Files {
		if m.Files[i].Name == file {
			m.Files[i].Bytes, m.Files[i].HeaderCRC = size, ""
		}
	}
	if err := os.Truncate(filepath.Join(path, file), size); err != nil {
		t.Fatal(err)
	}
	writeManifest(t, path, *m)
}

// TestFileLargerThanItsTensorsIsDamaged checks that such a file is not read to its end.
func TestFileLargerThanItsTensorsIsDamaged(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, 1)
	path := save(t, dir, 2)
	enlarge(t, path, ModelFile, sparse)
	if err := Verify(t.Context(), path); err == nil || !strings.Contains(err.Error(), "corrupt") || !strings.Contains(err.Error(), "after the last tensor") {
		t.Errorf("got %v", err)
	}
	s, skipped, err := Load(t.Context(), dir)
	if err != nil || s.Manifest.Step != 1 || len(skipped) != 1 {
		t.Fatalf("got %+v, %v, %v", s, skipped, err)
	}
	s.Close()
}

// TestLoadStopsWithTheContext checks that Load stops reading a large checkpoint when the context
// ends, and does not report it as corrupt.
func TestLoadStopsWithTheContext(t *testing.T) {
	dir := t.TempDir()
	path := save(t, dir, 1)
	header, err := safetensors.Header([]safetensors.Tensor{{Name: "w", Shape: []int{sparse / 4}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, ModelFile), header, 0o600); err != nil {
		t.Fatal(err)
	}
	enlarge(t, path, ModelFile, sparse+int64(len(header)))
	reason := errors.New("asked to stop")
	for _, c := range []struct {
		name string
		read func(context.Context) error
	}{
		{"Load", func(ctx context.Context) error { _, _, err := Load(ctx, dir); return err }},
		{"Verify", func(ctx context.Context) error { return Verify(ctx, path) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(10*time.Millisecond, func() { cancel(reason) })
			if err := c.read(ctx); !errors.Is(err, reason) || errors.As(err, new(*UnusableError)) {
				t.Errorf("got %v, want %v", err, reason)
			}
		})
	}
}
