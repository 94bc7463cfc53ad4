package data

// features are the inputs of samples, one row each.
type features interface {
	width() int // values per row
	row(i int, dst []float32)
	hash(d *digest)
}

// floatRows are rows of n values each.
type floatRows struct {
	values []float32
	n      int
}

func (f floatRows) width() int               { return f.n }
func (f floatRows) row(i int, dst []float32) { copy(dst, f.values[i*f.n:(i+1)*f.n]) }
func (f floatRows) hash(d *digest)           { d.floats(f.values) }

// byteRows are rows of n bytes each. They stay bytes in memory, which needs a quarter of the memory
// of float32.
type byteRows struct {
	values []byte
	n      int
	number *[256]float32 // value of each byte
}

func (f byteRows) width() int     { return f.n }
func (f byteRows) hash(d *digest) { d.bytes(f.values) }

func (f byteRows) row(i int, dst []float32) {
	for k, b := range f.values[i*f.n : (i+1)*f.n] {
		dst[k] = f.number[b]
	}
}

var (
	// scaledByte is byte/255 in float32, like torchvision's ToTensor.
	scaledByte = byteTable(255)
	// plainByte is the value of the byte.
	plainByte = byteTable(1)
)

func byteTable(divisor float32) *[256]float32 {
	var t [256]float32
	for i := range t {
		t[i] = float32(i) / divisor
	}
	return &t
}
