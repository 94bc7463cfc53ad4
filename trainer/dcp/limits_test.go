package dcp

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/unpickle"
)

// The functions below return instructions of pickles that a user could write by hand.

func text(s string) string {
	return "X" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))) + s
}

func tuple(values ...string) string { return "(" + strings.Join(values, "") + "t" }

func list(values ...string) string { return "](" + strings.Join(values, "") + "e" }

func dict(pairs ...string) string { return "}(" + strings.Join(pairs, "") + "u" }

// object returns an object with attributes, or with another state.
func object(class, state string) string {
	at := strings.LastIndexByte(class, '.')
	return "c" + class[:at] + "\n" + class[at+1:] + "\n)\x81" + state + "b"
}

// nested returns a tuple of two equal tuples, and so on: 2^levels tuples in a few bytes each.
func nested(levels int) string { return ")q\x00" + strings.Repeat("h\x00\x86q\x00", levels) }

// chunkAt returns a chunk of one element.
func chunkAt(offset string) string {
	return object(metadataModule+"ChunkStorageMetadata", dict(text("offsets"), tuple(offset), text("sizes"), tuple("K\x01")))
}

// tensorOf returns the description of a tensor.
func tensorOf(size, chunks string) string {
	return object(metadataModule+"TensorStorageMetadata", dict(
		text("properties"), object(metadataModule+"TensorProperties", tuple("ctorch\nfloat32\n")),
		text("size"), size, text("chunks"), chunks))
}

// storedAt returns the key and the value of the location of a chunk, with additional attributes.
func storedAt(name, offset string, attributes ...string) string {
	index := dict(text("fqn"), name, text("offset"), tuple(offset))
	attributes = append([]string{text("relative_path"), text("f"), text("offset"), "K\x00", text("length"), "K\x04"}, attributes...)
	return object(metadataModule+"MetadataIndex", index) + object(filesystemModule+"_StorageInfo", dict(attributes...))
}

// metadataOf returns the content of .metadata.
func metadataOf(tensors, paths, stored string) []byte {
	return []byte("\x80\x02" + object(metadataModule+"Metadata", dict(
		text("state_dict_metadata"), tensors, text("planner_data"), paths, text("storage_data"), stored)) + ".")
}

// TestMetadataIsBounded checks metadata of a few kilobytes that would need much more memory, because
// they contain a value many times.
func TestMetadataIsBounded(t *testing.T) {
	one := tuple("K\x01")
	tensors, stored := dict(text("w"), tensorOf(one, list(chunkAt("K\x00")))), dict(storedAt(text("w"), "K\x00"))
	long := text(strings.Repeat("x", 1000))
	// The names and the chunk are stored once. Other uses refer to the memo.
	repeatedPath := dict(text("w"), tuple(long+"q\x00", strings.Repeat("h\x00", 50)))
	for name, tt := range map[string]struct {
		raw  []byte
		left budget
		want string
	}{
		"valid":           {metadataOf(tensors, "N", stored), budget{100, 1}, ""},
		"size":            {metadataOf(dict(text("w"), tensorOf(nested(18), list())), "N", stored), maxMetadataBudget, "dimension 0 is not an integer"},
		"transformation":  {metadataOf(tensors, "N", dict(storedAt(text("w"), "K\x00", text("transform_descriptors"), list(nested(18))))), maxMetadataBudget, "it is transformed"},
		"chunks":          {metadataOf(dict(text("w"), tensorOf(one, list(chunkAt("K\x00")+"q\x00", strings.Repeat("h\x00", 100)))), "N", stored), budget{1000, 100}, "too many chunks"},
		"chunks, allowed": {metadataOf(dict(text("w"), tensorOf(one, list(chunkAt("K\x00")+"q\x00", strings.Repeat("h\x00", 99)))), "N", stored), budget{1000, 100}, ""},
		"path":            {metadataOf(tensors, repeatedPath, stored), budget{50_000, 100}, "names are too large"},
		"path, allowed":   {metadataOf(tensors, repeatedPath, stored), budget{60_000, 100}, ""},
		"long path":       {metadataOf(tensors, dict(text("w"), tuple(text("x")+"q\x00", strings.Repeat("h\x00", maxDepth))), stored), maxMetadataBudget, "has 101 keys"},
		"locations":       {metadataOf(tensors, "N", dict(storedAt(text("w"), "K\x00"), storedAt(long+"q\x00", "K\x00"), storedAt("h\x00", "K\x01"))), budget{2000, 100}, "names are too large"},
		"tensors":         {metadataOf(dict(text("w"), tensorOf(one, list(chunkAt("K\x00"))), long+"q\x00", tensorOf(tuple("K\x00"), list()), "h\x00", tensorOf(tuple("K\x00"), list())), "N", stored), budget{2000, 100}, "names are too large"},
	} {
		var c Checkpoint
		err := c.parse(tt.raw, tt.left)
		message := fmt.Sprint(err)
		if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(message, tt.want) || len(message) > 1200) {
			t.Errorf("%s: got %d bytes, %.500s, want %q", name, len(message), message, tt.want)
		}
	}
}

// TestValuesAreBounded checks that a string that a value contains many times counts each time.
func TestValuesAreBounded(t *testing.T) {
	shared := strings.Repeat("x", maxValueBytes/64)
	for n, ok := range map[int]bool{64: true, 65: false} {
		for _, v := range []any{shared, []byte(shared)} {
			var list unpickle.List
			for range n {
				list.Items = append(list.Items, v)
			}
			var total extent
			if err := total.add(&list, 0); (err == nil) != ok {
				t.Errorf("%d times %T: got %v", n, v, err)
			}
		}
	}
}

// TestChunksAtOneLocation checks that a tensor whose chunks are the same bytes of a file does not
// need more memory than its files have bytes.
func TestChunksAtOneLocation(t *testing.T) {
	c := open(t, directory(t, fixture(t)))
	var tensor *Tensor
	for _, candidate := range c.Tensors {
		if len(candidate.chunks) == 1 && len(candidate.Shape) == 1 {
			tensor = candidate
		}
	}
	if tensor == nil {
		t.Fatal("no tensor in one chunk")
	}
	if err := c.check(tensor); err != nil {
		t.Fatal(err)
	}
	_, size, err := c.open(tensor.chunks[0].at.file)
	if err != nil {
		t.Fatal(err)
	}
	n := tensor.Shape[0]
	large := &Tensor{entry: tensor.entry, dtype: tensor.dtype}
	for at := 0; int64(at*tensor.width()) <= size; at += n {
		ch := tensor.chunks[0]
		ch.offsets = []int{at}
		large.chunks = append(large.chunks, ch)
		large.Shape = []int{at + n}
	}
	if err := c.check(large); err == nil || !strings.Contains(err.Error(), "more than their files") {
		t.Errorf("%d chunks at one location: got %v", len(large.chunks), err)
	}
}

// TestManyChunksAtOneLocation checks that a small file cannot be read a million times: by small chunks of
// one tensor, by several tensors, and by values.
func TestManyChunksAtOneLocation(t *testing.T) {
	dir := directory(t, fixture(t))
	for name, repeat := range map[string]func(*Checkpoint){
		"chunks": func(c *Checkpoint) {
			largest := c.Tensors[0].chunks[0].at
			for _, tensor := range c.Tensors {
				for _, ch := range tensor.chunks {
					if ch.at.length > largest.length {
						largest = ch.at
					}
				}
			}
			small := &Tensor{entry: c.Tensors[0].entry, dtype: "torch.uint8", Shape: []int{100}}
			for at := range 100 {
				small.chunks = append(small.chunks, chunk{[]int{at}, []int{1}, largest})
			}
			c.Tensors = append(c.Tensors, small)
		},
		"tensors": func(c *Checkpoint) {
			for range 20 {
				c.Tensors = append(c.Tensors, c.Tensors[0])
			}
		},
		"values": func(c *Checkpoint) {
			for range 20 {
				c.Values = append(c.Values, c.Values[0])
			}
		},
	} {
		c := open(t, dir)
		if err := c.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		repeat(c)
		if err := c.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "several are at one location") {
			t.Errorf("%s at one location: got %v", name, err)
		}
	}
}

// pack returns the archive of a tensor as torch.save writes it, with matching checksums.
func pack(t testing.TB, pickle, storage []byte) []byte {
	t.Helper()
	var file bytes.Buffer
	z := zip.NewWriter(&file)
	for name, content := range map[string][]byte{"a/data.pkl": pickle, "a/data/0": storage} {
		w, err := z.CreateRaw(&zip.FileHeader{Name: name, CRC32: crc32.ChecksumIEEE(content),
			CompressedSize64: uint64(len(content)), UncompressedSize64: uint64(len(content))})
		if err == nil {
			_, err = w.Write(content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// tensorPickles returns the pickles of a tensor of 2x2 elements in a storage of 6: with types, with an
// untyped storage, and transposed.
func tensorPickles() []string {
	typed := "\x80\x02" + "ctorch._utils\n_rebuild_tensor_v2\n(" +
		tuple(text("storage"), "ctorch\nFloatStorage\n", text("0"), text("cpu"), "K\x06") + "Q" +
		"K\x01K\x02K\x02\x86K\x02K\x01\x86\x89ccollections\nOrderedDict\n)RtR."
	untyped := strings.NewReplacer("_v2", "_v3", "ctorch\nFloatStorage", "ctorch.storage\nUntypedStorage", "K\x06t", "K\x18t", ")RtR.", ")Rctorch\nfloat32\ntR.").Replace(typed)
	return []string{typed, untyped, strings.Replace(typed, "K\x02K\x01\x86", "K\x01K\x02\x86", 1)}
}

// TestTensorPickles checks that the seeds of FuzzTensor are valid.
func TestTensorPickles(t *testing.T) {
	for _, pickle := range tensorPickles() {
		if !readTensor(t, pack(t, []byte(pickle), make([]byte, 24))) {
			t.Errorf("%q is not read", pickle)
		}
	}
}

// TestArchiveThatClaimsManyEntries checks that the number of entries that a sparse file claims does not
// determine how much memory is allocated.
func TestArchiveThatClaimsManyEntries(t *testing.T) {
	const size = 1 << 30
	f, err := os.Create(filepath.Join(t.TempDir(), "archive"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	order := binary.LittleEndian
	const entries, recordBytes, locatorBytes, endBytes = size / 40, 56, 20, 22
	at := uint64(size - recordBytes - locatorBytes - endBytes)
	b := append([]byte(endRecord), make([]byte, 20)...)
	for _, v := range []uint64{entries, entries, 100, at - 100} { // in this file, in all, bytes, and position
		b = order.AppendUint64(b, v)
	}
	b = append(b, "PK\x06\x07\x00\x00\x00\x00"...)
	b = order.AppendUint32(order.AppendUint64(b, at), 1)
	b = append(b, "PK\x05\x06\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00"...)
	if _, err := f.WriteAt(b, int64(at)); err != nil {
		t.Fatal(err)
	}
	if _, err := openArchive(t.Context(), io.NewSectionReader(f, 0, size)); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("has %d entries", entries)) {
		t.Errorf("got %v, want an error about %d entries", err, entries)
	}
}

// FuzzTensor checks that no tensor crashes the reader. The checksums of the archive match. Otherwise
// no mutant of a pickle would reach the decoder.
func FuzzTensor(f *testing.F) {
	for _, pickle := range tensorPickles() {
		f.Add([]byte(pickle), make([]byte, 24))
	}
	f.Fuzz(func(t *testing.T, pickle, storage []byte) {
		if len(pickle) <= 1<<16 && len(storage) <= 1<<16 {
			readTensor(t, pack(t, pickle, storage))
		}
	})
}

// readTensor reads the tensor in an archive, if it is small, and reports whether it has read it.
func readTensor(t *testing.T, raw []byte) bool {
	t.Helper()
	s := io.NewSectionReader(bytes.NewReader(raw), 0, int64(len(raw)))
	a, err := openArchive(t.Context(), s)
	if err != nil {
		return false
	}
	w, err := a.view()
	if err != nil || elements(w.size) >= 1000 {
		return false
	}
	tensor := &Tensor{Shape: w.size, dtype: w.dtype}
	whole := chunk{offsets: make([]int, len(w.size)), sizes: w.size}
	return readArchive(t.Context(), s, tensor, whole, make([]byte, int(elements(w.size))*tensor.width())) == nil
}
