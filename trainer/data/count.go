package data

import (
	"context"
	"encoding/binary"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxCounted is the maximum size in bytes of files that Count reads.
const maxCounted = 4 << 20

// Count returns the number of training samples if it can be determined quickly: from the options,
// from the header of a file, or from files of up to 4 MiB. Otherwise, or if the data cannot be
// read, ok is false.
func Count(ctx context.Context, o Options) (n int, ok bool) {
	switch o.Kind {
	case KindSynthetic:
		return o.Samples, o.Samples > 0
	case KindIDX:
		return countIDX(ctx, o.Path)
	}
	if size, ok := sizeOf(o.Path); !ok || size > maxCounted {
		return 0, false
	}
	if o.EvalPath != "" {
		if size, ok := sizeOf(o.EvalPath); !ok || size > maxCounted {
			return 0, false
		}
	}
	train, _, err := Open(ctx, o)
	if err != nil {
		return 0, false
	}
	return train.Len(), true
}

// sizeOf returns the total size of the regular files that match a path or pattern.
func sizeOf(path string) (total int64, ok bool) {
	paths, err := filepath.Glob(path)
	if err != nil || len(paths) == 0 {
		paths = []string{path}
	}
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil || !info.Mode().IsRegular() {
			return 0, false
		}
		total += info.Size()
	}
	return total, true
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
