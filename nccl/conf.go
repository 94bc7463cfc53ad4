package nccl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// A Setting is a variable that a file sets, with its location.
type Setting struct {
	Name  string
	Value string
	File  string
	Line  int
}

// From returns the location of a setting as "file:line".
func (s Setting) From() string { return fmt.Sprintf("%s:%d", s.File, s.Line) }

// maxText is the maximum length of a name or value in NCCL, in bytes.
const maxText = 1023

// parseConf parses the text of an nccl.conf, in which every line is valid. It follows
// setEnvFile in NCCL's source. A line that starts with "#" is a comment, and a line without
// "=" is skipped. Nothing is trimmed, so spaces and a carriage return are part of the value. A
// line ends at a NUL byte. If a file sets a variable several times, the first setting counts.
// parseConf returns all settings in order.
func parseConf(file string, text []byte) []Setting {
	var found []Setting
	n := 0
	for line := range bytes.Lines(text) {
		n++
		line, _, _ = bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte{0})
		name, value, isSetting := bytes.Cut(line, []byte("="))
		if !isSetting || len(name) == 0 || name[0] == '#' {
			continue
		}
		found = append(found, Setting{Name: truncate(name), Value: truncate(value), File: file, Line: n})
	}
	return found
}

func truncate(text []byte) string { return string(text[:min(len(text), maxText)]) }

// maxConf is far above the size of any real file, in bytes.
const maxConf = 1 << 20

// ReadConf reads NCCL's configuration files in NCCL's order: the file in NCCL_CONF_FILE, or
// else .nccl.conf in the home directory, then /etc/nccl.conf. lookup is the environment, for
// NCCL_CONF_FILE and HOME. root is prepended to every path; it may be "".
//
// A missing file sets nothing, unless NCCL_CONF_FILE names it. A file that cannot be read is
// an error, although NCCL ignores it silently. ReadConf then also returns the settings of the
// other files.
func ReadConf(root string, lookup func(string) (string, bool)) ([]Setting, error) {
	var found []Setting
	var failed []error
	read := func(file string, optional bool) {
		text, err := readFile(filepath.Join(root, file))
		switch {
		case err == nil:
			found = append(found, parseConf(file, text)...)
		case !optional || !errors.Is(err, fs.ErrNotExist):
			failed = append(failed, fmt.Errorf("read NCCL's settings: %w", err))
		}
	}
	if file, _ := lookup("NCCL_CONF_FILE"); file != "" {
		read(file, false)
	} else if home, _ := lookup("HOME"); home != "" {
		read(filepath.Join(home, ".nccl.conf"), true)
	}
	read("/etc/nccl.conf", true)
	return found, errors.Join(failed...)
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConf+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxConf {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxConf)
	}
	return text, nil
}
