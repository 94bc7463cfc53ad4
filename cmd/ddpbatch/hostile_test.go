package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
)

// hostileText contains terminal control sequences, bidirectional overrides, an HTML injection, and a
// line that looks like a message of ddpbatch.
const hostileText = "\x1b]0;title\a\x1b[2J\u009b31m\u202eevil\u2066\u200b<script>alert(1)</script>\"'>\r\b\x7f\n" + forgedLine + "\n"

const forgedLine = "ddpbatch: hint: run `forged`"

// keptKeys are keys of run files whose values must stay valid, so that the readers parse the
// other keys.
var keptKeys = []string{"time", "created", "began", "base", "run", "job_id", "format", "digest", "sha256", "addr", "prefix", "event", "phase", "kind"}

// poisoned appends hostileText to all strings of a JSON value, except for the values of
// keptKeys.
func poisoned(v any) any {
	switch v := v.(type) {
	case string:
		return v + hostileText
	case []any:
		for i := range v {
			v[i] = poisoned(v[i])
		}
	case map[string]any:
		for key := range v {
			if !slices.Contains(keptKeys, key) {
				v[key] = poisoned(v[key])
			}
		}
	}
	return v
}

// hostile implements the script command "hostile RUN COMMAND...". It copies a run, adds
// hostile text to one file of each copy, and runs the commands on it. No output may contain
// control sequences.
func hostile(ts *testscript.TestScript, neg bool, args []string) {
	run, commands := ts.MkAbs(args[0]), args[1:]
	var files []string
	ts.Check(filepath.WalkDir(run, func(path string, e fs.DirEntry, err error) error {
		if ext := filepath.Ext(path); err == nil && (ext == ".json" || ext == ".jsonl") {
			name, err := filepath.Rel(run, path)
			files = append(files, name)
			return err
		}
		return err
	}))
	if len(files) < 5 {
		ts.Fatalf("only %q", files)
	}
	variants := map[string]func(dir string){
		"x" + strings.ReplaceAll(hostileText, "/", ""): func(string) {}, // name of the directory itself
		"manifest": hostileManifest(ts),
		"damaged": func(dir string) {
			ts.Check(os.WriteFile(filepath.Join(dir, "record.json"), []byte("{\""+hostileText), 0o600))
		},
	}
	for _, file := range files {
		variants[strings.ReplaceAll(file, "/", "_")] = func(dir string) {
			path := filepath.Join(dir, file)
			text, err := os.ReadFile(path)
			ts.Check(err)
			var out bytes.Buffer
			for d := json.NewDecoder(bytes.NewReader(text)); d.More(); {
				var v any
				ts.Check(d.Decode(&v))
				ts.Check(json.NewEncoder(&out).Encode(poisoned(v)))
			}
			ts.Check(os.WriteFile(path, out.Bytes(), 0o600))
		}
	}
	for name, change := range variants {
		for _, command := range commands {
			dir := filepath.Join(ts.MkAbs("hostile"), name)
			ts.Check(os.RemoveAll(dir))
			ts.Check(os.MkdirAll(filepath.Dir(dir), 0o700))
			ts.Check(os.CopyFS(dir, os.DirFS(run)))
			ts.Check(filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
				if err == nil && e.IsDir() {
					return os.Chmod(path, 0o700)
				} else if err == nil {
					return os.Chmod(path, 0o600)
				}
				return err
			}))
			change(dir)
			words := strings.Fields(command)
			for i, w := range words {
				words[i] = strings.ReplaceAll(w, "RUN", dir)
			}
			_ = ts.Exec("ddpbatch", words...) // the exit code does not matter
			checkShown(ts, name+": "+command)
		}
	}
}

// shown implements the script command "shown PROGRAM ARG...". It runs a program and checks
// that its output contains no control sequences. HOSTILE in an argument stands for
// hostileText.
func shown(ts *testscript.TestScript, neg bool, args []string) {
	for i, a := range args {
		args[i] = strings.ReplaceAll(a, "HOSTILE", hostileText)
	}
	_ = ts.Exec(args[0], args[1:]...)
	checkShown(ts, strings.Join(args, " "))
}

// checkShown checks the output of the last program for control sequences and forged lines. In HTML, line
// ends have no meaning.
func checkShown(ts *testscript.TestScript, what string) {
	stdout, stderr := ts.ReadFile("stdout"), ts.ReadFile("stderr")
	if stdout+stderr == "" {
		ts.Fatalf("%q prints nothing", what)
	}
	for stream, text := range map[string]string{"standard output": stdout, "standard error": stderr} {
		if safe := printable.Text(text); safe != text {
			i := 0
			for i < len(safe) && safe[i] == text[i] {
				i++
			}
			ts.Fatalf("%q prints on %s: %q", what, stream, text[max(0, i-60):min(len(text), i+60)])
		}
		if strings.Contains("\n"+text, "\n"+forgedLine) && !strings.HasPrefix(text, "<!DOCTYPE html>") {
			ts.Fatalf("%q prints a line of another user on %s: %q", what, stream, text)
		}
	}
}

// hostileManifest returns a function that changes the manifest of the newest checkpoint, if
// one exists. The new manifest is valid, but lists a file name with control characters.
func hostileManifest(ts *testscript.TestScript) func(dir string) {
	return func(dir string) {
		entries, err := checkpoint.List(filepath.Join(dir, "checkpoints"))
		ts.Check(err)
		if len(entries) == 0 {
			return
		}
		m := *entries[0].Manifest
		m.Files[0].Name = strings.ReplaceAll(hostileText, "/", "")
		m.Digest, m.FullDigest, m.Replicas, m.Layout = "", "", "", ""
		text, err := json.Marshal(m)
		ts.Check(err)
		sum := sha256.Sum256(text)
		m.Digest = hex.EncodeToString(sum[:])
		text, err = json.Marshal(m)
		ts.Check(err)
		ts.Check(os.WriteFile(filepath.Join(entries[0].Path, "manifest.json"), text, 0o600))
	}
}
