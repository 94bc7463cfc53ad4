package data

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestShrunkFileIsNamed checks that the error for a truncated file names the file. The memory
// fault itself does not.
func TestShrunkFileIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.bin")
	write(t, path, make([]byte, 1<<20))
	d, _, err := Open(t.Context(), Options{Kind: KindTokens, Path: path, Context: 8})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<16); err != nil {
		t.Fatal(err)
	}
	b := NewBatch(d, 1)
	d.Read([]int{0}, b) // still valid
	defer func() {
		err, _ := recover().(error)
		if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("read %q: at byte ", path)) || hint(err) == "" {
			t.Errorf("reading behind the end: %v", err)
		}
	}()
	d.Read([]int{d.Len() - 1}, b)
}

// TestLoaderOfShrunkFile checks that the loader returns the memory fault of its goroutine as an
// error.
func TestLoaderOfShrunkFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.bin")
	write(t, path, make([]byte, 1<<20))
	d, _, err := Open(t.Context(), Options{Kind: KindTokens, Path: path, Context: 8})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<16); err != nil {
		t.Fatal(err)
	}
	l := NewLoader(d, 1, 1)
	defer l.Stop()
	for range 2 {
		l.Start([][]int{{0}, {d.Len() - 1}, {1}})
		if _, n, err := l.Next(); n != 1 || err != nil {
			t.Errorf("what is still there: %d samples, %v", n, err)
		}
		for range 2 {
			_, n, err := l.Next()
			if n != 0 || err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("read %q: at byte ", path)) || hint(err) == "" {
				t.Errorf("what is gone: %d samples, %v", n, err)
			}
		}
	}
}

// TestGuard checks that guard converts a fault in a mapped file to an error that names the file
// and the byte, and passes other errors and panics.
func TestGuard(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.bin")
	write(t, path, make([]byte, 1<<16))
	m, err := mapFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	files := mappings{m}
	err = files.guard(func() error { return errors.New(string(m.content[9:10])) })
	if want := fmt.Sprintf("read %q: at byte 9: can no longer be read", path); err == nil || err.Error() != want {
		t.Errorf("shrunk file: %v, want %s", err, want)
	}
	own := errors.New("own error")
	if err := files.guard(func() error { return own }); err != own {
		t.Errorf("own error became %v", err)
	}
	defer func() {
		if r := recover(); r != "own panic" {
			t.Errorf("own panic became %v", r)
		}
	}()
	_ = files.guard(func() error { panic("own panic") })
}

// TestMappingIsReleased checks that an unreachable mapping is unmapped.
func TestMappingIsReleased(t *testing.T) {
	path := filepath.Join(t.TempDir(), "given-back.bin")
	write(t, path, make([]byte, 1<<16))
	mapped := func() bool {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(maps), "given-back.bin")
	}
	d, _, err := Open(t.Context(), Options{Kind: KindTokens, Path: path, Context: 8})
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	if !mapped() {
		t.Fatal("not mapped while in use")
	}
	runtime.KeepAlive(d)
	for range 1000 {
		runtime.GC() // the cleanup runs some time after it
		if !mapped() {
			return
		}
	}
	t.Error("still mapped")
}

// FuzzTokens checks that any file is rejected with an error that names it or makes a consistent
// data set.
func FuzzTokens(f *testing.F) {
	f.Add(tokenBytes(2, upTo(10)...), false, 3, 0)
	f.Add(tokenBytes(4, upTo(10)...), true, 3, 5)
	f.Add(llmcBytes(llmcGPT2, 1, 10, tokenBytes(2, upTo(10)...)), false, 3, 0)
	f.Add(llmcBytes(llmcLlama3, 7, 3, tokenBytes(4, 7, 100000, 3)), false, 1, 0)
	f.Add(llmcBytes(llmcGPT2, 1, 1<<32-1, nil), false, 3, 0)
	path := filepath.Join(f.TempDir(), "f.bin")
	f.Fuzz(func(t *testing.T, content []byte, wide bool, context, vocabulary int) {
		if context < 1 || vocabulary < 0 || vocabulary > maxVocabulary {
			return
		}
		// A new file, because a mapped one must not change.
		os.Remove(path)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		o := Options{Kind: KindTokens, Path: path, Context: context, VocabularySize: vocabulary, DType: DTypeUint16}
		if wide {
			o.DType = DTypeUint32
		}
		d, _, err := Open(t.Context(), o)
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Errorf("error without the file: %v", err)
			}
			return
		}
		checkDataset(t, d)
	})
}
