package jobs

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestBadSpecs compares the diagnostics for each invalid spec with its golden file.
func TestBadSpecs(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.toml")
	if err != nil || len(files) < 60 {
		t.Fatalf("found %d bad specs (%v)", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".toml")
		t.Run(name, func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			job, err := Parse("job.toml", src)
			if err == nil || job != nil {
				t.Fatalf("accepted: %+v", job)
			}
			var found Diagnostics
			if !errors.As(err, &found) {
				t.Fatalf("got a %T, want Diagnostics", err)
			}
			var got bytes.Buffer
			if err := found.Render(&got); err != nil {
				t.Fatal(err)
			}
			if err.Error()+"\n" != got.String() {
				t.Errorf("Error() and Render differ:\n%s", err)
			}
			if strings.Contains(got.String(), "canary") {
				t.Errorf("a value of setup.env is shown:\n%s", got.String())
			}
			golden := filepath.Join("testdata/bad", name+".golden")
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s\n(go test ./jobs -update rewrites it)", got.String(), want)
			}
		})
	}
}
