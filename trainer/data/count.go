package data

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// maxCounted is the maximum size in bytes of files that Count reads.
const maxCounted = 4 << 20

// Count returns the number of training samples if it can be determined quickly: from the options,
// from the header of a file, or from files of up to 4 MiB, also after decompression. Otherwise, or if the
// data cannot be read, ok is false. [Options.Seed] does not change the number.
func Count(ctx context.Context, o Options) (n int, ok bool) {
	switch o.Kind {
	case KindSynthetic:
		return o.Samples, o.Samples > 0
	case KindIDX:
		return countIDX(ctx, o.Path)
	}
	for _, path := range []string{o.Path, o.EvalPath} {
		if path != "" && !isQuick(ctx, o.Kind, path) {
			return 0, false
		}
	}
	train, _, err := Open(ctx, o)
	if err != nil {
		return 0, false
	}
	return train.Len(), true
}

// isQuick reports whether the files that match a path or pattern have at most maxCounted bytes. For kinds that
// can be compressed, this includes the decompressed content.
func isQuick(ctx context.Context, kind, path string) bool {
	if size, err := TotalSize(path); err != nil || size > maxCounted {
		return false
	}
	if kind != KindCSV && kind != KindText {
		return true
	}
	c, err := openContent(ctx, path)
	if err != nil {
		return false
	}
	defer c.Close()
	n, err := io.Copy(io.Discard, io.LimitReader(c, maxCounted+1))
	return err == nil && n <= maxCounted
}

// TotalSize returns the total size in bytes of the regular files that match a path, whose last element may be
// a pattern.
func TotalSize(path string) (total int64, err error) {
	paths, err := matchFiles(path)
	if err != nil {
		return 0, err
	}
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return 0, err
		}
		if !info.Mode().IsRegular() {
			return 0, fmt.Errorf("%q is %w", p, safefile.ErrNotRegular)
		}
		total += info.Size()
	}
	return total, nil
}

// countIDX reads the number of images from the header of the training images.
func countIDX(ctx context.Context, path string) (n int, ok bool) {
	f := dataDir{name: path}
	if strings.HasPrefix(path, BuiltinPrefix) {
		files, err := fs.Sub(builtinFiles, "builtin")
		if err != nil || path != BuiltinPrefix+fashionMNIST {
			return 0, false
		}
		f.embedded = files
	}
	file := idxTrain.images
	if !f.exists(file) {
		file += ".gz"
	}
	r, err := f.open(ctx, file)
	if err != nil {
		return 0, false
	}
	defer r.Close()
	var header [8]byte
	if _, err := io.ReadFull(r, header[:]); err != nil || [4]byte(header[:4]) != [4]byte{0, 0, idxUnsignedByte, 3} {
		return 0, false
	}
	return int(binary.BigEndian.Uint32(header[4:])), true
}
