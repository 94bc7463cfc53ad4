package tests

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestReleaseIsStaticAndReproducible checks that the static program of a release needs no library
// and no loader, prints its version, and comes with manual pages, and that a build in a different
// directory gives the same bytes. `make release-check` checks all kinds of releases.
func TestReleaseIsStaticAndReproducible(t *testing.T) {
	kind := runtime.GOARCH + "-static"
	archive := "ddpbatch-v9.8.7-linux-" + kind + ".tar.gz"
	copied := filepath.Join(t.TempDir(), "a copy of the tree")
	if err := os.Mkdir(copied, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", `cd .. && git ls-files -z --cached --others --exclude-standard | xargs -0 ls -d 2>/dev/null | tar -cf - -T - | tar -xf - -C "$1"`, "sh", copied).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var sums []string
	dist := t.TempDir()
	for i, tree := range []string{"..", copied} {
		into := filepath.Join(dist, fmt.Sprint(i))
		c := exec.CommandContext(t.Context(), "make", "-s", "-C", tree, "release", "VERSION=v9.8.7", "DIST="+into)
		c.Env = append(os.Environ(), "KINDS="+kind, "SOURCE_DATE_EPOCH=1767225600")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		text, err := os.ReadFile(filepath.Join(into, archive))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(text)
		sums = append(sums, hex.EncodeToString(sum[:]))
	}
	if sums[0] != sums[1] {
		t.Errorf("the same tree in two directories gives %s and %s", sums[0], sums[1])
	}
	list, err := os.ReadFile(filepath.Join(dist, "0", "SHA256SUMS"))
	if err != nil || string(list) != sums[0]+"  "+archive+"\n" {
		t.Errorf("SHA256SUMS is %q (%v), and the digest %s", list, err, sums[0])
	}

	if out, err := exec.CommandContext(t.Context(), "tar", "-C", dist, "-xf", filepath.Join(dist, "0", archive)).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	root := filepath.Join(dist, strings.TrimSuffix(archive, ".tar.gz"))
	f, err := elf.Open(filepath.Join(root, "bin", "ddpbatch"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	checkMemory(t, f)
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("the static program has a %s", p.Type)
		}
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(root, "bin", "ddpbatch"), "version").Output()
	if err != nil || !strings.HasPrefix(string(out), "ddpbatch v9.8.7 (go") {
		t.Errorf("it says %q (%v)", out, err)
	}
	for _, name := range []string{"LICENSE", "README.md", "share/man/man1/ddpbatch-submit.1", "share/man/man5/ddpbatch.toml.5",
		"share/bash-completion/completions/ddpbatch", "share/zsh/site-functions/_ddpbatch", "share/fish/vendor_completions.d/ddpbatch.fish",
		"share/ddpbatch/job.schema.json", "share/ddpbatch/examples/demo.toml", "share/ddpbatch/examples/gpt-text.txt"} {
		if info, err := os.Stat(filepath.Join(root, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	page, err := os.ReadFile(filepath.Join(root, "share/man/man1/ddpbatch.1"))
	if err != nil || !strings.Contains(string(page), "2026-01-01") || !strings.Contains(string(page), "v9.8.7") {
		t.Errorf("%v\n%s", err, page)
	}
}
