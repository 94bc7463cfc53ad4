package dcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/unpickle"
)

// maxDims is the maximum number of dimensions of a tensor. Tensors of models have at most 5.
const maxDims = 16

// The modules of the classes in .metadata.
const (
	metadataModule   = "torch.distributed.checkpoint.metadata."
	filesystemModule = "torch.distributed.checkpoint.filesystem."
)

// metadataClasses are the classes in .metadata, of PyTorch 2.0 and later.
var metadataClasses = classes(
	metadataModule+"Metadata", metadataModule+"MetadataIndex", metadataModule+"TensorStorageMetadata", metadataModule+"BytesStorageMetadata",
	metadataModule+"ChunkStorageMetadata", metadataModule+"TensorProperties", metadataModule+"_MEM_FORMAT_ENCODING", metadataModule+"StorageMeta",
	"torch.distributed._shard.sharded_tensor.metadata.TensorProperties", "torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING",
	filesystemModule+"_StorageInfo", "torch.Size", "torch.serialization._get_layout", "builtins.getattr",
	"pathlib.PosixPath", "pathlib._local.PosixPath", "pathlib.Path", "pathlib._local.Path",
)

// classes returns a set of classes, with the types of tensors.
func classes(names ...unpickle.Class) map[unpickle.Class]bool {
	set := map[unpickle.Class]bool{}
	for _, n := range names {
		set[n] = true
	}
	for name := range dtypes {
		set[unpickle.Class(name)] = true
	}
	// These types are not supported. They are allowed here, because only a selected tensor of such a
	// type is an error, which then names the tensor.
	for _, name := range []unpickle.Class{"complex32", "complex64", "complex128", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2",
		"qint8", "quint8", "qint32", "quint4x2", "quint2x4"} {
		set["torch."+name] = true
	}
	return set
}

// A budget limits what is read from .metadata. A pickle can contain a name or a list of chunks many
// times, and needs a few bytes for each.
type budget struct {
	names  int // bytes of names and paths
	chunks int
}

// maxMetadataBudget suffices for the metadata of half a million chunks, which maxMetadata allows.
var maxMetadataBudget = budget{names: 256 << 20, chunks: 2 << 20}

// takeName subtracts a name with offsets, or a key of a path.
func (b *budget) takeName(name string, offsets int) error {
	if b.names -= len(name) + 8*(1+offsets); b.names < 0 {
		return errors.New("the names are too large")
	}
	return nil
}

// takeChunk subtracts a chunk.
func (b *budget) takeChunk() error {
	if b.chunks--; b.chunks < 0 {
		return errors.New("too many chunks")
	}
	return nil
}

// parse reads the content of .metadata.
func (c *Checkpoint) parse(raw []byte, left budget) error {
	v, err := unpickle.Decode(raw, metadataClasses)
	if err != nil {
		return err
	}
	m, ok := v.(*unpickle.Object)
	if !ok || m.Class != metadataModule+"Metadata" {
		return errors.New("not the metadata of a distributed checkpoint")
	}
	entries, ok := m.Attribute("state_dict_metadata").(*unpickle.Dict)
	if !ok {
		return errors.New("state_dict_metadata is not a dict")
	}
	paths, err := readPaths(m.Attribute("planner_data"), &left)
	if err != nil {
		return err
	}
	stored, err := readLocations(m.Attribute("storage_data"), &left)
	if err != nil {
		return err
	}
	for i, key := range entries.Keys {
		name, ok := key.(string)
		if !ok {
			return errors.New("the name of a tensor is not a string")
		}
		if err := left.takeName(name, 0); err != nil {
			return err
		}
		e := entry{Name: name, path: []any{name}, order: i}
		if path := paths[name]; path != nil {
			e.path = path
		}
		o, ok := entries.Values[i].(*unpickle.Object)
		switch {
		case ok && o.Class == metadataModule+"BytesStorageMetadata":
			at, found := stored[position(name, nil)]
			if !found {
				return fmt.Errorf("value %q is not stored", name)
			}
			c.Values = append(c.Values, &Value{e, at})
		case ok && o.Class == metadataModule+"TensorStorageMetadata":
			t := &Tensor{entry: e}
			if err := t.parse(name, o, stored, &left); err != nil {
				return fmt.Errorf("tensor %q: %w", name, err)
			}
			c.Tensors = append(c.Tensors, t)
		default:
			return fmt.Errorf("entry %q is neither a tensor nor a value", name)
		}
	}
	return nil
}

// readPaths reads the path of each name, from a dict of tuples. Without it, names are paths.
func readPaths(v any, left *budget) (map[string][]any, error) {
	paths := map[string][]any{}
	if v == nil {
		return paths, nil
	}
	d, ok := v.(*unpickle.Dict)
	if !ok {
		return nil, errors.New("planner_data is not a dict")
	}
	for i, key := range d.Keys {
		name, _ := key.(string)
		path, ok := d.Values[i].(unpickle.Tuple)
		if !ok || len(path) == 0 {
			return nil, fmt.Errorf("the path of %q is not a tuple", name)
		}
		if len(path) > maxDepth {
			return nil, fmt.Errorf("the path of %q has %d keys, want at most %d", name, len(path), maxDepth)
		}
		for _, key := range path {
			index, isInt := key.(int64)
			text, isString := key.(string)
			if !isString && (!isInt || index < 0) {
				return nil, fmt.Errorf("the path of %q has a key that is neither a string nor an index", name)
			}
			if err := left.takeName(text, 0); err != nil {
				return nil, err
			}
		}
		paths[name] = path
	}
	return paths, nil
}

// position returns a key for a chunk of a tensor, or for a value, whose offsets are nil.
func position(name string, offsets []int) string {
	if offsets == nil {
		return name
	}
	key := append([]byte(name), 0)
	for _, o := range offsets {
		key = binary.AppendUvarint(key, uint64(o))
	}
	return string(key)
}

// readLocations reads the locations of all chunks and values.
func readLocations(v any, left *budget) (map[string]location, error) {
	d, ok := v.(*unpickle.Dict)
	if !ok {
		return nil, errors.New("storage_data is not a dict")
	}
	stored := make(map[string]location, len(d.Keys))
	for i, key := range d.Keys {
		index, ok := key.(*unpickle.Object)
		if !ok || index.Class != metadataModule+"MetadataIndex" {
			return nil, errors.New("a key of storage_data is not a MetadataIndex")
		}
		name, ok := index.Attribute("fqn").(string)
		if !ok {
			return nil, errors.New("a MetadataIndex does not have a name")
		}
		var offsets []int // nil for a value
		if offset := index.Attribute("offset"); offset != nil {
			var err error
			if offsets, err = readSize(offset); err != nil {
				return nil, fmt.Errorf("tensor %q: offset: %w", name, err)
			}
		}
		if err := left.takeName(name, len(offsets)); err != nil {
			return nil, err
		}
		at := position(name, offsets)
		l, err := readLocation(d.Values[i])
		if err != nil {
			return nil, fmt.Errorf("entry %q: %w", name, err)
		}
		if _, known := stored[at]; known {
			return nil, fmt.Errorf("entry %q is stored twice", name)
		}
		stored[at] = l
	}
	return stored, nil
}

func readLocation(v any) (location, error) {
	info, ok := v.(*unpickle.Object)
	if !ok || info.Class != filesystemModule+"_StorageInfo" {
		return location{}, errors.New("its location is not a _StorageInfo")
	}
	if list, ok := info.Attribute("transform_descriptors").(*unpickle.List); ok && len(list.Items) > 0 {
		name, _ := list.Items[0].(string)
		return location{}, fmt.Errorf("it is transformed with %q, which is not supported", name)
	}
	file, isName := info.Attribute("relative_path").(string)
	offset, isOffset := info.Attribute("offset").(int64)
	length, isLength := info.Attribute("length").(int64)
	if !isName || !isOffset || !isLength {
		return location{}, errors.New("its location does not have relative_path, offset, and length")
	}
	return location{file, offset, length}, nil
}

// parse reads a TensorStorageMetadata.
func (t *Tensor) parse(name string, o *unpickle.Object, stored map[string]location, left *budget) error {
	properties, ok := o.Attribute("properties").(*unpickle.Object)
	if !ok {
		return errors.New("no properties")
	}
	state, ok := properties.State.(unpickle.Tuple) // dtype, layout, requires_grad, memory format, pin_memory
	if !ok || len(state) == 0 {
		return errors.New("its properties do not have a type")
	}
	dtype, ok := state[0].(unpickle.Class)
	if !ok {
		return errors.New("its type is not a torch.dtype")
	}
	t.dtype = string(dtype)
	var err error
	if t.Shape, err = readSize(o.Attribute("size")); err != nil {
		return fmt.Errorf("size: %w", err)
	}
	list, ok := o.Attribute("chunks").(*unpickle.List)
	if !ok {
		return errors.New("its chunks are not a list")
	}
	for _, v := range list.Items {
		if err := left.takeChunk(); err != nil {
			return err
		}
		info, ok := v.(*unpickle.Object)
		if !ok || info.Class != metadataModule+"ChunkStorageMetadata" {
			return errors.New("a chunk is not a ChunkStorageMetadata")
		}
		var ch chunk
		if ch.offsets, err = readSize(info.Attribute("offsets")); err != nil {
			return fmt.Errorf("offsets of a chunk: %w", err)
		}
		if ch.sizes, err = readSize(info.Attribute("sizes")); err != nil {
			return fmt.Errorf("sizes of a chunk: %w", err)
		}
		if len(ch.offsets) != len(t.Shape) || len(ch.sizes) != len(t.Shape) {
			return fmt.Errorf("chunk at %v with size %v of a tensor of shape %v", ch.offsets, ch.sizes, t.Shape)
		}
		for i, n := range t.Shape {
			if ch.sizes[i] > n || ch.offsets[i] > n-ch.sizes[i] {
				return fmt.Errorf("chunk at %v with size %v exceeds the shape %v", ch.offsets, ch.sizes, t.Shape)
			}
		}
		if ch.elements() == 0 {
			continue // of a rank without a part of the tensor
		}
		if ch.at, ok = stored[position(name, ch.offsets)]; !ok {
			return fmt.Errorf("chunk at %v is not stored", ch.offsets)
		}
		t.chunks = append(t.chunks, ch)
	}
	return nil
}

// readSize reads a torch.Size, or a tuple of sizes. The number of elements fits into 59 bits.
func readSize(v any) ([]int, error) {
	if o, ok := v.(*unpickle.Object); ok && o.Class == "torch.Size" {
		v = unpickle.Tuple(nil)
		if len(o.Args) > 0 {
			v = o.Args[0]
		}
	}
	t, ok := v.(unpickle.Tuple)
	if !ok {
		return nil, errors.New("not a torch.Size")
	}
	if len(t) > maxDims {
		return nil, fmt.Errorf("%d dimensions, want at most %d", len(t), maxDims)
	}
	size := make([]int, len(t))
	product := int64(1)
	for i, v := range t {
		n, ok := v.(int64)
		if !ok {
			return nil, fmt.Errorf("dimension %d is not an integer", i)
		}
		if n < 0 || n > math.MaxInt64/16/product {
			return nil, fmt.Errorf("impossible size %d of dimension %d", n, i)
		}
		size[i] = int(n)
		product *= max(n, 1)
	}
	return size, nil
}
