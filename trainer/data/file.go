package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// dataDir is a directory of data files.
type dataDir struct {
	name     string // for messages; the directory's path, unless embedded is set
	embedded fs.FS  // the files, if they are part of the program
}

// path returns the name of a file for messages.
func (f dataDir) path(file string) string { return f.name + "/" + file }

// open opens a file of the directory.
func (f dataDir) open(ctx context.Context, file string) (*content, error) {
	if f.embedded == nil {
		return openContent(ctx, f.path(file))
	}
	raw, err := f.embedded.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", f.path(file), stripPath(err))
	}
	return newContent(ctx, raw, f.path(file))
}

// exists reports whether the directory has an entry of this name, readable or not.
func (f dataDir) exists(file string) bool {
	var err error
	if f.embedded == nil {
		_, err = os.Stat(f.path(file))
	} else {
		_, err = fs.Stat(f.embedded, file)
	}
	return !errors.Is(err, fs.ErrNotExist)
}

// openFile opens the regular file at path.
func openFile(path string) (*os.File, fs.FileInfo, error) {
	f, err := safefile.Open(path, 0)
	var info fs.FileInfo
	if err == nil {
		if info, err = f.Stat(); err != nil {
			f.Close()
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read %q: %w", path, stripPath(err))
	}
	return f, info, nil
}

// stripPath strips the path from a file system error, because messages already contain the full path.
// It replaces the end of file, of compressed data or a truncated file, by a message for users.
func stripPath(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the file is truncated")
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}
