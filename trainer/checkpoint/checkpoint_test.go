package checkpoint

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// vocabulary has characters that JSON escapes.
const vocabulary = "char:\x00\n\"<\u007f\u00e9\u2028\ufffd\U0001f600"

func state(step int) (*Manifest, Files) {
	v := float32(step)
	return &Manifest{Run: "run", Step: step, Epoch: 1, Consumed: 64, Seed: 3, WorldSize: 2,
			Spec: map[string]string{"batch": "32"}, Vocabulary: vocabulary, Metrics: map[string]Number{"loss": Number(math.NaN())}},
		Files{
			ModelFile:     {{Name: "0.weight", Shape: []int{2, 2}, Data: []float32{v, v + 1, v + 2, v + 3}}},
			OptimizerFile: {{Name: "momentum.0.weight", Shape: []int{2, 2}, Data: []float32{1, 2, 3, 4}}},
		}
}

func save(t *testing.T, dir string, step int) string {
	t.Helper()
	m, f := state(step)
	path, err := Save(dir, m, f)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSaveDoesNotCreateRunDirectory checks that Save does not create the directory above the
// checkpoints. A run directory that was moved must not reappear at its old path.
func TestSaveDoesNotCreateRunDirectory(t *testing.T) {
	around := filepath.Join(t.TempDir(), "run")
	m, f := state(1)
	if _, err := Save(filepath.Join(around, "checkpoints"), m, f); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(around); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is there (%v)", err)
	}
}

// contents reads all files of a checkpoint and closes it.
func contents(t *testing.T, s *Snapshot) Files {
	t.Helper()
	defer s.Close()
	files := Files{}
	for name, f := range s.Files {
		tensors, _, err := safetensors.Read(f, f.Size())
		if err != nil {
			t.Fatal(err)
		}
		files[name] = tensors
	}
	return files
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	found, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range found {
		out = append(out, f.Name())
	}
	return out
}

// TestSaveLoadPrune checks the usual sequence: checkpoints are saved with private modes, found,
// loaded completely, and pruned to the newest.
func TestSaveLoadPrune(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "checkpoints")
	if _, _, err := Load(t.Context(), dir); !errors.Is(err, ErrNotFound) {
		t.Fatalf("no folder: %v", err)
	}
	if _, ok, err := Newest(dir); ok || err != nil {
		t.Fatalf("no folder: %v, %v", ok, err)
	}
	for _, step := range []int{0, 5, 10, 100_000_000} {
		save(t, dir, step)
	}
	all, err := List(dir)
	if e, ok, nerr := Newest(dir); err != nil || nerr != nil || !ok || e.Path != all[0].Path || e.Step != 100_000_000 || e.Manifest.Digest != all[0].Manifest.Digest {
		t.Errorf("the newest is %+v, %v, %v; want the first of %+v, %v", e, ok, nerr, all, err)
	}
	s, skipped, err := Load(t.Context(), dir)
	if err != nil || len(skipped) > 0 {
		t.Fatal(err, skipped)
	}
	_, want := state(100_000_000)
	if s.Manifest.Step != 100_000_000 || s.Manifest.Consumed != 64 || s.Manifest.Vocabulary != vocabulary || !reflect.DeepEqual(contents(t, s), want) || !math.IsNaN(float64(s.Manifest.Metrics["loss"])) {
		t.Fatalf("loaded %+v", s)
	}
	if err := Prune(t.Context(), dir, "run", 100_000_000, Retention{Newest: 2}, map[int]bool{}); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); !reflect.DeepEqual(got, []string{"step-00000010", "step-100000000"}) {
		t.Errorf("left: %v", got)
	}
	for path, want := range map[string]fs.FileMode{dir: 0o700, filepath.Join(s.Path, ModelFile): 0o600, filepath.Join(s.Path, manifestName): 0o600} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v; want %v", path, info.Mode().Perm(), err, want)
		}
	}
}

// TestCorruptionIsDetectedAndSkipped checks that Load uses the previous checkpoint if any byte of
// a file is altered or the file is truncated. The error names the file and the corrupt tensor.
func TestCorruptionIsDetectedAndSkipped(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, 1)
	newest := save(t, dir, 2)
	m, err := readManifest(newest)
	if err != nil {
		t.Fatal(err)
	}
	wantDigest := m.Digest
	tensors := map[string]string{ModelFile: `tensor "0.weight"`, OptimizerFile: `tensor "momentum.0.weight"`}
	for _, file := range []string{manifestName, ModelFile, OptimizerFile} {
		path := filepath.Join(newest, file)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range good {
			named := "invalid header"
			if file == manifestName {
				named = manifestName
			} else if i >= len(good)-16 { // 4 elements
				named = tensors[file]
			}
			for what, bad := range map[string][]byte{"cut off": good[:i], "lowest bit flipped": flip(good, i, 0x01), "other case": flip(good, i, 0x20), "highest bit flipped": flip(good, i, 0x80)} {
				if err := os.WriteFile(path, bad, 0o600); err != nil {
					t.Fatal(err)
				}
				s, skipped, err := Load(t.Context(), dir)
				if err != nil {
					t.Fatalf("%s %s at %d: %v", file, what, i, err)
				}
				s.Close()
				// White space and the case of keys may change in a manifest, but no values.
				if s.Manifest.Step == 2 && file == manifestName && s.Manifest.Digest == wantDigest {
					continue
				}
				if s.Manifest.Step != 1 || len(skipped) != 1 {
					t.Fatalf("%s %s at %d: step %d loaded, skipped %v", file, what, i, s.Manifest.Step, skipped)
				}
				if why := skipped[0].Error(); !strings.Contains(why, path) || !strings.Contains(why, named) {
					t.Errorf("%s %s at %d: %q does not name the file and %q", file, what, i, why, named)
				}
			}
		}
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Verify(t.Context(), newest); err != nil {
		t.Fatal(err)
	}
	for _, e := range []string{filepath.Join(newest, ModelFile), filepath.Join(dir, "step-00000001", ModelFile)} {
		if err := os.Truncate(e, 3); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err = Load(t.Context(), dir)
	var u *UnusableError
	if !errors.As(err, &u) || len(u.Skipped) != 2 || !strings.Contains(err.Error(), "has 3 bytes, the manifest has") {
		t.Errorf("got %v", err)
	}
}

func flip(b []byte, i int, bit byte) []byte {
	c := append([]byte(nil), b...)
	c[i] ^= bit
	return c
}

// TestMissingManifestIsCorruption checks that a checkpoint without a manifest counts as corrupt,
// and that Clean does not remove it.
func TestMissingManifestIsCorruption(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, 1)
	if err := os.Remove(filepath.Join(save(t, dir, 2), manifestName)); err != nil {
		t.Fatal(err)
	}
	s, skipped, err := Load(t.Context(), dir)
	if err != nil || s.Manifest.Step != 1 || len(skipped) != 1 || !errors.Is(skipped[0], fs.ErrNotExist) {
		t.Fatalf("loaded %v, skipped %v, %v", s, skipped, err)
	}
	if err := os.Remove(filepath.Join(dir, "step-00000001", manifestName)); err != nil {
		t.Fatal(err)
	}
	var u *UnusableError
	if _, _, err := Load(t.Context(), dir); !errors.As(err, &u) {
		t.Errorf("got %v", err)
	}
	if err := cleanAt(dir); err != nil || len(names(t, dir)) != 2 {
		t.Errorf("tensors without a manifest were cleared away: %v, %v", names(t, dir), err)
	}
}

// TestSymbolicLinkIsRejected checks that Verify rejects a file of a checkpoint that is a symbolic
// link.
func TestSymbolicLinkIsRejected(t *testing.T) {
	dir := t.TempDir()
	path := save(t, dir, 1)
	model := filepath.Join(path, ModelFile)
	if err := errors.Join(os.Rename(model, filepath.Join(dir, "elsewhere")), os.Symlink(filepath.Join(dir, "elsewhere"), model)); err != nil {
		t.Fatal(err)
	}
	if err := Verify(t.Context(), path); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("got %v", err)
	}
}

// TestLeftoversAreIgnored checks that leftovers of an interrupted save or pruning are not
// checkpoints. They do not block a save, which removes them.
func TestLeftoversAreIgnored(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, 1)
	pruned := save(t, dir, 2)
	if err := os.Rename(pruned, filepath.Join(dir, tempPrefix+"removed-step-00000002")); err != nil {
		t.Fatal(err)
	}
	killed := filepath.Join(dir, tempPrefix+"123")
	if err := errors.Join(os.Mkdir(killed, 0o700), os.WriteFile(filepath.Join(killed, manifestName), []byte("{}"), 0o600),
		os.Mkdir(filepath.Join(dir, "step-notes"), 0o700), os.WriteFile(filepath.Join(dir, "step-notes", manifestName), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	s, skipped, err := Load(t.Context(), dir)
	if err != nil || s.Manifest.Step != 1 || len(skipped) != 0 {
		t.Fatalf("loaded %v, skipped %v, %v", s, skipped, err)
	}
	save(t, dir, 2)
	if got := names(t, dir); !reflect.DeepEqual(got, []string{"step-00000001", "step-00000002", "step-notes"}) {
		t.Errorf("left: %v", got)
	}
}

// TestSaveOverTheSameStep checks that Save replaces a corrupt checkpoint of the same step and
// keeps a valid one of the same run.
func TestSaveOverTheSameStep(t *testing.T) {
	dir := t.TempDir()
	path := save(t, dir, 1)
	before, _ := os.Stat(path)
	save(t, dir, 1)
	if after, _ := os.Stat(path); !os.SameFile(before, after) {
		t.Error("a good checkpoint was written again")
	}
	if err := os.Truncate(filepath.Join(path, ModelFile), 1); err != nil {
		t.Fatal(err)
	}
	save(t, dir, 1)
	if err := Verify(t.Context(), path); err != nil {
		t.Error(err)
	}
	// The positions before and after the evaluation of an epoch are different.
	for _, unevaluated := range []bool{true, false} {
		m, files := state(1)
		m.Unevaluated = unevaluated
		if _, err := Save(dir, m, files); err != nil {
			t.Fatal(err)
		}
		if now, err := readManifest(path); err != nil || now.Unevaluated != unevaluated {
			t.Errorf("saved %v, found %+v, %v", unevaluated, now, err)
		}
	}
	if got := names(t, dir); !reflect.DeepEqual(got, []string{"step-00000001"}) {
		t.Errorf("left: %v", got)
	}
}

// TestFailedSaveLeavesNothing checks that a failed save leaves only the earlier checkpoints.
func TestFailedSaveLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, 1)
	m, files := state(2)
	files[ModelFile] = append(files[ModelFile], safetensors.Tensor{Name: "bad", Shape: []int{3}, Data: nil})
	if _, err := Save(dir, m, files); err == nil || !strings.Contains(err.Error(), `save checkpoint of step 2: write "`) {
		t.Errorf("got %v", err)
	}
	if got := names(t, dir); !reflect.DeepEqual(got, []string{"step-00000001"}) {
		t.Errorf("left: %v", got)
	}
}

// writeManifest replaces the manifest of the checkpoint at path, with valid digests.
func writeManifest(t testing.TB, path string, m Manifest) {
	t.Helper()
	text, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, manifestName), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestHostileManifestWithValidDigestIsRejected checks that Load and Verify reject invalid values
// in a manifest whose digest is valid. The digest has no key, so an attacker can compute it.
func TestHostileManifestWithValidDigestIsRejected(t *testing.T) {
	dir := t.TempDir()
	path := save(t, dir, 1)
	valid, err := readManifest(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		edit func(m *Manifest)
		want string
	}{
		{"no files", func(m *Manifest) { m.Files = nil }, "no files"},
		{"file listed twice", func(m *Manifest) { m.Files = append(m.Files, m.Files[0]) }, "listed twice"},
		{"part listed twice", func(m *Manifest) {
			m.Sharded = map[string]map[string][]int{"whole.safetensors": {"0.weight": {2, 2}}}
			part := m.Files[0]
			part.PartOf = "whole.safetensors"
			m.Files = []File{part, part}
		}, "listed twice"},
		{"negative step", func(m *Manifest) { m.Step = -1 }, "step is negative"},
		{"negative epoch", func(m *Manifest) { m.Epoch = -1_000_000 }, "epoch is negative"},
		{"negative sample count", func(m *Manifest) { m.Consumed = -7 }, "consumed is negative"},
		{"negative count of skipped steps", func(m *Manifest) { m.Skipped = -1 }, "skipped is negative"},
		{"negative world size", func(m *Manifest) { m.WorldSize = -2 }, "world_size is negative"},
		{"negative file size", func(m *Manifest) { m.Files[0].Bytes = -1 }, "negative size"},
		{"file outside the checkpoint", func(m *Manifest) { m.Files[0].Name = "../../etc/passwd" }, "not the name of a checkpoint file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := *valid
			m.Files = slices.Clone(valid.Files)
			tt.edit(&m)
			writeManifest(t, path, m)
			s, skipped, err := Load(t.Context(), dir)
			if err == nil {
				s.Close()
			}
			if len(skipped) != 1 || !strings.Contains(skipped[0].Error(), tt.want) {
				t.Errorf("got %v, %v, want %q", skipped, err, tt.want)
			}
			if err := Verify(t.Context(), path); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("verify: got %v, want %q", err, tt.want)
			}
		})
	}
}

// FuzzManifest repairs the digests of each manifest that it mutates. Otherwise no mutant would
// reach the code after the digest check.
func FuzzManifest(f *testing.F) {
	dir := f.TempDir()
	m, files := state(1)
	path, err := Save(dir, m, files)
	if err != nil {
		f.Fatal(err)
	}
	valid, err := os.ReadFile(filepath.Join(path, manifestName))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(valid)
	f.Add([]byte(`{"format":1,"step":1,"files":[{"name":"../../etc/passwd"}]}`))
	f.Add([]byte(`{"step":1,"divided":{"a":{"0.weight":[2,2]}},"files":[{"name":"model.safetensors","of":"a"},{"name":"model.safetensors","of":"a"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var m Manifest
		if json.Unmarshal(text, &m) == nil {
			m.Format = Format
			for i, file := range m.Files {
				if content, err := os.ReadFile(filepath.Join(path, filepath.Base(file.Name))); err == nil {
					m.Files[i].Bytes, m.Files[i].SHA256 = int64(len(content)), fmt.Sprintf("%x", sha256.Sum256(content))
				}
			}
			writeManifest(t, path, m)
		} else if err := os.WriteFile(filepath.Join(path, manifestName), text, 0o600); err != nil {
			t.Fatal(err)
		}
		s, _, err := Load(t.Context(), dir)
		if err != nil {
			return
		}
		defer s.Close()
		for n := range s.Files {
			if n != filepath.Base(n) && s.Manifest.Sharded[n] == nil {
				t.Fatalf("a file outside the checkpoint was read: %q", n)
			}
		}
	})
}

// TestSharedDirectoryIsNotCleaned checks that no function removes anything from a directory to which
// others can write. Another user could exchange the directory of checkpoints for a link to a shared
// directory, in which the user has renamed the data of the owner.
func TestSharedDirectoryIsNotCleaned(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, 1)
	save(t, dir, 2)
	data := filepath.Join(dir, tempPrefix+"data")
	if err := errors.Join(os.Mkdir(data, 0o700), os.WriteFile(filepath.Join(data, "results"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "checkpoints")
	if err := errors.Join(os.Symlink(dir, link), os.Chmod(dir, 0o770)); err != nil {
		t.Fatal(err)
	}
	m, files := state(3)
	for name, try := range map[string]func() error{
		"clean": func() error { return cleanAt(link) },
		"prune": func() error { return Prune(t.Context(), link, m.Run, 2, Retention{Newest: 1}, map[int]bool{}) },
		"save":  func() error { _, err := Save(dir, m, files); return err },
	} {
		if err := try(); err == nil || !strings.Contains(err.Error(), "mode 0770") {
			t.Errorf("%s: got error %v, want one about the mode", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(data, "results")); err != nil {
		t.Error(err)
	}
	if got := names(t, dir); len(got) != 3 {
		t.Errorf("left: %v", got)
	}
}

// TestSaveIgnoresExchangedDirectory checks that a save renames and removes files only in the directory
// that it has opened, and that a checkpoint whose files are elsewhere stays invisible.
func TestSaveIgnoresExchangedDirectory(t *testing.T) {
	for _, exchange := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "checkpoints")
		save(t, dir, 1)
		m, _ := state(2)
		s, err := Begin(dir, m)
		if err != nil {
			t.Fatal(err)
		}
		now, victim := dir, filepath.Join(dir, filepath.Base(s.TempDir))
		if exchange {
			// The other directory has the data of the owner under the name of the temporary directory.
			now = dir + ".moved"
			if err := errors.Join(os.Rename(dir, now), os.Mkdir(dir, 0o700), os.Mkdir(victim, 0o700),
				os.WriteFile(filepath.Join(victim, "results"), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		written, err := WriteParts(s.TempDir, 0, map[string][]Part{ModelFile: {{Tensor: "w", Data: []float32{1}}}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Commit(written)
		if (err != nil) != exchange {
			t.Errorf("exchanged %v: got error %v", exchange, err)
		}
		want := []string{"step-00000001"}
		if exchange {
			if _, err := os.Stat(filepath.Join(victim, "results")); err != nil {
				t.Error(err)
			}
		} else {
			want = append(want, "step-00000002")
		}
		if got := names(t, now); !reflect.DeepEqual(got, want) {
			t.Errorf("exchanged %v: left %v, want %v", exchange, got, want)
		}
	}
}

// TestCheckpointOfAnotherUser checks that a checkpoint of another user can be read, but is not this
// user's own.
func TestCheckpointOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root")
	}
	dir := t.TempDir()
	path := save(t, dir, 1)
	for _, own := range []bool{true, false} {
		if !own {
			chowned := []string{dir, path}
			files, err := filepath.Glob(filepath.Join(path, "*"))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range append(chowned, files...) {
				if err := os.Chown(name, 61001, 61001); err != nil {
					t.Fatal(err)
				}
			}
		}
		s, _, err := Load(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.CheckOwn(); (err == nil) != own {
			t.Errorf("own %v: got error %v", own, err)
		}
		s.Close()
	}
}

// cleanAt removes what interrupted saves left in a directory.
func cleanAt(dir string) error {
	root, err := openOwn(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return clean(root)
}

// readManifest returns the manifest of the checkpoint at path.
func readManifest(path string) (m *Manifest, err error) {
	err = inDir(filepath.Dir(path), func(root *os.Root) error {
		m, _, err = openManifest(root, path)
		return err
	})
	return m, err
}
