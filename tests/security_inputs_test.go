package tests

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	endian "encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
)

// seal writes a manifest with matching digests. The digests have no key, so any user can compute
// them.
func seal(t *testing.T, path string, m *checkpoint.Manifest) {
	t.Helper()
	digest := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(text)
		return hex.EncodeToString(sum[:])
	}
	first := *m
	first.Digest, first.FullDigest, first.Replicas, first.Layout = "", "", "", ""
	m.Digest, m.FullDigest = digest(first), ""
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	delete(fields, "digest")
	delete(fields, "full_digest")
	m.FullDigest = digest(fields)
	if text, err = json.Marshal(m); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// testCheckpointOfAnotherUser reads invalid checkpoints of another user whose digests match.
func testCheckpointOfAnotherUser(t *testing.T, s *twoUsers) {
	alice, mallory := s.people(t)
	home, project := alice.dir(), s.project(t)
	run := s.finishedRun(t)
	alice.write(filepath.Join(home, "train.toml"), linear("demo", 1))
	changes := map[string]func(dir string, m *checkpoint.Manifest){
		"unchanged":  func(string, *checkpoint.Manifest) {},
		"part twice": duplicatePart,
		"negative":   func(_ string, m *checkpoint.Manifest) { m.Consumed = -7 },
		"epoch":      func(_ string, m *checkpoint.Manifest) { m.Epoch = -1_000_000 },
		"step":       func(_ string, m *checkpoint.Manifest) { m.Step = -1 },
		"world size": func(_ string, m *checkpoint.Manifest) { m.WorldSize = -2 },
		"skipped":    func(_ string, m *checkpoint.Manifest) { m.Skipped = -1 },
		"name":       func(_ string, m *checkpoint.Manifest) { m.Files[0].Name = "\x1b[2Jx" },
		"path":       func(_ string, m *checkpoint.Manifest) { m.Files[0].Name = "../../../record.json" },
		"size":       func(_ string, m *checkpoint.Manifest) { m.Files[0].Bytes = 1 << 62 },
		"link": func(dir string, m *checkpoint.Manifest) {
			name := filepath.Join(dir, m.Files[0].Name)
			os.Remove(name)
			if err := os.Symlink("/dev/zero", name); err != nil {
				t.Fatal(err)
			}
		},
		"FIFO": func(dir string, m *checkpoint.Manifest) {
			name := filepath.Join(dir, m.Files[0].Name)
			os.Remove(name)
			if err := syscall.Mkfifo(name, 0o666); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			alice.t = t
			received := filepath.Join(project, strings.ReplaceAll(name, " ", "-"))
			mallory.copyRun(run, received)
			changeCheckpoint(t, received, change)

			// Alice copies the checkpoint and resumes from it.
			mine := filepath.Join(home, filepath.Base(received))
			alice.copyRun(received, mine)
			for _, args := range [][]string{
				{"checkpoint", "ls", mine}, {"checkpoint", "verify", mine}, {"status", mine}, {"report", mine, "--force", "-o", "o.html"},
				{"checkpoint", "export", mine, "--force", "-o", "o.pt"}, {"checkpoint", "export", mine, "--force", "-o", "o.safetensors"},
				{"launch", "train.toml", "--run-dir", mine},
			} {
				o := alice.ddpbatch(home, args...)
				if o.code < 0 || o.code > 5 || o.code == 4 || strings.Contains(o.stdout+o.stderr, "goroutine ") {
					t.Errorf("%v: %v", args, o)
				}
				mustSteerNothing(t, args, o)
				if wrong := name != "unchanged" && args[0] == "checkpoint" && args[1] == "verify"; wrong && o.code == 0 {
					t.Errorf("%v: %v", args, o)
				}
			}
		})
	}
}

// changeCheckpoint changes the newest checkpoint of a run and removes the others, so that a
// resumed run has no other choice.
func changeCheckpoint(t *testing.T, run string, change func(dir string, m *checkpoint.Manifest)) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(run, "checkpoints", "step-*"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no checkpoint in %s", run)
	}
	dir := found[len(found)-1]
	for _, older := range found[:len(found)-1] {
		os.RemoveAll(older)
	}
	text, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	var m checkpoint.Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	m.Finished = false
	change(dir, &m)
	seal(t, filepath.Join(dir, "manifest.json"), &m)
}

// testSparseCheckpoint puts a sparse file of 4 TiB, which takes hours to read, into a checkpoint. A
// launch that reads the file must stop on request.
func testSparseCheckpoint(t *testing.T, s *twoUsers) {
	alice, _ := s.people(t)
	home := alice.dir()
	run := filepath.Join(home, "received")
	alice.copyRun(s.finishedRun(t), run)
	defer os.RemoveAll(run) // no other test should read the file
	alice.write(filepath.Join(home, "train.toml"), linear("demo", 1))
	changeCheckpoint(t, run, func(dir string, m *checkpoint.Manifest) {
		for i, f := range m.Files {
			if f.Name == checkpoint.ModelFile {
				m.Files[i].Bytes = 4 << 40
			}
		}
		if err := os.Truncate(filepath.Join(dir, checkpoint.ModelFile), 4<<40); err != nil {
			t.Fatal(err)
		}
	})
	over := make(chan outcome, 1)
	wait := alice.begin("n1", home, s.binary, "launch", "train.toml", "--run-dir", run)
	go func() { over <- wait() }()
	// The program may reject the file before it reads all of it.
	for reads := false; !reads; {
		select {
		case o := <-over:
			mustFail(t, o)
			return
		case <-time.After(20 * time.Millisecond):
		}
		for _, p := range processesWith(t, run) {
			open, _ := filepath.Glob("/proc/" + p + "/fd/*")
			for _, f := range open {
				target, _ := os.Readlink(f)
				reads = reads || filepath.Base(target) == checkpoint.ModelFile
			}
		}
	}
	for _, p := range processesWith(t, "launch train.toml --run-dir "+run) {
		if exe, _ := os.Readlink("/proc/" + p + "/exe"); exe != s.binary {
			continue // nsenter, whose command line contains the same words
		}
		pid, err := strconv.Atoi(p)
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGTERM)
		}
		if err != nil {
			t.Error(err)
		}
	}
	select {
	case o := <-over:
		mustFail(t, o)
	case <-time.After(2 * time.Minute):
		t.Error("launch does not stop")
	}
}

// duplicatePart lists a part of a sharded file twice.
func duplicatePart(dir string, m *checkpoint.Manifest) {
	header := []byte(`{"bias@0":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"weight@0":{"dtype":"F32","shape":[40],"data_offsets":[8,168]}}`)
	header = append(header, bytes.Repeat([]byte(" "), (8-len(header)%8)%8)...)
	text := append(endian.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	text = append(text, make([]byte, 168)...)
	const name = "model-rank-00000.safetensors"
	if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
		panic(err)
	}
	sum := sha256.Sum256(text)
	part := checkpoint.File{Name: name, Bytes: int64(len(text)), SHA256: hex.EncodeToString(sum[:]), PartOf: checkpoint.ModelFile}
	m.Sharded = map[string]map[string][]int{checkpoint.ModelFile: {"bias": {2}, "weight": {2, 20}}}
	kept := []checkpoint.File{part, part}
	for _, f := range m.Files {
		if f.Name != checkpoint.ModelFile {
			kept = append(kept, f)
		}
	}
	m.Files = kept
}

// steering matches control characters and characters that change the direction of text. It permits
// a tab, a line feed, and a carriage return, which move the cursor only within the line or to the
// next line.
var steering = regexp.MustCompile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u0080-\u009f\u202a-\u202e\u2066-\u2069]")

// mustSteerNothing fails the test if the output of a command could control a terminal.
func mustSteerNothing(t *testing.T, args []string, o outcome) {
	t.Helper()
	for _, text := range []string{o.stdout, o.stderr} {
		if at := steering.FindStringIndex(text); at != nil {
			t.Errorf("%v: raw %q in %q", args, text[at[0]:at[1]], text[max(0, at[0]-60):min(len(text), at[1]+30)])
		}
		if !utf8.ValidString(text) {
			t.Errorf("%v: not UTF-8: %q", args, text)
		}
	}
}

// testDeepBatchScript converts another user's batch script that nests deeper than a parser's stack.
func testDeepBatchScript(t *testing.T, s *twoUsers) {
	alice, mallory := s.people(t)
	home, project := alice.dir(), s.project(t)
	for i, opening := range []string{"$(", `"$(`, "$((", "(", "{ ", "if ", "`", "${x:-"} {
		path := filepath.Join(project, fmt.Sprintf("%d.sh", i))
		mallory.write(path, "#!/bin/bash\n#SBATCH -N 1\n"+strings.Repeat(opening, 400_000)+"\n")
		o, used := alice.measured(home, s.binary, "init", "--force", "--from", path, "job.toml")
		if o.code < 0 || o.code > 5 || strings.Contains(o.stderr, "goroutine") {
			t.Errorf("%q: %.2000s", opening, o)
		}
		if used > 400<<20 {
			t.Errorf("%q: %d MiB of memory", opening, used>>20)
		}
	}
}

// testDataThatGrows reads another user's data sets that become large in memory.
func testDataThatGrows(t *testing.T, s *twoUsers) {
	alice, mallory := s.people(t)
	home, project := alice.dir(), s.project(t)
	idx := func(dims ...uint32) []byte {
		head := []byte{0, 0, 8, byte(len(dims))}
		for _, d := range dims {
			head = endian.BigEndian.AppendUint32(head, d)
		}
		return head
	}
	const images = 1 << 18 // 256 MiB of pixels, 10 labels
	files := map[string][]byte{
		"idx/train-images-idx3-ubyte.gz": compressed(t, idx(images, 32, 32), make([]byte, 1<<20), images>>10),
		"idx/train-labels-idx1-ubyte.gz": compressed(t, idx(10), make([]byte, 10), 1),
		"idx/t10k-images-idx3-ubyte.gz":  compressed(t, idx(10, 32, 32), make([]byte, 10<<10), 1),
		"idx/t10k-labels-idx1-ubyte.gz":  compressed(t, idx(10), make([]byte, 10), 1),
		"dimensions.safetensors":         shapes(4_000_000),
	}
	mallory.sh(project, "mkdir -m 0755 idx")
	for name, content := range files {
		mallory.write(filepath.Join(project, name), string(content))
	}
	synthetic := "kind = \"synthetic\"\ninputs = 20\noutputs = 2\nsamples = 512\ntask = \"regression\"\n"
	for name, data := range map[string]string{
		"idx":         fmt.Sprintf("kind = \"idx\"\npath = %q\n", filepath.Join(project, "idx")),
		"safetensors": fmt.Sprintf("kind = \"safetensors\"\npath = %q\ntask = \"regression\"\n", filepath.Join(project, "dimensions.safetensors")),
	} {
		alice.write(filepath.Join(home, name+".toml"), strings.Replace(linear(name, 1), synthetic, data, 1))
		o, used := alice.measured(home, s.binary, "launch", "-n", "1", name+".toml")
		mustFail(t, o, map[string]string{"idx": "expands to more than", "safetensors": "4000000 dimensions"}[name])
		if used > 400<<20 {
			t.Errorf("%s: %d MiB of memory", name, used>>20)
		}
	}
}

// compressed returns a gzip file of a header and a block that repeats.
func compressed(t *testing.T, header, block []byte, times int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	write := func(p []byte) {
		if _, err := w.Write(p); err != nil {
			t.Fatal(err)
		}
	}
	write(header)
	for range times {
		write(block)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// shapes returns a safetensors file with one tensor of many dimensions of size 1.
func shapes(dimensions int) []byte {
	header := []byte(`{"x":{"dtype":"U8","shape":[1` + strings.Repeat(",1", dimensions-1) + `],"data_offsets":[0,1]}}`)
	return append(append(endian.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), 'x')
}

// testFIFOsAsInputs replaces files that a job file names with FIFOs.
func testFIFOsAsInputs(t *testing.T, s *twoUsers) {
	alice, mallory := s.people(t)
	project := s.project(t)
	mallory.sh(project, "mkfifo -m 0666 fifo && mkdir -m 0755 sites && mkfifo -m 0666 sites/ours.toml")
	text := strings.NewReplacer("train.data]\nkind = \"synthetic\"\ninputs = 20\noutputs = 2\nsamples = 512\ntask = \"regression\"",
		"train.data]\nkind = \"text\"\npath = \"DATA\"", `kind = "linear"`, "kind = \"gpt\"\nlayers = 1\nheads = 1\nwidth = 8\ncontext = 2\nWEIGHTS").Replace(linear("fifo", 1))
	jobs := map[string]string{
		"data":    strings.NewReplacer("DATA", "fifo", "WEIGHTS", "").Replace(text),
		"weights": strings.NewReplacer("DATA", "text", "WEIGHTS", `weights = "fifo"`).Replace(text),
		"secrets": command("secrets", 1, "true") + "[setup.secrets]\nnames = [\"A\"]\nfile = \"fifo\"\n",
		"profile": `site = "` + filepath.Join(project, "sites", "ours.toml") + "\"\n" + command("profile", 1, "true"),
		"site":    "site = \"ours\"\n" + command("site", 1, "true"),
	}
	alice.write(filepath.Join(project, "text"), "hello world\n")
	for name, job := range jobs {
		alice.write(filepath.Join(project, name+".toml"), job)
		for _, args := range [][]string{{"check"}, {"plan"}, {"submit", "--dry-run"}, {"launch"}} {
			argv := append([]string{"env", "DDPBATCH_SITES=" + filepath.Join(project, "sites"), s.binary}, args...)
			o := alice.try(project, append(argv, name+".toml")...)
			if o.code < 0 || o.code > 5 || o.code == 0 && args[0] == "launch" {
				t.Errorf("%s is a FIFO: %v: %v", name, args, o)
			}
			if args[0] == "launch" { // it fails because of the FIFO
				mustFail(t, o, "not a regular file")
			}
		}
	}
	if info, err := os.Lstat(filepath.Join(project, "fifo")); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("the FIFO is gone: %v", err)
	}
}

// testProfileThatOthersCanWrite lets a member of the group change a profile that the group shares,
// or replace its directory.
func testProfileThatOthersCanWrite(t *testing.T, s *twoUsers) {
	alice, mallory := s.people(t)
	home := alice.dir()
	profile, err := os.ReadFile("../templates/sites/generic.toml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "generic.toml"), profile, 0o644); err != nil {
		t.Fatal(err)
	}
	canary := filepath.Join(home, "ran-by-profile")
	const lines = `printf '\n[setup]\nlines = ["id -un >%s"]\n' "$1" >>sites/ours.toml`
	attacks := map[string]string{
		"file":      lines,
		"directory": "mv sites .old && mkdir sites && cp .old/ours.toml sites && " + lines,
	}
	for name, attack := range attacks {
		project := filepath.Join(s.project(t), name)
		alice.sh(filepath.Dir(project), `umask 0002 && mkdir -p "$1/sites"`, name)
		path := filepath.Join(project, "sites", "ours.toml")
		alice.write(path, string(profile))
		if name == "file" {
			alice.sh(project, "chgrp lab sites/ours.toml && chmod 0664 sites/ours.toml")
		} else {
			alice.sh(project, "chmod g-w sites")
		}
		mallory.sh(project, attack, canary)
		if got := alice.sh(project, "cat sites/ours.toml"); !strings.Contains(got, canary) {
			t.Fatalf("%s: mallory did not change the profile", name)
		}
		alice.write(filepath.Join(home, "name.toml"), "site = \"ours\"\n"+command("name", 1, "/bin/true"))
		alice.write(filepath.Join(home, "path.toml"), fmt.Sprintf("site = %q\n", path)+command("path", 1, "/bin/true"))
		for _, job := range []string{"name", "path"} {
			for _, args := range [][]string{{"check"}, {"submit", "--wait"}, {"launch"}} {
				argv := append([]string{"env", "DDPBATCH_SITES=" + filepath.Dir(path), s.binary}, args...)
				mustFail(t, alice.try(home, append(argv, job+".toml")...), "other users can change the profile", "ours.toml")
			}
		}
		mustNotExist(t, canary)
	}

	// A profile that mallory adds to a directory with the sticky bit. It has the name of an
	// included profile.
	sites := s.scratch(t)
	mallory.sh(sites, `cat "$1" >generic.toml && printf '\n[setup]\nlines = ["id -un >%s"]\n' "$2" >>generic.toml`, filepath.Join(s.dir, "generic.toml"), canary)
	alice.write(filepath.Join(home, "default.toml"), command("default", 1, "/bin/true"))
	for _, args := range [][]string{{"check"}, {"submit", "--wait"}, {"launch"}} {
		argv := append([]string{"env", "DDPBATCH_SITES=" + sites, s.binary}, args...)
		mustFail(t, alice.try(home, append(argv, "default.toml")...), "other users can change the profile", "generic.toml")
	}
	mustNotExist(t, canary)

	// A profile that only its owner can write, in a directory that only its owner can write.
	alice.sh(home, "mkdir sites && umask 0002 && cp \"$1\" sites/ours.toml", filepath.Join(s.dir, "generic.toml"))
	for _, job := range []string{"name", "path"} {
		alice.write(filepath.Join(home, "path.toml"), "site = \"sites/ours.toml\"\n"+command("path", 1, "/bin/true"))
		if o := alice.try(home, "env", "DDPBATCH_SITES="+filepath.Join(home, "sites"), s.binary, "check", job+".toml"); o.code != 0 {
			t.Errorf("a profile that only alice can write: %v", o)
		}
	}
}
