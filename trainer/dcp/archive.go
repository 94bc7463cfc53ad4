package dcp

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/ctxio"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
	"github.com/ddpbatch/ddpbatch/trainer/unpickle"
)

const (
	// maxDirectory is the maximum size in bytes of the directory of an archive. Archives of torch.save
	// have 5 entries.
	maxDirectory = 1 << 20
	// maxPickle is the maximum size in bytes of a pickle in an archive.
	maxPickle = 16 << 20
	// hintCorrupt is for data with a wrong checksum.
	hintCorrupt = "copy the file again, or export an earlier checkpoint"
)

// storageTypes maps PyTorch's classes of storages to their types. The elements of an untyped storage
// are bytes.
var storageTypes = map[unpickle.Class]string{
	"torch.DoubleStorage": "torch.float64", "torch.FloatStorage": "torch.float32", "torch.HalfStorage": "torch.float16", "torch.BFloat16Storage": "torch.bfloat16",
	"torch.LongStorage": "torch.int64", "torch.IntStorage": "torch.int32", "torch.ShortStorage": "torch.int16", "torch.CharStorage": "torch.int8",
	"torch.ByteStorage": "torch.uint8", "torch.BoolStorage": "torch.bool", "torch.storage.UntypedStorage": "",
}

// tensorClasses are the classes in the pickle of a tensor.
var tensorClasses = func() map[unpickle.Class]bool {
	set := classes(rebuildTyped, rebuildUntyped)
	for c := range storageTypes {
		set[c] = true
	}
	return set
}()

const (
	rebuildTyped   = "torch._utils._rebuild_tensor_v2"
	rebuildUntyped = "torch._utils._rebuild_tensor_v3"
)

// archive is a file of torch.save.
type archive struct {
	files  []*zip.File
	prefix string // of all names, such as "archive/"
	pickle []byte
}

// directoryReader limits what [zip.NewReader] reads and allocates. Afterward, the caller sets isRead.
type directoryReader struct {
	io.ReaderAt
	left   int // bytes
	isRead bool
}

// The record at the end of a large archive has the number of entries, of which [zip.NewReader] allocates
// as many as could fit into a file of that size. The file can be sparse.
const (
	endRecord      = "PK\x06\x06"
	entriesAt      = 32 // offset of the number in the record
	minEntryLength = 46 // bytes of an entry of the directory
)

func (r *directoryReader) ReadAt(p []byte, off int64) (int, error) {
	if r.isRead {
		return r.ReaderAt.ReadAt(p, off)
	}
	if r.left -= len(p); r.left < 0 {
		return 0, fmt.Errorf("its directory is larger than %d bytes", maxDirectory)
	}
	n, err := r.ReaderAt.ReadAt(p, off)
	if bytes.HasPrefix(p[:n], []byte(endRecord)) && n >= entriesAt+8 { // zip reads the record on its own
		if entries := binary.LittleEndian.Uint64(p[entriesAt:]); entries > maxDirectory/minEntryLength {
			return 0, fmt.Errorf("its directory has %d entries, which do not fit into %d bytes", entries, maxDirectory)
		}
	}
	return n, err
}

// openArchive reads the directory and the pickle of an archive.
func openArchive(ctx context.Context, s *io.SectionReader) (*archive, error) {
	limited := &directoryReader{ReaderAt: ctxio.ReaderAt(ctx, s), left: maxDirectory}
	z, err := zip.NewReader(limited, s.Size())
	if err != nil {
		return nil, hints.Add(fmt.Errorf("read its archive: %w", err), hintCorrupt)
	}
	limited.isRead = true
	a := &archive{files: z.File}
	for _, f := range z.File {
		if prefix, found := strings.CutSuffix(f.Name, "data.pkl"); found {
			a.prefix = prefix
		}
	}
	if a.pickle, err = a.text("data.pkl"); err != nil {
		return nil, err
	}
	if order, err := a.text("byteorder"); err == nil && string(order) != "little" {
		return nil, fmt.Errorf("its byte order %q is not supported", order)
	}
	return a, nil
}

// file returns an entry.
func (a *archive) file(name string) (*zip.File, error) {
	for _, f := range a.files {
		if f.Name == a.prefix+name {
			if f.Method != zip.Store {
				return nil, fmt.Errorf("entry %q of its archive is compressed", f.Name)
			}
			return f, nil
		}
	}
	return nil, fmt.Errorf("its archive does not have %q", name)
}

// text returns the content of a small entry.
func (a *archive) text(name string) ([]byte, error) {
	f, err := a.file(name)
	if err != nil {
		return nil, err
	}
	if f.UncompressedSize64 > maxPickle {
		return nil, fmt.Errorf("entry %q of its archive has %d bytes, want at most %d", name, f.UncompressedSize64, maxPickle)
	}
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	text := make([]byte, f.UncompressedSize64)
	if err := readAll(r, text); err != nil {
		return nil, fmt.Errorf("entry %q of its archive: %w", name, err)
	}
	return text, nil
}

// readAll fills p with the whole content of r. At the end, r verifies the checksum.
func readAll(r io.Reader, p []byte) error {
	_, err := io.ReadFull(r, p)
	if err == nil {
		var n int64
		if n, err = io.Copy(io.Discard, r); err == nil && n > 0 {
			err = errors.New("too many bytes")
		}
	}
	return describe(err)
}

// describe replaces errors of the standard library by messages for users.
func describe(err error) error {
	switch {
	case errors.Is(err, zip.ErrChecksum):
		return hints.Add(errors.New("the data are corrupt: wrong checksum"), hintCorrupt)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return hints.Add(errors.New("unexpected end of data"), hintIncomplete)
	}
	return err
}

// view describes a tensor in an archive.
type view struct {
	dtype         string
	key           string // name of the storage
	elements      int64  // of the storage
	offset        int64
	size, strides []int
}

// view reads the pickle of an archive with one tensor.
func (a *archive) view() (view, error) {
	var w view
	v, err := unpickle.Decode(a.pickle, tensorClasses)
	if err != nil {
		return w, err
	}
	errNotTensor := errors.New("its archive does not contain a tensor")
	o, ok := v.(*unpickle.Object)
	if !ok || o.Class != rebuildTyped && o.Class != rebuildUntyped || len(o.Args) < 6 {
		return w, errNotTensor
	}
	reference, ok := o.Args[0].(*unpickle.Reference)
	if !ok {
		return w, errNotTensor
	}
	storage, ok := reference.ID.(unpickle.Tuple) // "storage", class, key, device, elements
	if !ok || len(storage) != 5 {
		return w, errNotTensor
	}
	class, isClass := storage[1].(unpickle.Class)
	key, isKey := storage[2].(string)
	length, isLength := storage[4].(int64)
	offset, isOffset := o.Args[1].(int64)
	if !isClass || !isKey || !isLength || !isOffset || length < 0 || offset < 0 {
		return w, errNotTensor
	}
	w.dtype, ok = storageTypes[class]
	if !ok {
		return w, errNotTensor
	}
	if w.size, err = readSize(o.Args[2]); err != nil {
		return w, err
	}
	if w.strides, err = readSize(o.Args[3]); err != nil || len(w.strides) != len(w.size) {
		return w, errors.New("the strides in its archive are not supported")
	}
	rest := o.Args[6:]
	if o.Class == rebuildUntyped {
		if len(rest) == 0 || w.dtype != "" {
			return w, errNotTensor
		}
		dtype, _ := rest[0].(unpickle.Class)
		if w.dtype, rest = string(dtype), rest[1:]; dtypes[w.dtype] == "" {
			return w, fmt.Errorf("type %q in its archive is not supported", w.dtype)
		}
		length /= int64(dtypes[w.dtype].Size())
	}
	if len(rest) > 0 && rest[0] != nil { // of conjugated and negated tensors
		if d, ok := rest[0].(*unpickle.Dict); !ok || len(d.Keys) > 0 {
			return w, errors.New("the attributes of the tensor in its archive are not supported")
		}
	}
	w.key, w.elements, w.offset = key, length, offset
	// The position of the last element must be in the storage.
	last := w.offset
	for i, n := range w.size {
		if n == 0 {
			return w, nil
		}
		if n > 1 && int64(w.strides[i]) > (math.MaxInt64-last)/int64(n-1) {
			return w, errors.New("the tensor in its archive exceeds its storage")
		}
		last += int64(n-1) * int64(w.strides[i])
	}
	if last >= w.elements {
		return w, errors.New("the tensor in its archive exceeds its storage")
	}
	return w, nil
}

// isContiguous reports whether the elements are stored in row-major order.
func (w view) isContiguous() bool {
	stride := 1
	for i := len(w.size) - 1; i >= 0; i-- {
		if w.size[i] != 1 && w.strides[i] != stride {
			return false
		}
		stride *= w.size[i]
	}
	return true
}

// readChunk reads a chunk into the memory of its tensor.
func (c *Checkpoint) readChunk(ctx context.Context, t *Tensor, ch chunk, into []byte) error {
	s, err := c.section(ch.at)
	if err != nil {
		return err
	}
	return readArchive(ctx, s, t, ch, into)
}

// readArchive reads a chunk from its archive.
func readArchive(ctx context.Context, s *io.SectionReader, t *Tensor, ch chunk, into []byte) error {
	a, err := openArchive(ctx, s)
	if err != nil {
		return err
	}
	w, err := a.view()
	if err != nil {
		return err
	}
	if w.dtype != t.dtype || !slices.Equal(w.size, ch.sizes) {
		return fmt.Errorf("it has shape %v of %s, but %s expects %v of %s", w.size, w.dtype, metadataFile, ch.sizes, t.dtype)
	}
	f, err := a.file("data/" + w.key)
	if err != nil {
		return err
	}
	width := t.width()
	if w.elements > s.Size()/int64(width) || f.UncompressedSize64 != uint64(w.elements)*uint64(width) {
		return fmt.Errorf("its storage has %d bytes, want %d elements of %d bytes", f.UncompressedSize64, w.elements, width)
	}
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	if w.isContiguous() {
		return describe(readRows(bufio.NewReaderSize(r, 1<<18), w.offset*int64(width), ch, t.Shape, width, into))
	}
	raw := make([]byte, w.elements*int64(width))
	if err := readAll(r, raw); err != nil {
		return err
	}
	return gather(raw, w, ch, t.Shape, width, into)
}

// readRows reads a contiguous chunk, after skip bytes, and then up to the end, where r verifies the
// checksum.
func readRows(r io.Reader, skip int64, ch chunk, shape []int, width int, into []byte) error {
	if _, err := io.CopyN(io.Discard, r, skip); err != nil {
		return err
	}
	if err := ch.rows(shape, func(from, n int) error {
		_, err := io.ReadFull(r, into[from*width:(from+n)*width])
		return err
	}); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, r)
	return err
}

// gather copies the elements of a chunk with any strides.
func gather(raw []byte, w view, ch chunk, shape []int, width int, into []byte) error {
	index := make([]int, len(w.size))
	return ch.rows(shape, func(from, n int) error {
		for i := range n {
			at := int(w.offset)
			for d, j := range index {
				at += j * w.strides[d]
			}
			copy(into[(from+i)*width:(from+i+1)*width], raw[at*width:])
			for d := len(index) - 1; d >= 0; d-- {
				if index[d]++; index[d] < w.size[d] {
					break
				}
				index[d] = 0
			}
		}
		return nil
	})
}

// load reads a tensor into memory, which it reuses if it is large enough.
func (c *Checkpoint) load(ctx context.Context, t *Tensor, memory []byte) ([]byte, error) {
	n := int(elements(t.Shape)) * t.width()
	if cap(memory) < n {
		memory = make([]byte, n)
	}
	memory = memory[:n]
	for _, ch := range t.chunks {
		if err := c.readChunk(ctx, t, ch, memory); err != nil {
			return nil, fmt.Errorf("tensor %q in file %q: chunk at %v: %w", t.Name, ch.at.file, ch.offsets, err)
		}
	}
	return memory, nil
}

// reader reads tensors one after the other, each into the memory of the last one.
type reader struct {
	ctx     context.Context
	from    *Checkpoint
	current *Tensor
	memory  []byte
}

// tensor returns the bytes of a tensor, which are read when they are needed.
func (r *reader) tensor(t *Tensor) *io.SectionReader {
	return io.NewSectionReader(tensorReader{r, t}, 0, elements(t.Shape)*int64(t.width()))
}

type tensorReader struct {
	*reader
	t *Tensor
}

func (r tensorReader) ReadAt(p []byte, off int64) (int, error) {
	if r.current != r.t {
		r.current = nil
		memory, err := r.from.load(r.ctx, r.t, r.memory)
		if err != nil {
			return 0, err
		}
		r.current, r.memory = r.t, memory
	}
	n := copy(p, r.memory[min(off, int64(len(r.memory))):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// fileType returns the type of a tensor in files.
func (t *Tensor) fileType() safetensors.DType { return dtypes[t.dtype] }
