package data

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// idxSet names the two files of one part of an IDX dataset.
type idxSet struct{ images, labels string }

// MNIST, Fashion-MNIST, KMNIST, and EMNIST-digits all use these names.
var (
	idxTrain = idxSet{"train-images-idx3-ubyte", "train-labels-idx1-ubyte"}
	idxEval  = idxSet{"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}
)

// openIDX opens the training files in trainPath and the held-out files in evalPath. If evalPath is
// empty, it uses the held-out files in trainPath, if they exist.
func openIDX(ctx context.Context, trainPath, evalPath string) (train, eval Dataset, err error) {
	trainDir, err := openDataDir(trainPath)
	if err != nil {
		return nil, nil, err
	}
	evalDir := trainDir
	if evalPath != "" {
		if evalDir, err = openDataDir(evalPath); err != nil {
			return nil, nil, err
		}
	}
	return openIDXDirs(ctx, trainDir, evalDir, evalPath != "")
}

// openIDXDirs opens both parts. Unless needEval is set, both held-out files may be missing.
func openIDXDirs(ctx context.Context, trainDir, evalDir dataDir, needEval bool) (train, eval Dataset, err error) {
	t, err := readIDXSet(ctx, trainDir, idxTrain, nil)
	if err != nil {
		return nil, nil, err
	}
	if !needEval && !evalDir.exists(idxEval.images) && !evalDir.exists(idxEval.images+".gz") &&
		!evalDir.exists(idxEval.labels) && !evalDir.exists(idxEval.labels+".gz") {
		return t, nil, nil
	}
	e, err := readIDXSet(ctx, evalDir, idxEval, t)
	if err != nil {
		return nil, nil, err
	}
	return t, e, nil
}

// openDataDir returns an error unless path is a directory.
func openDataDir(path string) (dataDir, error) {
	const hint = "set path to the directory with train-images-idx3-ubyte and its three companions, such as /usr/share/datasets/fashion-mnist (Debian package dataset-fashion-mnist), or to \"builtin:fashion-mnist\""
	info, err := os.Stat(path)
	if err != nil {
		return dataDir{}, hints.Errorf(hint, "read data directory %q: %w", path, stripPath(err))
	}
	if !info.IsDir() {
		return dataDir{}, hints.Errorf(hint, "read data directory %q: not a directory", path)
	}
	return dataDir{name: path}, nil
}

// readIDXSet reads images and labels. Held-out data must have the image size and the classes of the
// training data, like. For the training data themselves, like is nil, and the largest label gives
// the number of classes. Pixels are read last, after the headers and the labels have been
// validated.
func readIDXSet(ctx context.Context, f dataDir, set idxSet, like *table) (*table, error) {
	images, err := openIDXFile(ctx, f, set.images, 3)
	if err != nil {
		return nil, err
	}
	defer images.in.Close()
	labelFile, err := openIDXFile(ctx, f, set.labels, 1)
	if err != nil {
		return nil, err
	}
	defer labelFile.in.Close()
	imagesPath, labelsPath := images.path, labelFile.path
	if images.shape[0] != labelFile.shape[0] {
		return nil, fmt.Errorf("read %q: at byte 4: %d labels, but %q has %d images", labelsPath, labelFile.shape[0], imagesPath, images.shape[0])
	}
	image := [3]int{1, images.shape[1], images.shape[2]}
	if like != nil && image != like.image {
		return nil, fmt.Errorf("read %q: at byte 8: images of %d x %d pixels, but training images have %d x %d",
			imagesPath, image[1], image[2], like.image[1], like.image[2])
	}
	rawLabels, err := labelFile.values()
	if err != nil {
		return nil, err
	}
	classes := int(slices.Max(rawLabels)) + 1
	if like != nil {
		classes = like.outputs
	}
	labels := make([]int32, len(rawLabels))
	for i, label := range rawLabels {
		if int(label) >= classes {
			return nil, fmt.Errorf("read %q: at byte %d: label %d, but training labels are 0 to %d", labelsPath, 8+i, label, classes-1)
		}
		labels[i] = int32(label)
	}
	if like == nil {
		if err := checkVariety(labels); err != nil {
			return nil, hints.Errorf(oneClassHint, "read %q: at byte 8: %w", labelsPath, err)
		}
	}
	pixels, err := images.values()
	if err != nil {
		return nil, err
	}
	t := newClassTable("images", byteRows{pixels, image[1] * image[2], scaledByte}, labels, classes)
	t.image = image
	return t, nil
}

// openIDXFile opens a file, compressed or not, and reads its header.
func openIDXFile(ctx context.Context, f dataDir, file string, dims int) (*idxFile, error) {
	if !f.exists(file) {
		if !f.exists(file + ".gz") {
			return nil, hints.Errorf("an IDX directory holds files with MNIST's names: train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, each plain or .gz",
				"read %q: neither this file nor %s.gz exists", f.path(file), file)
		}
		file += ".gz"
	}
	in, err := f.open(ctx, file)
	if err != nil {
		return nil, err
	}
	idx, err := readIDXHeader(f.path(file), in, dims)
	if err != nil {
		in.Close()
	}
	return idx, err
}
