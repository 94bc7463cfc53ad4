package checkpoint

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// A Part is a range of elements of a tensor, in row-major order, that starts at element Offset.
type Part struct {
	Tensor string
	Offset int
	Data   []float32
}

// partMark separates the name of a tensor from Offset in the tensor names of a part file.
const partMark = "@"

// WriteParts writes a rank's parts of sharded files, by file name, into the directory of a
// [Writer]. It returns the files for [Writer.Commit]. All ranks together must write each element
// exactly once. The shapes are in the manifest.
func WriteParts(dir string, rank int, files map[string][]Part) ([]File, error) {
	var out []File
	for _, name := range sortedKeys(files) {
		var tensors []safetensors.Tensor
		for _, p := range files[name] {
			tensors = append(tensors, safetensors.Tensor{Name: p.Tensor + partMark + strconv.Itoa(p.Offset), Shape: []int{len(p.Data)}, Data: p.Data})
		}
		f, err := writeTensors(filepath.Join(dir, partName(name, rank)), tensors)
		if err != nil {
			return nil, addHint(filepath.Dir(dir), err)
		}
		f.PartOf = name
		out = append(out, f)
	}
	return out, nil
}

// Consolidate merges the parts into whole files, as [Save] writes them, and removes the parts. It
// returns the files to commit instead. On an error, it aborts the save. Its memory use does not
// depend on the size of the parts.
func (s Writer) Consolidate(parts []File) (files []File, err error) {
	defer func() {
		if err != nil {
			s.Abort()
			err = s.wrapError(err)
		}
	}()
	dir, err := openStep(s.root, s.TempDir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	read := Snapshot{Path: s.TempDir, Manifest: Manifest{Files: parts}, Files: map[string]*io.SectionReader{}, ctx: context.Background()} // a save is not interrupted
	defer read.Close()
	for _, p := range parts {
		if err := read.add(dir, p); err != nil {
			return nil, err
		}
	}
	byFile := groupParts(parts)
	for _, name := range sortedKeys(s.m.Sharded) {
		if err := read.join(name, s.m.Sharded[name], byFile[name]); err != nil {
			return nil, err
		}
		f, err := writeConsolidated(filepath.Join(s.TempDir, name), read.Files[name])
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	for _, p := range parts {
		if err := s.root.Remove(filepath.Join(s.temp(), p.Name)); err != nil {
			return nil, err
		}
	}
	s.m.Sharded = nil
	return files, nil
}

// writeConsolidated writes a file from its parts, with the checksums of its tensors. It reads the
// data twice, because the checksums are in the header.
func writeConsolidated(path string, from *io.SectionReader) (File, error) {
	arrays, _, err := safetensors.ReadHeader(io.NewSectionReader(from, 0, from.Size()), from.Size())
	if err != nil {
		return File{}, err
	}
	through := make([]byte, bufferBytes)
	tensors, sums, begin := make([]safetensors.Tensor, len(arrays)), map[string]uint32{}, from.Size()
	for i, a := range arrays {
		begin = min(begin, a.Begin)
		tensors[i] = safetensors.Tensor{Name: a.Name, Shape: a.Shape}
		if sums[a.Name], err = checksumOf(from, a.Begin, a.End, through); err != nil {
			return File{}, err
		}
	}
	header, err := safetensors.Header(tensors, metadataWith(sums))
	if err != nil {
		return File{}, err
	}
	return writeHashed(path, func(w io.Writer) error {
		if _, err := w.Write(header); err != nil {
			return err
		}
		_, err := io.CopyBuffer(w, io.NewSectionReader(from, begin, from.Size()-begin), through)
		return err
	})
}

// partName returns the name of a rank's part of a file.
func partName(file string, rank int) string {
	extension := filepath.Ext(file)
	return fmt.Sprintf("%s-rank-%05d%s", strings.TrimSuffix(file, extension), rank, extension)
}

// storedRange is the location of a range of a tensor's elements.
type storedRange struct {
	offset, n int
	file      *io.SectionReader
	begin     int64
}

// groupParts returns the part files among files by the name of the sharded file.
func groupParts(files []File) map[string][]File {
	byFile := map[string][]File{}
	for _, f := range files {
		if f.PartOf != "" {
			byFile[f.PartOf] = append(byFile[f.PartOf], f)
		}
	}
	return byFile
}

// join replaces the part files of name in s.Files with one virtual file of whole tensors, which
// reads from the parts.
func (s *Snapshot) join(name string, shapes map[string][]int, files []File) error {
	parts, err := s.readParts(shapes, files, maxParts)
	if err != nil {
		return err
	}
	whole, err := joinTensors(parts, shapes)
	if err != nil {
		return fmt.Errorf("parts of %q: %w", name, err)
	}
	s.Files[name] = io.NewSectionReader(whole, 0, whole.size)
	return nil
}

// maxParts is the maximum number of ranges of elements in the part files of one file. They need 1.3 GB of
// memory. Ten thousand ranks with a thousand buckets have a third. The part files of another user can be
// links to one file.
const maxParts = 32 << 20

// readParts returns the ranges of elements in part files, at most limit, by tensor. It removes the part
// files from s.Files.
func (s *Snapshot) readParts(shapes map[string][]int, files []File, limit int) (map[string][]storedRange, error) {
	parts := map[string][]storedRange{}
	for _, f := range files {
		file := s.Files[f.Name]
		delete(s.Files, f.Name)
		arrays, _, err := safetensors.ReadHeader(io.NewSectionReader(file, 0, file.Size()), file.Size())
		if err != nil {
			return nil, fmt.Errorf("%q: %w", f.Name, err)
		}
		if limit -= len(arrays); limit < 0 {
			return nil, fmt.Errorf("%q: the parts have more than %d ranges of elements", f.Name, maxParts)
		}
		for _, a := range arrays {
			tensor, offset, err := parsePartName(a)
			if _, known := shapes[tensor]; err == nil && !known {
				err = fmt.Errorf("%q belongs to an unknown tensor", a.Name)
			}
			if err != nil {
				return nil, fmt.Errorf("%q: %w", f.Name, err)
			}
			parts[tensor] = append(parts[tensor], storedRange{offset, a.Len(), file, a.Begin})
		}
	}
	return parts, nil
}

// parsePartName parses the name of a part's array into the tensor and the index of its first
// element.
func parsePartName(a safetensors.Array) (tensor string, offset int, err error) {
	i := strings.LastIndex(a.Name, partMark)
	if i >= 0 {
		offset, err = strconv.Atoi(a.Name[i+1:])
	}
	if i < 0 || err != nil || offset < 0 || a.DType != safetensors.F32 {
		return "", 0, fmt.Errorf("%q is not a valid name for a part", a.Name)
	}
	return a.Name[:i], offset, nil
}

// joinTensors returns a virtual file of tensors, ordered by name. It returns an error if an element
// is missing or duplicated.
func joinTensors(parts map[string][]storedRange, shapes map[string][]int) (*joinedFile, error) {
	var tensors []safetensors.Tensor
	var data []storedRange
	for _, name := range sortedKeys(shapes) {
		list := parts[name]
		slices.SortFunc(list, func(a, b storedRange) int { return cmp.Compare(a.offset, b.offset) })
		n := 0
		for _, p := range list {
			if p.offset != n {
				return nil, fmt.Errorf("tensor %q: elements %d to %d are missing or duplicated", name, min(n, p.offset), max(n, p.offset))
			}
			n += p.n
		}
		if !hasElements(shapes[name], n) {
			return nil, fmt.Errorf("tensor %q with shape %v has %d elements", name, shapes[name], n)
		}
		tensors = append(tensors, safetensors.Tensor{Name: name, Shape: shapes[name]})
		data = append(data, list...)
	}
	header, err := safetensors.Header(tensors, metadata)
	if err != nil {
		return nil, err
	}
	j := &joinedFile{}
	j.add(bytes.NewReader(header), 0, int64(len(header)))
	for _, p := range data {
		j.add(p.file, p.begin, 4*int64(p.n))
	}
	return j, nil
}

// joinedFile reads segments of several files as one file.
type joinedFile struct {
	segments []segment
	size     int64
}

// A segment is a range of bytes of one file. It starts at offset in the virtual file.
type segment struct {
	offset, n int64
	file      io.ReaderAt
	begin     int64
}

func (j *joinedFile) add(file io.ReaderAt, begin, n int64) {
	if n > 0 {
		j.segments = append(j.segments, segment{j.size, n, file, begin})
		j.size += n
	}
}

// ReadAt implements [io.ReaderAt].
func (j *joinedFile) ReadAt(b []byte, offset int64) (n int, err error) {
	i, _ := slices.BinarySearchFunc(j.segments, offset, func(s segment, offset int64) int { return cmp.Compare(s.offset+s.n-1, offset) })
	for ; n < len(b) && i < len(j.segments); i++ {
		s := j.segments[i]
		skip := offset + int64(n) - s.offset
		m := min(int64(len(b)-n), s.n-skip)
		read, err := s.file.ReadAt(b[n:n+int(m)], s.begin+skip)
		n += read
		if int64(read) < m {
			return n, err
		}
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// hasElements reports whether a tensor of this shape has n elements.
func hasElements(shape []int, n int) bool {
	product := 1
	for _, d := range shape {
		if d < 1 || product > n/d {
			return false
		}
		product *= d
	}
	return product == n
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
