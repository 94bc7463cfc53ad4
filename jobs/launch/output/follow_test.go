package output

import (
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// folder is a Dir.
type folder string

func (f folder) Create(name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(string(f), name), os.O_RDWR|os.O_CREATE, 0o600)
}

func (f folder) open(name string) (*os.File, error) { return os.Open(filepath.Join(string(f), name)) }

// TestFollowerReadsAllFiles checks that a follower returns all output of a rank in order, far beyond
// the limit of its files, for writes of different sizes, and also after the files are closed.
func TestFollowerReadsAllFiles(t *testing.T) {
	for _, tt := range []struct {
		name  string
		limit int64
		write int // maximum number of lines of a write
	}{
		{name: "line by line", limit: 4 << 10, write: 1},
		{name: "blocks", limit: 8 << 10, write: 20},
		{name: "blocks of about a file", limit: 4 << 10, write: 12},
	} {
		t.Run(tt.name, func(t *testing.T) {
			random := rand.New(rand.NewSource(1))
			dir := folder(t.TempDir())
			r := &rankFile{dir: dir, base: RankBase(0), limit: tt.limit}
			f := Follow(dir.open, RankBase(0))
			if b, gap, err := f.Next(); len(b) > 0 || gap || err != nil {
				t.Fatalf("got %q, %v, %v before the first write", b, gap, err)
			}
			var unread []byte
			all := 0
			read := func() {
				t.Helper()
				b, gap, err := f.Next()
				if err != nil || gap || !bytes.Equal(b, unread) {
					t.Fatalf("got %q, %v, %v, want %q after %d bytes", b, gap, err, unread, all)
				}
				all, unread = all+len(b), nil
			}
			for line := 0; all < 20*int(tt.limit); {
				var block []byte
				for range 1 + random.Intn(tt.write) {
					block = fmt.Appendf(block, "step %d %*s\n", line, random.Intn(60), "")
					line++
				}
				if len(unread)+len(block) > int(tt.limit/4) {
					read() // before it is overwritten
				}
				unread = append(unread, block...)
				if _, err := r.Write(block); err != nil {
					t.Fatal(err)
				}
				if random.Intn(3) > 0 {
					read()
				}
			}
			r.close()
			read()
		})
	}
}

// TestFollowerSkips checks that a follower continues with the oldest output that still exists, and
// returns at most the last 1 MiB.
func TestFollowerSkips(t *testing.T) {
	for _, tt := range []struct {
		name  string
		limit int64
		lines int
		most  int // bytes that are returned at most
	}{
		{name: "overwritten", limit: 4 << 10, lines: 10_000, most: 2 << 10},
		{name: "large input in the first file", limit: 64 << 20, lines: 200_000, most: maxFollow},
		{name: "large input in the last file", limit: 16 << 20, lines: 1_200_000, most: maxFollow},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := folder(t.TempDir())
			r := &rankFile{dir: dir, base: RankBase(0), limit: tt.limit}
			f := Follow(dir.open, RankBase(0))
			if _, err := r.Write([]byte("begin\n")); err != nil {
				t.Fatal(err)
			}
			if b, gap, err := f.Next(); string(b) != "begin\n" || gap || err != nil {
				t.Fatalf("got %q, %v, %v", b, gap, err)
			}
			var block []byte
			for line := range tt.lines {
				if block = fmt.Appendf(block, "line %d\n", line); len(block) > int(tt.limit/16) || line == tt.lines-1 {
					if _, err := r.Write(block); err != nil {
						t.Fatal(err)
					}
					block = nil
				}
			}
			b, gap, err := f.Next()
			last := fmt.Appendf(nil, "line %d\n", tt.lines-1)
			if err != nil || !gap || len(b) > tt.most || !bytes.HasSuffix(b, last) {
				t.Errorf("got %d bytes, %v, %v, want at most %d up to %q", len(b), gap, err, tt.most, last)
			}
			if _, err := r.Write([]byte("end\n")); err != nil {
				t.Fatal(err)
			}
			if b, gap, err := f.Next(); string(b) != "end\n" || gap || err != nil {
				t.Errorf("got %d bytes, %v, %v after the gap", len(b), gap, err)
			}
			r.close()
		})
	}
}

// TestLastLines checks that the last lines are complete at any time, in particular when a new file of
// the output has fewer lines than requested.
func TestLastLines(t *testing.T) {
	dir := folder(t.TempDir())
	r := &rankFile{dir: dir, base: RankBase(0), limit: 4 << 10}
	defer r.close()
	var want []string
	for i := range 1000 {
		line := fmt.Sprintf("step %d, loss 0.5", i)
		if _, err := r.Write([]byte(line + "\n")); err != nil {
			t.Fatal(err)
		}
		want = append(want, line)
		want = want[max(0, len(want)-20):]
		if got, err := LastLines(dir.open, RankBase(0), 20); err != nil || !slices.Equal(got, want) {
			t.Fatalf("after line %d: got %q, %v, want %q", i, got, err, want)
		}
	}
}
