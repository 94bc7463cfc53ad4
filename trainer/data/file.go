package data

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// folder is where files are read from, under the name that messages use.
type folder struct {
	fs   fs.FS
	name string
}

// path returns the name of one file for messages.
func (f folder) path(file string) string { return f.name + "/" + file }

// open opens a file, decompressed.
func (f folder) open(file string) (io.ReadCloser, error) {
	raw, err := f.fs.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", f.path(file), cause(err))
	}
	return decompress(raw, f.path(file))
}

// exists reports whether there is a file of that name, readable or not.
func (f folder) exists(file string) bool {
	_, err := fs.Stat(f.fs, file)
	return !errors.Is(err, fs.ErrNotExist)
}

// cause strips the path from an error of the file system, since messages name
// the whole path already.
func cause(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

// decompress returns a reader of the file's content, uncompressed if it begins
// as gzip does, whatever the file is called. Closing it closes raw.
func decompress(raw io.ReadCloser, path string) (io.ReadCloser, error) {
	buffered := bufio.NewReaderSize(raw, 1<<16)
	content := io.Reader(buffered)
	if head, _ := buffered.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			raw.Close()
			return nil, fmt.Errorf("read %q: %w", path, err)
		}
		content = unzipped
	}
	return struct {
		io.Reader
		io.Closer
	}{content, raw}, nil
}
