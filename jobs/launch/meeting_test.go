package launch

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Rank 0's file that an earlier start has left is dropped for the one that comes.
func TestUntilChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rendezvous.json")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	changed := make(chan struct{})
	go untilChanged(ctx, path, []byte("old"), func() { close(changed) })
	if err := os.Remove(path); err != nil { // between two starts
		t.Fatal(err)
	}
	select {
	case <-changed:
		t.Fatal("a file that is gone is no other address")
	case <-time.After(500 * time.Millisecond):
	}
	if err := os.WriteFile(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	case <-ctx.Done():
		t.Fatal("the new file was not seen")
	}
}
