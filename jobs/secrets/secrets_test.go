package secrets

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const canary = "canary-5up3r"

// wants fails the test unless err contains text and, if hint is not empty, has that hint. It
// also fails if err contains a secret.
func wants(t *testing.T, err error, text, hint string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Fatalf("error %v, want one with %q", err, text)
	}
	var h interface{ Hint() string }
	if errors.As(err, &h) && strings.Contains(h.Hint(), canary) || strings.Contains(err.Error(), canary) {
		t.Fatalf("%v: shows the value", err)
	}
	if hint != "" && (h == nil || !strings.Contains(h.Hint(), hint)) {
		t.Errorf("error %v has no hint with %q", err, hint)
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secrets.env")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func none(string) (string, bool) { return "", false }

// TestParse checks the format of secret files: comments, quotes, and "export".
func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want map[string]string
	}{
		"empty":       {"", map[string]string{}},
		"plain":       {"A=1\nB_2=two", map[string]string{"A": "1", "B_2": "two"}},
		"comments":    {"# one\n\n  # two\nA=1\n", map[string]string{"A": "1"}},
		"export":      {"export A=1\nexport\t B=2\nexporting=3\nexport=4\n", map[string]string{"A": "1", "B": "2", "exporting": "3", "export": "4"}},
		"quotes":      {`A="a b # c"` + "\n" + `B='$x "y"'` + "\n" + `C=""`, map[string]string{"A": "a b # c", "B": `$x "y"`, "C": ""}},
		"as it is":    {`A=$HOME\n` + "`x`" + `{"k":"v"}#=`, map[string]string{"A": `$HOME\n` + "`x`" + `{"k":"v"}#=`}},
		"empty value": {"A=\n", map[string]string{"A": ""}},
		"windows":     {"\ufeffA=1\r\nB=2\r\n", map[string]string{"A": "1", "B": "2"}},
		"indented":    {"  A=1 \t\n", map[string]string{"A": "1"}},
		"not ASCII":   {"A=Schlüssel", map[string]string{"A": "Schlüssel"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parse(c.text)
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
}

// TestParseRefuses checks that errors name the line and never contain the secret.
func TestParseRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"no equals":       {"A=1\n\n" + canary, "line 3: has no ="},
		"only export":     {"export " + canary, "line 1: has no ="},
		"space before =":  {"A =" + canary, "line 1: the text before ="},
		"space after =":   {"A= " + canary, "line 1: the value contains spaces"},
		"secret as name":  {canary + "==", "line 1: the text before ="},
		"no name":         {"=" + canary, "line 1: the text before ="},
		"digit first":     {"1A=" + canary, "line 1: the text before ="},
		"NUL":             {"A=" + canary + "\x00", "line 1: the value contains a control character"},
		"escape":          {"A=\x1b" + canary, "line 1: the value contains a control character"},
		"carriage return": {"A=" + canary + "\rB=2", "line 1: the value contains a control character"},
		"C1":              {"A=" + canary + "\u009b", "line 1: the value contains a control character"},
		"tab in quotes":   {"A='\t" + canary + "'", "line 1: the value contains a control character"},
		"not UTF-8":       {"A=" + canary + "\xff", "line 1: the value contains a control character or is not UTF-8"},
		"open":            {"#\nA='" + canary, "line 2: the value starts with a quote"},
		"one quote":       {"A='", "line 1: the value starts with a quote"},
		"over two lines":  {"A='" + canary + "\n'", "line 1: the value starts with a quote"},
		"after the quote": {"A='x' " + canary, "line 1: the value starts with a quote"},
		"inner":           {"A='x'" + canary + "'", "line 1: the value contains the quote"},
		"comment":         {"A=" + canary + " # mine", "line 1: the value contains spaces"},
		"twice":           {"A=" + canary + "\nB=1\nA=2", "line 3: sets the same name as line 1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(c.text)
			wants(t, err, c.want, "")
		})
	}
}

// TestResolveReadsFile checks that only the given names are read from the file.
func TestResolveReadsFile(t *testing.T) {
	path := write(t, "A=1\nB=2\nexport C='3 4'\nEMPTY=\n")
	got, err := Resolve(path, []string{"A", "C"}, none)
	if err != nil || !reflect.DeepEqual(got, map[string]string{"A": "1", "C": "3 4"}) {
		t.Errorf("%q, %v", got, err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if got, err := Resolve(link, []string{"B"}, none); err != nil || got["B"] != "2" {
		t.Errorf("by a link: %q, %v", got, err)
	}
	_, err = Resolve(path, []string{"D", "A", "EMPTY"}, none)
	wants(t, err, fmt.Sprintf("secrets without a value in %q: D, EMPTY (empty)", path), "NAME=VALUE")
	_, err = Resolve(path, []string{"A", "A=" + canary}, none)
	wants(t, err, "secret 2 of 2 is not the name of a variable", "names only")
	_, err = Resolve(path+".not", []string{"A"}, none)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestResolve checks that values in the file precede the environment.
func TestResolve(t *testing.T) {
	env := func(name string) (string, bool) {
		value, ok := map[string]string{"A": "env", "B": "env", "NONE": ""}[name]
		return value, ok
	}
	path := write(t, "A=file\nNIL=\n")
	got, err := Resolve(path, []string{"A", "B"}, env)
	if err != nil || !reflect.DeepEqual(got, map[string]string{"A": "file", "B": "env"}) {
		t.Errorf("file first: %q, %v", got, err)
	}
	if got, err := Resolve("", []string{"A"}, env); err != nil || got["A"] != "env" {
		t.Errorf("no file: %q, %v", got, err)
	}
	_, err = Resolve("", []string{"NONE", "X"}, env)
	wants(t, err, "secrets without a value: NONE (empty), X", "export them")
	_, err = Resolve(write(t, canary), nil, env)
	wants(t, err, "line 1: has no =", "")
}

// TestReadRefuses checks that files that other users can access are rejected.
func TestReadRefuses(t *testing.T) {
	path := write(t, "A="+canary+"\n")
	for mode, want := range map[fs.FileMode]string{
		0o640: "0640: other users have access", 0o604: "0604", 0o620: "0620", 0o602: "0602", 0o777: "0777",
	} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, err := Resolve(path, []string{"A"}, none)
		wants(t, err, want, "chmod 600")
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(path, link); err != nil {
			t.Fatal(err)
		}
		_, err = Resolve(link, []string{"A"}, none)
		wants(t, err, want, "chmod 600")
	}
	_, err := Resolve(t.TempDir(), []string{"A"}, none)
	wants(t, err, "not a regular file", "NAME=VALUE")
	_, err = Resolve("/dev/null", []string{"A"}, none)
	wants(t, err, "not a regular file", "")
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Resolve(fifo, []string{"A"}, none)
	wants(t, err, "not a regular file", "")
	_, err = Resolve(write(t, "A="+strings.Repeat("x", maxFile-1)), []string{"A"}, none)
	wants(t, err, "larger than 64 KiB", "")
	if _, err := Resolve(write(t, "A="+strings.Repeat("x", maxFile-2)), []string{"A"}, none); err != nil {
		t.Errorf("64 KiB: %v", err)
	}
}

// TestReadRefusesOthers checks that a file of another user is rejected.
func TestReadRefusesOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root")
		}
		t.Skip("needs root")
	}
	path := write(t, "A="+canary)
	if err := os.Chown(path, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	_, err := Resolve(path, []string{"A"}, none)
	wants(t, err, "belongs to user 65534, not to you", "that you own")
}

// FuzzParse checks that every error consists of a line number and a fixed text, and that the
// values are text without control characters.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"A=", "export A='", "", "A='x' ", canary + "=", "A=1\nA=", "A=\x00", "A\t=", "A=\"", "#\n"} {
		f.Add(s, "")
		f.Add(s, "'\n")
		f.Add(s, " # x")
	}
	texts := []string{noEquals, badName, notText, openQuote, innerQuote, bareSpace}
	f.Fuzz(func(t *testing.T, before, after string) {
		values, err := parse(before + canary + after)
		if err == nil {
			for name, value := range values {
				if !isName(name) || strings.ContainsAny(value, "\x00\n\r\x1b") {
					t.Fatalf("%q: %q", name, value)
				}
			}
			return
		}
		for _, text := range texts {
			var line int
			if rest, ok := strings.CutSuffix(err.Error(), ": "+text); ok {
				if n, _ := fmt.Sscanf(rest, "line %d", &line); n == 1 && rest == fmt.Sprintf("line %d", line) {
					return
				}
			}
		}
		var line, above int
		if n, _ := fmt.Sscanf(err.Error(), "line %d: "+sameAsAbove, &line, &above); n == 2 && above < line &&
			err.Error() == fmt.Sprintf("line %d: "+sameAsAbove, line, above) {
			return
		}
		t.Fatalf("an error with text that is not fixed: %v", err)
	})
}

// FuzzResolve checks that no error of the package contains text of the file.
func FuzzResolve(f *testing.F) {
	f.Add("A=", "\nB=1", "A")
	f.Add("A=1\nA=", "", "B")
	f.Fuzz(func(t *testing.T, before, after, name string) {
		if isName(name) && strings.Contains(name, canary) {
			return // requested by this name
		}
		path := write(t, before+canary+after)
		if _, err := Resolve(path, []string{name}, none); err != nil {
			wants(t, err, "", "")
		}
	})
}
