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
