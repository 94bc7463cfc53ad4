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

// Setting is a variable that a file sets, and where.
type Setting struct {
	Name  string
	Value string
	File  string
	Line  int
}

// From says where a setting stands, as "file:line".
func (s Setting) From() string { return fmt.Sprintf("%s:%d", s.File, s.Line) }

// maxText is the longest name or value that NCCL keeps, in bytes.
const maxText = 1023

// ParseConf reads the text of an nccl.conf, in which everything is valid. It
// follows setEnvFile of NCCL's source: a line that begins with "#" is a comment,
// one without "=" is skipped, and nothing is trimmed, so that spaces and a
// carriage return belong to the value. A line ends at a NUL. Of several settings
// of one variable the first counts; all are returned, in order.
func ParseConf(file string, text []byte) []Setting {
	var found []Setting
	n := 0
	for line := range bytes.Lines(text) {
		n++
		line, _, _ = bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte{0})
		name, value, isSetting := bytes.Cut(line, []byte("="))
		if !isSetting || len(name) == 0 || name[0] == '#' {
			continue
		}
		found = append(found, Setting{Name: clip(name), Value: clip(value), File: file, Line: n})
	}
	return found
}

func clip(text []byte) string { return string(text[:min(len(text), maxText)]) }

// maxConf is far above any real file.
const maxConf = 1 << 20

// ReadConf reads the files from which NCCL takes its variables, in NCCL's order:
// that which NCCL_CONF_FILE names, or else .nccl.conf in the home directory, and
// then /etc/nccl.conf. The environment, for NCCL_CONF_FILE and HOME, is lookup;
// root is put before every path, "" for none.
//
// A file that does not exist sets nothing, unless NCCL_CONF_FILE names it. A file
// that cannot be read is an error, which NCCL would pass over in silence; the
// settings of the other files are returned with it.
func ReadConf(root string, lookup func(string) (string, bool)) ([]Setting, error) {
	var found []Setting
	var failed []error
	read := func(file string, optional bool) {
		text, err := readFile(filepath.Join(root, file))
		switch {
		case err == nil:
			found = append(found, ParseConf(file, text)...)
		case !optional || !errors.Is(err, fs.ErrNotExist):
			failed = append(failed, fmt.Errorf("reading NCCL's settings: %w", err))
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
