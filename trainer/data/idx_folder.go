package data

import (
	"fmt"
	"os"
	"slices"
)

// idxSet names the two files of one part of an IDX dataset.
type idxSet struct{ images, labels string }

// MNIST, Fashion-MNIST, KMNIST and EMNIST-digits all come under these names.
var (
	idxTrain = idxSet{"train-images-idx3-ubyte", "train-labels-idx1-ubyte"}
	idxEval  = idxSet{"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}
)

// openIDX opens the training files of trainPath and the held-out files of
// evalPath, or of trainPath when evalPath is empty and they are there.
func openIDX(trainPath, evalPath string) (train, eval Dataset, err error) {
	trainFolder, err := dataFolder(trainPath)
	if err != nil {
		return nil, nil, err
	}
	evalFolder := trainFolder
	if evalPath != "" {
		if evalFolder, err = dataFolder(evalPath); err != nil {
			return nil, nil, err
		}
	}
	return openIDXFolders(trainFolder, evalFolder, evalPath != "")
}

// openIDXFolders opens both parts. Held-out files may be absent, both of them,
// unless needEval.
func openIDXFolders(trainFolder, evalFolder folder, needEval bool) (train, eval Dataset, err error) {
	t, err := readIDXSet(trainFolder, idxTrain, 0)
	if err != nil {
		return nil, nil, err
	}
	if !needEval && !evalFolder.exists(idxEval.images) && !evalFolder.exists(idxEval.images+".gz") &&
		!evalFolder.exists(idxEval.labels) && !evalFolder.exists(idxEval.labels+".gz") {
		return t, nil, nil
	}
	e, err := readIDXSet(evalFolder, idxEval, t.classes)
	if err != nil {
		return nil, nil, err
	}
	if e.inputs != t.inputs {
		return nil, nil, fmt.Errorf("read %q: images of %d pixels, but those trained on have %d", evalFolder.path(idxEval.images), e.inputs, t.inputs)
	}
	return t, e, nil
}

// dataFolder checks that path is a folder.
func dataFolder(path string) (folder, error) {
	const hint = "path must be the folder that holds train-images-idx3-ubyte and its three companions, as /usr/share/datasets/fashion-mnist (Debian package dataset-fashion-mnist), or \"builtin:fashion-mnist\""
	info, err := os.Stat(path)
	if err != nil {
		return folder{}, &hintError{fmt.Errorf("read data folder %q: %w", path, cause(err)), hint}
	}
	if !info.IsDir() {
		return folder{}, &hintError{fmt.Errorf("read data folder %q: not a folder", path), hint}
	}
	return folder{os.DirFS(path), path}, nil
}

// readIDXSet reads images and labels. Labels must be below classes; 0 means that
// the largest one says how many there are.
func readIDXSet(f folder, set idxSet, classes int) (*images, error) {
	imagesPath, imageShape, pixels, err := readIDXFile(f, set.images, 3)
	if err != nil {
		return nil, err
	}
	labelsPath, labelShape, rawLabels, err := readIDXFile(f, set.labels, 1)
	if err != nil {
		return nil, err
	}
	if imageShape[0] != labelShape[0] {
		return nil, fmt.Errorf("read %q: at byte 4: %d labels, but %q has %d images", labelsPath, labelShape[0], imagesPath, imageShape[0])
	}
	if classes == 0 {
		classes = int(slices.Max(rawLabels)) + 1
	}
	labels := make([]int32, len(rawLabels))
	for i, label := range rawLabels {
		if int(label) >= classes {
			return nil, fmt.Errorf("read %q: at byte %d: label %d, but those trained on are 0 to %d", labelsPath, 8+i, label, classes-1)
		}
		labels[i] = int32(label)
	}
	return newImages(pixels, labels, classes), nil
}

// readIDXFile reads one file, compressed or not.
func readIDXFile(f folder, file string, dims int) (path string, shape []int, values []byte, err error) {
	if !f.exists(file) {
		if !f.exists(file + ".gz") {
			return "", nil, nil, &hintError{
				fmt.Errorf("read %q: neither this file nor %s.gz exists", f.path(file), file),
				"an IDX folder holds the files of MNIST under their own names: train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, each plain or .gz",
			}
		}
		file += ".gz"
	}
	r, err := f.open(file)
	if err != nil {
		return "", nil, nil, err
	}
	defer r.Close()
	shape, values, err = readIDX(f.path(file), r, dims)
	return f.path(file), shape, values, err
}
