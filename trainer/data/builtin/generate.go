//go:build ignore

// Generate creates the files in this directory: a class-balanced subset of Fashion-MNIST.
//
//	go run generate.go [-source /usr/share/datasets/fashion-mnist]
//
// It uses the first images of each class, in the order of the source. The same source therefore
// always gives the same files.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

const (
	classes = 10
	pixels  = 28 * 28
)

func main() {
	source := flag.String("source", "/usr/share/datasets/fashion-mnist", "directory with all of Fashion-MNIST")
	flag.Parse()
	for _, part := range []struct {
		name     string
		perClass int
	}{{"train", 360}, {"t10k", 80}} {
		if err := subset(*source, part.name, part.perClass); err != nil {
			fmt.Fprintln(os.Stderr, "generate:", err)
			os.Exit(1)
		}
	}
}

// subset writes the image and label files of one part.
func subset(source, part string, perClass int) error {
	images, err := body(filepath.Join(source, part+"-images-idx3-ubyte.gz"), 16)
	if err != nil {
		return err
	}
	labels, err := body(filepath.Join(source, part+"-labels-idx1-ubyte.gz"), 8)
	if err != nil {
		return err
	}
	var taken [classes]int
	var outImages, outLabels []byte
	for i, label := range labels {
		if taken[label] < perClass {
			taken[label]++
			outLabels = append(outLabels, label)
			outImages = append(outImages, images[i*pixels:(i+1)*pixels]...)
		}
	}
	n := uint32(len(outLabels))
	if n != uint32(classes*perClass) {
		return fmt.Errorf("%s: too few images in %s", part, source)
	}
	if err := write(part+"-images-idx3-ubyte.gz", []uint32{0x803, n, 28, 28}, outImages); err != nil {
		return err
	}
	return write(part+"-labels-idx1-ubyte.gz", []uint32{0x801, n}, outLabels)
}

// body returns the contents of a gzip file after its header.
func body(path string, header int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(z)
	if err != nil {
		return nil, err
	}
	return data[header:], nil
}

// write writes a compressed IDX file without a time or a name in the gzip header.
func write(path string, header []uint32, values []byte) error {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := binary.Write(z, binary.BigEndian, header); err != nil {
		return err
	}
	if _, err := z.Write(values); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}
