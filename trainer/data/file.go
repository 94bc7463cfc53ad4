package data

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
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
	info, err := fs.Stat(f.fs, file)
	if err == nil {
		err = regular(info.Mode())
	}
	var raw fs.File
	if err == nil {
		raw, err = f.fs.Open(file)
	}
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", f.path(file), cause(err))
	}
	r, _, err := decompress(raw, f.path(file))
	return r, err
}

// exists reports whether there is a file of that name, readable or not.
func (f folder) exists(file string) bool {
	_, err := fs.Stat(f.fs, file)
	return !errors.Is(err, fs.ErrNotExist)
}

// openFile opens the file at path, and says what the system knows of it.
func openFile(path string) (*os.File, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err == nil {
		err = regular(info.Mode())
	}
	var f *os.File
	if err == nil {
		f, err = os.Open(path)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read %q: %w", path, cause(err))
	}
	if info, err = f.Stat(); err != nil { // it may be another file by now
		f.Close()
		return nil, nil, fmt.Errorf("read %q: %w", path, cause(err))
	}
	return f, info, nil
}

// regular refuses what is no file on disk. It must be asked before a file is
// opened: opening a pipe waits for somebody to write to it, and a device may
// never end.
func regular(mode fs.FileMode) error {
	kind := "something else"
	switch {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return syscall.EISDIR
	case mode&fs.ModeNamedPipe != 0:
		kind = "a pipe"
	case mode&fs.ModeSocket != 0:
		kind = "a socket"
	case mode&fs.ModeDevice != 0:
		kind = "a device"
	}
	return fmt.Errorf("is not a regular file, but %s", kind)
}

// cause strips the path from an error of the file system, since messages name
// the whole path already, and says an early end, of compressed data or of a file
// that became shorter, in words.
func cause(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the file is cut short")
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

// openContent opens the file at path, decompressed. The size is that of the
// content, or -1 if only reading it can tell.
func openContent(path string) (r io.ReadCloser, size int64, err error) {
	raw, info, err := openFile(path)
	if err != nil {
		return nil, 0, err
	}
	r, compressed, err := decompress(raw, path)
	if compressed {
		return r, -1, err
	}
	return r, info.Size(), err
}

// decompress returns a reader of the file's content, uncompressed if it begins
// as gzip does, whatever the file is called. Closing it closes raw.
func decompress(raw io.ReadCloser, path string) (r io.ReadCloser, compressed bool, err error) {
	buffered := bufio.NewReaderSize(raw, 1<<16)
	content := io.Reader(buffered)
	head, _ := buffered.Peek(2)
	if compressed = bytes.Equal(head, []byte{0x1f, 0x8b}); compressed {
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			raw.Close()
			return nil, false, fmt.Errorf("read %q: %w", path, cause(err))
		}
		content = unzipped
	}
	return struct {
		io.Reader
		io.Closer
	}{content, raw}, compressed, nil
}
