package data

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// openScanned opens token files with a scan from dir, if there is one, and returns the training
// data, the number of times that all tokens were read, and the key.
func openScanned(t *testing.T, dir *os.Root, o Options) (d Dataset, reads int, key ScanKey) {
	t.Helper()
	o.Kind = KindTokens
	scan := func(ctx context.Context, k ScanKey, compute func(context.Context) (Scan, error)) (Scan, error) {
		key = k
		if s, ok := k.Load(dir); ok {
			return s, nil
		}
		reads++
		s, err := compute(ctx)
		if err == nil {
			err = k.Save(dir, s)
		}
		return s, err
	}
	d, _, err := OpenScanned(t.Context(), o, scan)
	if err != nil {
		t.Fatal(err)
	}
	return d, reads, key
}

func openRoot(t *testing.T) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	check(t, err)
	t.Cleanup(func() { root.Close() })
	return root
}

// writeOld writes a file that was last modified an hour ago.
func writeOld(t *testing.T, path string, content []byte) {
	t.Helper()
	write(t, path, content)
	then := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, then, then); err != nil {
		t.Fatal(err)
	}
}

// TestScanIsReused checks that all tokens are read once, and again after a change of a file, of its
// modification time, or of an option.
func TestScanIsReused(t *testing.T) {
	dir := openRoot(t)
	path := filepath.Join(t.TempDir(), "t.bin")
	o := Options{Path: path, Context: 4, Holdout: 0.25}
	content := make([]byte, 2*64)
	content[10] = 7
	writeOld(t, path, content)
	first, reads, _ := openScanned(t, dir, o)
	if reads != 1 || first.Outputs() != 8 {
		t.Fatalf("read %d times, %d tokens in the vocabulary", reads, first.Outputs())
	}
	plain, _, err := Open(t.Context(), Options{Kind: KindTokens, Path: path, Context: 4, Holdout: 0.25})
	if err != nil {
		t.Fatal(err)
	}
	again, reads, key := openScanned(t, dir, o)
	if reads != 0 || again.Digest() != first.Digest() || again.Digest() != plain.Digest() || again.Outputs() != 8 {
		t.Errorf("read %d times, digests %s and %s, want %s", reads, first.Digest(), again.Digest(), plain.Digest())
	}
	for name, change := range map[string]func(){
		"modification time": func() {
			then := time.Now().Add(-time.Minute)
			if err := os.Chtimes(path, then, then); err != nil {
				t.Fatal(err)
			}
		},
		"size":           func() { writeOld(t, path, append(content, 1, 0)) },
		"context":        func() { o.Context = 5 },
		"vocabulary":     func() { o.VocabularySize = 9 },
		"invalid file":   func() { write(t, filepath.Join(dir.Name(), key.name()), []byte("{}")) },
		"file of others": func() { check(t, os.Chmod(filepath.Join(dir.Name(), key.name()), 0o644)) },
	} {
		t.Run(name, func(t *testing.T) {
			writeOld(t, path, content)
			o = Options{Path: path, Context: 4, Holdout: 0.25}
			_, _, key = openScanned(t, dir, o)
			change()
			if _, reads, _ := openScanned(t, dir, o); reads != 1 {
				t.Errorf("read %d times, want once", reads)
			}
			check(t, os.RemoveAll(filepath.Join(dir.Name(), key.name())))
		})
	}
}

// TestScanOfNewFileIsNotReused checks that a file that was just written has no key, because a second
// write might not change its modification time.
func TestScanOfNewFileIsNotReused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.bin")
	write(t, path, make([]byte, 128))
	future := time.Now().Add(time.Hour)
	check(t, os.Chtimes(path, future, future))
	if _, _, key := openScanned(t, openRoot(t), Options{Path: path, Context: 4}); key != "" {
		t.Errorf("key %q", key)
	}
}

// TestTokenOutsideVocabularyIsNamedWhileReading checks that a token that was not there during the
// scan does not reach a model.
func TestTokenOutsideVocabularyIsNamedWhileReading(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.bin")
	write(t, path, make([]byte, 2*64))
	d, _, err := Open(t.Context(), Options{Kind: KindTokens, Path: path, Context: 4, VocabularySize: 10})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte{10, 0}, 2*24)
	check(t, errors.Join(err, f.Close()))
	b := NewBatch(d, 2)
	d.Read([]int{0, 4}, b)
	for sample, want := range map[int]string{5: "at byte 48: token 10, but the vocabulary has 10", 6: "at byte 48: token 10"} {
		err := d.(fallible).tryRead([]int{1, sample}, b)
		if err == nil || !strings.Contains(err.Error(), want) || hint(err) == "" {
			t.Errorf("sample %d: %v, want %q", sample, err, want)
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
