package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// firstManifest has the fields of a manifest before FullDigest, in their order. A program of that
// time ignores all others and computes Digest from these.
type firstManifest struct {
	Format      int                         `json:"format"`
	Run         string                      `json:"run"`
	Created     time.Time                   `json:"created"`
	Program     string                      `json:"program"`
	Step        int                         `json:"step"`
	Epoch       int                         `json:"epoch"`
	Consumed    int                         `json:"consumed"`
	Finished    bool                        `json:"finished"`
	Unevaluated bool                        `json:"unevaluated,omitempty"`
	Skipped     int                         `json:"skipped,omitempty"`
	Seed        uint64                      `json:"seed"`
	WorldSize   int                         `json:"world_size"`
	Spec        map[string]string           `json:"spec"`
	SpecSum     string                      `json:"spec_digest"`
	DataSum     string                      `json:"data_digest"`
	Vocabulary  string                      `json:"vocabulary,omitempty"`
	Optimizer   string                      `json:"optimizer"`
	OptimInit   bool                        `json:"optimizer_initialised"`
	Metrics     map[string]Number           `json:"metrics,omitempty"`
	Divided     map[string]map[string][]int `json:"divided,omitempty"`
	Files       []File                      `json:"files"`
	Digest      string                      `json:"digest"`
}

func saveCompared(t *testing.T, dir string, step int) string {
	t.Helper()
	m, f := state(step)
	m.Replicas, m.Layout = ReplicasCompared, "2x1"
	path, err := Save(dir, m, f)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestOlderProgramsReadNewManifests checks that later fields do not change the digest that older
// programs compute.
func TestOlderProgramsReadNewManifests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(saveCompared(t, t.TempDir(), 1), manifestName))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `"replicas": "compared"`) || !strings.Contains(string(text), `"layout": "2x1"`) {
		t.Fatalf("%s", text)
	}
	var m firstManifest
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	want := m.Digest
	m.Digest = ""
	if text, err = json.Marshal(m); err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != want {
		t.Errorf("digest %x, the manifest has %s", sum, want)
	}
}

// TestManifestFieldsAreCoveredByADigest checks that Verify detects a change of any field, of any
// version.
func TestManifestFieldsAreCoveredByADigest(t *testing.T) {
	for _, tt := range []struct{ name, old, new string }{
		{"replicas", `"compared"`, `"none"`},
		{"layout", `"2x1"`, `"1x2"`},
		{"key of replicas", `"replicas"`, `"replicat"`},
		{"key of the full digest", `"full_digest"`, `"full_digess"`},
		{"a field of a later version", `"replicas"`, `"later": 1, "replicas"`},
		{"a field of the first version", `"epoch": 1`, `"epoch": 3`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := saveCompared(t, t.TempDir(), 1)
			edit(t, path, tt.old, tt.new)
			if err := Verify(t.Context(), path); err == nil || !strings.Contains(err.Error(), "corrupt") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// edit replaces a part of a checkpoint's manifest.
func edit(t *testing.T, path, old, new string) {
	t.Helper()
	file := filepath.Join(path, manifestName)
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), old) {
		t.Fatalf("%v: no %s in %s", err, old, text)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), old, new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestNewerFormatIsKeptAndNotSkipped checks that a checkpoint in a newer format is not treated as
// corrupt: it is not skipped, removed, or replaced.
func TestNewerFormatIsKeptAndNotSkipped(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, 1)
	edit(t, save(t, dir, 2), `"format": 1`, `"format": 2`)
	_, skipped, err := Load(t.Context(), dir)
	var newer NewerError
	if !errors.As(err, &newer) || newer.Format != 2 || newer.ExitCode() != 5 || !strings.Contains(newer.Hint(), "newer ddpbatch") || len(skipped) > 0 {
		t.Errorf("loaded: %v, %v", err, skipped)
	}
	if err := Verify(t.Context(), filepath.Join(dir, name(2))); !errors.As(err, &newer) {
		t.Errorf("verified: %v", err)
	}
	m, files := state(2)
	if _, err := Save(dir, m, files); !errors.As(err, &newer) {
		t.Errorf("saved over it: %v", err)
	}
	for step := 3; step <= 5; step++ {
		save(t, dir, step)
	}
	if err := Prune(t.Context(), dir, "run", 5, Retention{Newest: 1}, map[int]bool{}); err != nil {
		t.Fatal(err)
	}
	if got, want := names(t, dir), []string{name(2), name(5)}; !slices.Equal(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
	if s, _, err := Load(t.Context(), dir); err != nil || s.Manifest.Step != 5 {
		t.Errorf("with a newer checkpoint that can be read: %v", err)
	}
}

// TestNewerFormatWithOtherTypes checks that Load recognizes a newer format even if its fields have
// other types.
func TestNewerFormatWithOtherTypes(t *testing.T) {
	dir := t.TempDir()
	path := save(t, dir, 1)
	if err := os.WriteFile(filepath.Join(path, manifestName), []byte(`{"format": 7, "program": {"name": "x"}, "step": "one"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(t.Context(), dir); !errors.As(err, &NewerError{}) {
		t.Errorf("got %v", err)
	}
}

// TestHintOfAFullDisk checks that the hint for a full disk mentions earlier checkpoints only if
// they exist.
func TestHintOfAFullDisk(t *testing.T) {
	dir := t.TempDir()
	hint := func() string {
		var h interface{ Hint() string }
		if !errors.As(addHint(dir, syscall.ENOSPC), &h) {
			t.Fatal("no hint")
		}
		return h.Hint()
	}
	if got := hint(); strings.Contains(got, "intact") || !strings.Contains(got, "nothing was saved yet") {
		t.Errorf("without checkpoints: %q", got)
	}
	save(t, dir, 0)
	if got := hint(); !strings.Contains(got, "earlier checkpoints are intact") {
		t.Errorf("with one: %q", got)
	}
}
