package tensorboard

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// events reads the records of a file, verifies their checksums bit by bit, and decodes them with
// protoc.
func events(t *testing.T, path string) []string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for len(raw) > 0 {
		n := binary.LittleEndian.Uint64(raw)
		if got, want := binary.LittleEndian.Uint32(raw[8:]), slowMasked(raw[:8]); got != want {
			t.Fatalf("checksum of a length is %#x, want %#x", got, want)
		}
		data := raw[12:][:n]
		if got, want := binary.LittleEndian.Uint32(raw[12+n:]), slowMasked(data); got != want {
			t.Fatalf("checksum of a record is %#x, want %#x", got, want)
		}
		raw = raw[16+n:]
		cmd := exec.CommandContext(t.Context(), "protoc", "--decode=Event", "-Itestdata", "testdata/event.proto")
		cmd.Stdin = strings.NewReader(string(data))
		cmd.Stderr = os.Stderr
		text, err := cmd.Output()
		if err != nil {
			t.Fatalf("protoc: %v", err)
		}
		out = append(out, strings.Join(strings.Fields(string(text)), " "))
	}
	return out
}

// slowMasked computes the result of masked from the definition of CRC-32C (RFC 3720, appendix B.4).
func slowMasked(b []byte) uint32 {
	sum := ^uint32(0)
	for _, c := range b {
		sum ^= uint32(c)
		for range 8 {
			if sum&1 == 1 {
				sum = sum>>1 ^ 0x82f63b78
			} else {
				sum >>= 1
			}
		}
	}
	sum = ^sum
	return (sum>>15 | sum<<17) + 0xa282ead8
}

// TestEventFile decodes an event file with protoc and checks its events, for new and resumed runs.
func TestEventFile(t *testing.T) {
	if _, err := exec.LookPath("protoc"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("protoc is missing: run tests/setup.sh")
		}
		t.Skip("protoc is missing: run tests/setup.sh")
	}
	now := time.Unix(1700000000, 5e8)
	for _, tt := range []struct {
		name string
		step int
		want []string
	}{
		{"new", 0, nil},
		{"resumed", 120, []string{`wall_time: 1700000000.5 step: 121 session_log { status: START }`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "tensorboard")
			f, err := Create(dir, "n1", tt.step, now)
			if err != nil {
				t.Fatal(err)
			}
			for _, scalars := range [][]Scalar{{{"train/loss", 2.5}, {"train/lr", 0.001}}, {{"train/loss", math.NaN()}}} {
				if err := f.Write(now.Add(time.Second), 150, scalars...); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			paths, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.1700000000.n1.*"))
			if err != nil || len(paths) != 1 {
				t.Fatalf("files %v, %v", paths, err)
			}
			want := append([]string{`wall_time: 1700000000.5 file_version: "brain.Event:2"`}, tt.want...)
			want = append(want,
				`wall_time: 1700000001.5 step: 150 summary { value { tag: "train/loss" simple_value: 2.5 } value { tag: "train/lr" simple_value: 0.001 } }`,
				`wall_time: 1700000001.5 step: 150 summary { value { tag: "train/loss" simple_value: nan } }`)
			if got := events(t, paths[0]); strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// TestChecksum compares the checksum with a value from leveldb's crc32c_test.cc, the origin of the
// masking.
func TestChecksum(t *testing.T) {
	if got := crc32.Checksum(make([]byte, 32), castagnoli); got != 0x8a9136aa {
		t.Errorf("checksum of 32 zeros is %#x", got)
	}
	if got, want := masked([]byte("foo")), slowMasked([]byte("foo")); got != want {
		t.Errorf("masked %#x, want %#x", got, want)
	}
}

// TestCreateFails checks the error if the directory cannot be created.
func TestCreateFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(file, "n1", 0, time.Now()); err == nil || !strings.HasPrefix(err.Error(), "create event file: ") {
		t.Errorf("got %v", err)
	}
}
