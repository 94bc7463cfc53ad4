package data

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/ddpbatch/ddpbatch/internal/ctxio"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/random"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// Default names of the arrays in a safetensors file.
const (
	defaultFeatures = "x"
	defaultTarget   = "y"
)

// openSafetensors reads inputs and targets from a safetensors file, and from the held-out file if
// there is one.
func openSafetensors(ctx context.Context, o Options) (train, eval Dataset, err error) {
	t, err := readArrays(ctx, o.Path, o, nil)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case o.Holdout > 0:
		return t.split(o.Path, o.Holdout, o.Seed)
	case o.EvalPath == "":
		return t, nil, nil
	}
	e, err := readArrays(ctx, o.EvalPath, o, t)
	if err != nil {
		return nil, nil, err
	}
	return t, e, nil
}

// arraysFile is an open safetensors file.
type arraysFile struct {
	io.ReaderAt
	path   string
	arrays []safetensors.Array
}

// readArrays reads one file. Held-out data must match the training data, like; like is nil for the
// training data themselves.
func readArrays(ctx context.Context, path string, o Options, like *table) (*table, error) {
	raw, info, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	arrays, _, err := safetensors.ReadHeader(raw, info.Size())
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", path, err)
	}
	f := arraysFile{ctxio.ReaderAt(ctx, raw), path, arrays}
	x, err := f.find(cmp.Or(o.Features, defaultFeatures))
	if err != nil {
		return nil, err
	}
	y, err := f.find(cmp.Or(o.Target, defaultTarget))
	if err != nil {
		return nil, err
	}
	if err := f.checkShapes(x, y); err != nil {
		return nil, err
	}
	inputs, err := f.features(x)
	if err != nil {
		return nil, err
	}
	kind := fmt.Sprintf("array %s %v", x.DType, x.Shape[1:])
	var t *table
	if y.DType == safetensors.F32 {
		t, err = f.values(kind, inputs, y, o.Task)
	} else {
		t, err = f.classes(kind, inputs, y, o.Task, like)
	}
	if err != nil {
		return nil, err
	}
	switch len(x.Shape) {
	case 3:
		t.image = [3]int{1, x.Shape[1], x.Shape[2]}
	case 4:
		t.image = [3]int(x.Shape[1:])
	}
	if like != nil {
		if t.Inputs() != like.Inputs() || t.image != like.image {
			return nil, f.at(x, 0, "shape %v does not match %q, which has %d inputs per sample", x.Shape, o.Path, like.Inputs())
		}
		if t.Classes() != like.Classes() || t.outputs != like.outputs {
			return nil, f.at(y, 0, "shape %v and type %s do not match %q", y.Shape, y.DType, o.Path)
		}
	}
	return t, nil
}

// at returns an error at element i of an array.
func (f arraysFile) at(a safetensors.Array, i int, format string, args ...any) error {
	return fmt.Errorf("read %q: at byte %d: tensor %q: %w", f.path, a.Begin+int64(i*a.DType.Size()), a.Name, fmt.Errorf(format, args...))
}

// find returns the array with the given name.
func (f arraysFile) find(name string) (safetensors.Array, error) {
	i := slices.IndexFunc(f.arrays, func(a safetensors.Array) bool { return a.Name == name })
	if i >= 0 {
		return f.arrays[i], nil
	}
	var names []string
	for _, a := range f.arrays {
		names = append(names, a.Name)
	}
	return safetensors.Array{}, hints.Errorf("tensors are: "+abridge(names)+"; name the inputs as features and what to predict as target",
		"read %q: no tensor %q", f.path, name)
}

// checkShapes returns an error unless x has rows of inputs and y has one or more values per row.
func (f arraysFile) checkShapes(x, y safetensors.Array) error {
	switch {
	case len(x.Shape) < 2:
		return f.at(x, 0, "shape %v, want [samples, inputs], [samples, height, width] or [samples, channels, height, width]", x.Shape)
	case x.Len() == 0:
		return f.at(x, 0, "shape %v has no values", x.Shape)
	case x.Shape[0] > random.MaxPerm:
		return f.at(x, 0, "%d samples, want at most %d", x.Shape[0], random.MaxPerm)
	case len(y.Shape) < 1 || y.Shape[0] != x.Shape[0]:
		return f.at(y, 0, "shape %v, but the inputs have shape %v: not one target for each sample", y.Shape, x.Shape)
	case y.Len() == 0:
		return f.at(y, 0, "shape %v has no values", y.Shape)
	case x.Len() > maxValues-min(y.Len(), maxValues):
		return f.at(x, 0, "shape %v, with targets more than %d values", x.Shape, maxValues)
	}
	return nil
}

// features reads the inputs. Bytes stay bytes in memory and are read as 0 to 255.
func (f arraysFile) features(x safetensors.Array) (features, error) {
	n := x.Len() / x.Shape[0]
	if x.DType == safetensors.U8 {
		raw, err := x.Read(f)
		if err != nil {
			return nil, fmt.Errorf("read %q: %w", f.path, err)
		}
		return byteRows{raw, n, plainByte}, nil
	}
	values, err := f.floats(x)
	return floatRows{values, n}, err
}

// floats reads finite values.
func (f arraysFile) floats(a safetensors.Array) ([]float32, error) {
	values, err := a.Float32s(f)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", f.path, err)
	}
	for i, v := range values {
		if v-v != 0 {
			return nil, f.at(a, i, "%v is not finite", v)
		}
	}
	return values, nil
}

// values returns the dataset for rows of targets.
func (f arraysFile) values(kind string, inputs features, y safetensors.Array, task string) (*table, error) {
	if task == TaskClassification {
		return nil, hints.Add(f.at(y, 0, "type %s, but classes are integers", y.DType),
			"store labels as I64, I32 or U8, in PyTorch with target.long(), or set the task to regression")
	}
	if len(y.Shape) > 2 {
		return nil, f.at(y, 0, "shape %v, want [samples] or [samples, values]", y.Shape)
	}
	targets, err := f.floats(y)
	if err != nil {
		return nil, err
	}
	return newValueTable(kind, inputs, targets, len(targets)/y.Shape[0]), nil
}

// classes returns the dataset for labels, with like's classes unless like is nil.
func (f arraysFile) classes(kind string, inputs features, y safetensors.Array, task string, like *table) (*table, error) {
	if task == TaskRegression {
		return nil, hints.Add(f.at(y, 0, "type %s, but values to predict are %s", y.DType, safetensors.F32),
			"store the target as F32, in PyTorch with target.float(), or set the task to classification")
	}
	if len(y.Shape) > 1 {
		return nil, f.at(y, 0, "shape %v, but labels have the shape [samples]", y.Shape)
	}
	values, err := y.Int64s(f)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w, or %s for values to predict", f.path, err, safetensors.F32)
	}
	labels := make([]int32, len(values))
	classes := 1
	for i, v := range values {
		switch {
		case v < 0 || v >= maxClasses:
			return nil, hints.Add(f.at(y, i, "label %d, want 0 to %d", v, maxClasses-1),
				"number the classes 0, 1, 2, ...; store values to predict as F32")
		case like != nil && like.Classes() && v >= int64(like.outputs):
			return nil, f.at(y, i, "label %d, but training labels are 0 to %d", v, like.outputs-1)
		}
		labels[i] = int32(v)
		classes = max(classes, int(v)+1)
	}
	if like != nil && like.Classes() {
		classes = like.outputs
	} else if err := checkVariety(labels); err != nil {
		return nil, hints.Add(f.at(y, 0, "%w", err), oneClassHint)
	}
	return newClassTable(kind, inputs, labels, classes), nil
}
