package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestListsAreLimited checks that the number of empty elements in a file of another user is limited:
// they need hundreds of times their size in memory.
func TestListsAreLimited(t *testing.T) {
	const record = `{"format":1,"run":"a","name":"a","base":"/","`
	d := Dir{Path: t.TempDir()}
	readRecord := func() bool { _, err := d.ReadRecord(); return err == nil }
	for _, tt := range []struct {
		name, file, text, element string
		limit                     int
		read                      func() bool
	}{
		{"submissions", recordName, record + `submissions":[LIST]}`, `{"job_id":"1"}`, maxSubmissions, readRecord},
		{"chain", recordName, record + `chain":[LIST]}`, `{"job_id":"1"}`, maxChain, readRecord},
		{"chain before a short one", recordName, record + `chain":[LIST],"chain":[]}`, `{}`, maxChain, readRecord},
		{"groups of nodes", liveName, `{"nodes":[LIST]}`, `{}`, maxNodeGroups, func() bool { _, ok := d.ReadLive(); return ok }},
		{"hosts of a network", networkName, `{"hosts":[LIST]}`, `{}`, maxNetworkHosts, func() bool { _, err := d.ReadNetwork(); return err == nil }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, n := range []int{1, tt.limit, tt.limit + 1} {
				list := strings.TrimSuffix(strings.Repeat(tt.element+",", n), ",")
				if err := os.WriteFile(filepath.Join(d.Path, tt.file), []byte(strings.Replace(tt.text, "LIST", list, 1)), 0o600); err != nil {
					t.Fatal(err)
				}
				if ok := tt.read(); ok != (n <= tt.limit) {
					t.Errorf("%d elements: got success %v, the limit is %d", n, ok, tt.limit)
				}
			}
		})
	}
}

// TestSizesAreLimited checks the maximum sizes of files that another user may own. A file that is too large is
// cut, so its value is at its end.
func TestSizesAreLimited(t *testing.T) {
	d := Dir{Path: t.TempDir()}
	for _, tt := range []struct {
		file, text string
		limit      int
		read       func() bool
	}{
		{liveName, `{"phase":"training"}`, maxLive, func() bool { _, ok := d.ReadLive(); return ok }},
		{networkName, `{"hosts":[]}`, maxNetwork, func() bool { _, err := d.ReadNetwork(); return err == nil }},
	} {
		for _, size := range []int{tt.limit, tt.limit + 1} {
			if err := os.WriteFile(filepath.Join(d.Path, tt.file), []byte(strings.Repeat(" ", size-len(tt.text))+tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if ok := tt.read(); ok != (size <= tt.limit) {
				t.Errorf("%s with %d bytes: got success %v, the limit is %d", tt.file, size, ok, tt.limit)
			}
		}
	}
}

// TestEndOfAttempts checks that only the end of a long attempts.jsonl is read.
func TestEndOfAttempts(t *testing.T) {
	d := Dir{Path: t.TempDir()}
	const first, last = `{"event":"begin","attempt":1}` + "\n", `{"event":"begin","attempt":2}` + "\n"
	for size, want := range map[int]int{maxAttempts: 2, maxAttempts + 1: 1} {
		blank := strings.Repeat(strings.Repeat(" ", 1023)+"\n", maxAttempts/1024)[len(first)+len(last)+maxAttempts-size:]
		if err := os.WriteFile(d.Attempts(), []byte(first+blank+last), 0o600); err != nil {
			t.Fatal(err)
		}
		events, err := d.ReadAttempts()
		if err != nil || len(events) != want || events[len(events)-1].Attempt != 2 {
			t.Errorf("%d bytes: got %v, %v, want %d events", size, events, err, want)
		}
	}
}

// TestMeasurementsAreLimited checks the total size of the measurements that are read. One file may exceed it.
func TestMeasurementsAreLimited(t *testing.T) {
	d := mustCreate(t)
	const size = 1 << 20
	for node := range maxUsageBytes/size + 3 {
		if err := d.WriteUsage(1, node, nil); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(d.Usage(1, node), size); err != nil {
			t.Fatal(err)
		}
	}
	files, err := d.ReadUsage(size)
	if err != nil || len(files) != maxUsageBytes/size+1 {
		t.Errorf("got %d files, %v, want %d", len(files), err, maxUsageBytes/size+1)
	}
}

// TestHasCheckpointsFollowsOwnLinks checks that a link of a different user is not followed.
func TestHasCheckpointsFollowsOwnLinks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root")
	}
	d := mustCreate(t)
	target := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(target, "step-00000001"), 0o700), os.Symlink(target, d.Checkpoints())); err != nil {
		t.Fatal(err)
	}
	if !d.HasCheckpoints() {
		t.Error("the user's own link is not followed")
	}
	if err := errors.Join(os.Chown(d.Path, 61001, -1), os.Lchown(d.Checkpoints(), 61001, -1)); err != nil {
		t.Fatal(err)
	}
	if d.HasCheckpoints() {
		t.Error("another user's link is followed")
	}
}
