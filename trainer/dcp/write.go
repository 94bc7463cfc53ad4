package dcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
	"github.com/ddpbatch/ddpbatch/trainer/torchfile"
	"github.com/ddpbatch/ddpbatch/trainer/unpickle"
)

const (
	// maxDepth, maxValues, and maxValueBytes limit the values other than tensors in a file: how deep
	// they are nested, their number, and the bytes of their strings. A value can contain a string many
	// times.
	maxDepth      = 100
	maxValues     = 1 << 20
	maxValueBytes = 64 << 20
	// maxHoles is the maximum number of list elements that a checkpoint does not have.
	maxHoles = 1 << 16
)

// WriteSafetensors writes all tensors in the format of safetensors, with their paths as names. It
// omits other values. Call Check first.
func (c *Checkpoint) WriteSafetensors(ctx context.Context, w io.Writer) error {
	tensors := slices.Clone(c.Tensors)
	// Larger types first, as the safetensors library does, so that all data are aligned.
	slices.SortFunc(tensors, func(a, b *Tensor) int {
		return cmp.Or(cmp.Compare(b.width(), a.width()), cmp.Compare(a.dtype, b.dtype), cmp.Compare(a.Name, b.Name))
	})
	arrays := make([]safetensors.Array, len(tensors))
	for i, t := range tensors {
		arrays[i] = safetensors.Array{Name: t.Name, DType: t.fileType(), Shape: t.Shape}
	}
	header, err := safetensors.ArrayHeader(arrays, map[string]string{"format": "pt"})
	if err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	r := &reader{ctx: ctx, from: c}
	for _, t := range tensors {
		if _, err := io.Copy(w, r.tensor(t)); err != nil {
			return err
		}
	}
	return nil
}

// Skipped is a value that a file cannot contain.
type Skipped struct {
	Name  string
	Cause error
}

// WriteTorch writes all tensors and other values in the format of torch.save, nested as they were
// when the checkpoint was saved. It omits and returns values that are neither numbers, strings,
// bytes, nor lists, tuples, and dicts of these, and values that exceed the limits. Call Check
// first.
func (c *Checkpoint) WriteTorch(ctx context.Context, w io.Writer) ([]Skipped, error) {
	var leaves []leaf
	var skipped []Skipped
	var total extent
	for _, v := range c.Values {
		value, err := c.value(ctx, v)
		if err == nil {
			next := total // a value that is skipped does not count
			if err = next.add(value, 0); err == nil {
				total = next
			}
		}
		var unsupported *unsupportedError
		switch {
		case errors.As(err, &unsupported):
			skipped = append(skipped, Skipped{v.Name, unsupported.error})
		case err != nil:
			return nil, fmt.Errorf("value %q in file %q: %w", v.Name, v.at.file, err)
		default:
			leaves = append(leaves, leaf{v.entry, value})
		}
	}
	r := &reader{ctx: ctx, from: c}
	for _, t := range c.Tensors {
		leaves = append(leaves, leaf{t.entry, torchfile.Tensor{Name: t.Name, DType: t.fileType(), Shape: t.Shape, Data: r.tensor(t)}})
	}
	slices.SortFunc(leaves, func(a, b leaf) int { return cmp.Compare(a.order, b.order) })
	root := &node{children: map[any]*node{}}
	for _, l := range leaves {
		if err := root.add(l.path, l.value); err != nil {
			return nil, fmt.Errorf("entry %q: %w", l.Name, err)
		}
	}
	holes := maxHoles
	v, err := root.value(&holes)
	if err != nil {
		return nil, err
	}
	return skipped, torchfile.WriteValue(w, v)
}

// leaf is a value that is not a dict or list of other entries.
type leaf struct {
	entry
	value any
}

// unsupportedError is the reason why a value cannot be written.
type unsupportedError struct{ error }

// value reads a value other than a tensor.
func (c *Checkpoint) value(ctx context.Context, v *Value) (any, error) {
	s, err := c.section(v.at)
	if err != nil {
		return nil, err
	}
	a, err := openArchive(ctx, s)
	if err != nil {
		return nil, err
	}
	value, err := unpickle.Decode(a.pickle, nil)
	if class := (*unpickle.ClassError)(nil); errors.As(err, &class) {
		return nil, &unsupportedError{class}
	}
	return value, err
}

// An extent is the size of values: their number, and the bytes of their strings.
type extent struct{ values, bytes int }

// add adds a value. It returns an error if the values are too large or contain themselves, or contain
// a type that a file cannot have.
func (e *extent) add(v any, depth int) error {
	switch v := v.(type) {
	case string:
		e.bytes += len(v)
	case []byte:
		e.bytes += len(v)
	}
	if e.values++; e.values > maxValues || e.bytes > maxValueBytes || depth > maxDepth {
		return &unsupportedError{fmt.Errorf("more than %d values or %d bytes, or nested more than %d times", maxValues, maxValueBytes, maxDepth)}
	}
	var inner [][]any
	switch v := v.(type) {
	case unpickle.Tuple:
		inner = [][]any{v}
	case *unpickle.List:
		inner = [][]any{v.Items}
	case *unpickle.Dict:
		inner = [][]any{v.Keys, v.Values}
	case *unpickle.Object:
		return &unsupportedError{&unpickle.ClassError{Class: v.Class}}
	case unpickle.Class:
		return &unsupportedError{&unpickle.ClassError{Class: v}}
	case *unpickle.Reference:
		return &unsupportedError{errors.New("it contains a tensor")}
	}
	for _, list := range inner {
		for _, v := range list {
			if err := e.add(v, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// node is a dict or list that is being built, or a value.
type node struct {
	leaf     any
	children map[any]*node // nil for a value
	keys     []any         // strings, or int64 indices of a list, in the order of insertion
}

// add sets the value at a path.
func (n *node) add(path []any, value any) error {
	if len(path) > maxDepth {
		return fmt.Errorf("path of %d keys, want at most %d", len(path), maxDepth)
	}
	for i, key := range path {
		if n.children == nil {
			return fmt.Errorf("%q is a value and cannot contain others", join(path[:i]))
		}
		if len(n.keys) > 0 {
			if _, isIndex := n.keys[0].(int64); isIndex != (fmt.Sprintf("%T", key) == "int64") {
				return fmt.Errorf("%q is a dict and a list", join(path[:i]))
			}
		}
		child := n.children[key]
		if child == nil {
			child = &node{}
			if i < len(path)-1 {
				child.children = map[any]*node{}
			}
			n.children[key] = child
			n.keys = append(n.keys, key)
		} else if i == len(path)-1 {
			return errors.New("the path is not unique")
		}
		n = child
	}
	n.leaf = value
	return nil
}

// value returns the dict, list, or value.
func (n *node) value(holes *int) (any, error) {
	if n.children == nil {
		return n.leaf, nil
	}
	var dict unpickle.Dict
	var list unpickle.List
	for _, key := range n.keys {
		v, err := n.children[key].value(holes)
		if err != nil {
			return nil, err
		}
		index, isIndex := key.(int64)
		if !isIndex {
			dict.Keys = append(dict.Keys, key)
			dict.Values = append(dict.Values, v)
			continue
		}
		if missing := index - int64(len(list.Items)); missing >= 0 {
			if missing > int64(*holes) {
				return nil, fmt.Errorf("a list has an index of %d, but not the elements before it", index)
			}
			*holes -= int(missing)
			list.Items = append(list.Items, make([]any, missing+1)...)
		}
		list.Items[index] = v
	}
	if len(n.keys) > 0 {
		if _, isIndex := n.keys[0].(int64); isIndex {
			return &list, nil
		}
	}
	return &dict, nil
}
