package data

// images is a labelled dataset of bytes, kept as bytes: a quarter of the memory
// of its float32 values.
type images struct {
	labels  []int32
	pixels  []byte // samples x inputs
	inputs  int
	classes int
	digest  string
}

// byteValue is byte/255 in float32, as torchvision's ToTensor scales an image.
var byteValue = func() (t [256]float32) {
	for i := range t {
		t[i] = float32(i) / 255
	}
	return t
}()

// newImages takes pixels of len(labels) samples and labels below classes.
func newImages(pixels []byte, labels []int32, classes int) *images {
	d := newDigest("images", len(labels), len(pixels)/len(labels), classes)
	d.bytes(pixels)
	d.labels(labels)
	return &images{
		labels:  labels,
		pixels:  pixels,
		inputs:  len(pixels) / len(labels),
		classes: classes,
		digest:  d.String(),
	}
}

func (d *images) Len() int       { return len(d.labels) }
func (d *images) Inputs() int    { return d.inputs }
func (d *images) Outputs() int   { return d.classes }
func (d *images) Classes() bool  { return true }
func (d *images) Digest() string { return d.digest }

func (d *images) Read(indices []int, x []float32, labels []int32, _ []float32) {
	for row, i := range indices {
		labels[row] = d.labels[i]
		src := d.pixels[i*d.inputs : (i+1)*d.inputs]
		dst := x[row*d.inputs : (row+1)*d.inputs]
		for k, b := range src {
			dst[k] = byteValue[b]
		}
	}
}
