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
	t, err := readIDXSet(trainFolder, idxTrain, nil)
	if err != nil {
		return nil, nil, err
	}
	if !needEval && !evalFolder.exists(idxEval.images) && !evalFolder.exists(idxEval.images+".gz") &&
		!evalFolder.exists(idxEval.labels) && !evalFolder.exists(idxEval.labels+".gz") {
		return t, nil, nil
	}
	e, err := readIDXSet(evalFolder, idxEval, t)
	if err != nil {
		return nil, nil, err
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

// readIDXSet reads images and labels. Those that are held out must have the size
// and the classes of those trained on, like; it is nil for the latter, whose
// largest label says how many classes there are.
func readIDXSet(f folder, set idxSet, like *table) (*table, error) {
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
	image := [3]int{1, imageShape[1], imageShape[2]}
	classes := int(slices.Max(rawLabels)) + 1
	if like != nil {
		classes = like.outputs
		if image != like.image {
			return nil, fmt.Errorf("read %q: at byte 8: images of %d x %d pixels, but those trained on have %d x %d",
				imagesPath, image[1], image[2], like.image[1], like.image[2])
		}
	}
	labels := make([]int32, len(rawLabels))
	for i, label := range rawLabels {
		if int(label) >= classes {
			return nil, fmt.Errorf("read %q: at byte %d: label %d, but those trained on are 0 to %d", labelsPath, 8+i, label, classes-1)
		}
		labels[i] = int32(label)
	}
	if like == nil {
		if err := checkVariety(labels); err != nil {
			return nil, &hintError{fmt.Errorf("read %q: at byte 8: %w", labelsPath, err), oneClassHint}
		}
	}
	t := newClassTable("images", byteRows{pixels, image[1] * image[2], scaledByte}, labels, classes)
	t.image = image
	return t, nil
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
