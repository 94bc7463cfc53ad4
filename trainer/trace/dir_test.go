package trace

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestReadDir checks which recordings of a directory are read, and which ones are corrupt.
func TestReadDir(t *testing.T) {
	var b bytes.Buffer
	r := New(1, 1)
	r.Reserve(1)
	if err := r.Begin(7, nobody); err != nil {
		t.Fatal(err)
	}
	r.Add(Step, 1, r.Now())
	if err := r.Write(&b, Rank{Rank: 0, Ranks: 2, Host: "n1"}); err != nil {
		t.Fatal(err)
	}
	whole := b.String()
	const huge = maxForeignTraces + 1
	for name, tt := range map[string]struct {
		files     map[string]string
		size      int64 // of rank-00001, which is then sparse
		isForeign bool
		ranks     []int
		corrupt   []CorruptFile // without Err
		want      string        // part of the error
	}{
		"no directory": {},
		"other files":  {files: map[string]string{"rank-00000.jsonl": whole, ".tmp-1": "x"}, ranks: []int{0}},
		"corrupt": {
			files:   map[string]string{"rank-00000.jsonl": whole[:len(whole)-3], "rank-00001.jsonl": "{"},
			ranks:   []int{0},
			corrupt: []CorruptFile{{Name: "rank-00000.jsonl", Partial: true}, {Name: "rank-00001.jsonl"}},
		},
		"large file of this user":    {files: map[string]string{"rank-00001.jsonl": ""}, size: huge, corrupt: []CorruptFile{{Name: "rank-00001.jsonl"}}},
		"large file of another user": {files: map[string]string{"rank-00001.jsonl": ""}, size: huge, isForeign: true, want: "more than 2 GiB"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "trace")
			for name, text := range tt.files {
				path := filepath.Join(dir, name)
				if err := os.MkdirAll(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				if tt.size > 0 {
					if err := os.Truncate(path, tt.size); err != nil {
						t.Fatal(err)
					}
				}
			}
			all, corrupt, err := ReadDir(dir, tt.isForeign, func(name string) (*os.File, error) { return os.Open(filepath.Join(dir, name)) })
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
				return
			}
			var ranks []int
			for _, r := range all {
				ranks = append(ranks, r.Rank.Rank)
			}
			for i, c := range corrupt {
				if c.Err == nil {
					t.Errorf("%s: no error", c.Name)
				}
				corrupt[i].Err = nil
			}
			if err != nil || !reflect.DeepEqual(ranks, tt.ranks) || !reflect.DeepEqual(corrupt, tt.corrupt) {
				t.Errorf("got ranks %v, corrupt %+v, %v, want %v and %+v", ranks, corrupt, err, tt.ranks, tt.corrupt)
			}
		})
	}
}
