package torchfile

import (
	"cmp"
	"encoding/binary"
	"math"
	"strconv"

	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// The instructions of pickle protocol 2 (Python's pickletools.py).
const (
	proto      = "\x80\x02"
	global     = "c" // module \n name \n
	mark       = "("
	tuple      = "t" // of all values since the mark
	emptyTuple = ")"
	reduce     = "R"    // calls the callable before its tuple
	unicode    = "X"    // length in 4 bytes, UTF-8
	int4       = "J"    // 4 bytes, signed
	long1      = "\x8a" // length in 1 byte, little-endian two's complement
	none       = "N"
	false1     = "\x89"
	true1      = "\x88"
	float8     = "G" // 8 bytes, big-endian
	plainDict  = "}"
	plainList  = "]"
	appends    = "e" // appends all values since the mark
	persistent = "Q" // the object identified by the tuple before it
	setItems   = "u" // pairs since the mark
	stop       = "."
)

// pickle builds the pickle of a state_dict. It contains only names that torch.load allows with
// weights_only=True.
type pickle struct{ out []byte }

func (p *pickle) add(instructions ...string) {
	for _, i := range instructions {
		p.out = append(p.out, i...)
	}
}

func (p *pickle) global(module, name string) { p.add(global, module, "\n", name, "\n") }

func (p *pickle) text(s string) {
	p.add(unicode)
	p.out = binary.LittleEndian.AppendUint32(p.out, uint32(len(s)))
	p.add(s)
}

func (p *pickle) integer(v int64) {
	if v >= math.MinInt32 && v <= math.MaxInt32 {
		p.add(int4)
		p.out = binary.LittleEndian.AppendUint32(p.out, uint32(v))
		return
	}
	p.add(long1, "\x08")
	p.out = binary.LittleEndian.AppendUint64(p.out, uint64(v))
}

func (p *pickle) emptyDict() {
	p.global("collections", "OrderedDict")
	p.add(emptyTuple, reduce)
}

func (p *pickle) stateDict(tensors []Tensor) {
	p.add(proto)
	p.emptyDict()
	p.add(mark)
	for i, t := range tensors {
		p.text(t.Name)
		p.tensor(strconv.Itoa(i), t)
	}
	p.add(setItems, stop)
}

// storages maps types to the classes of storages in PyTorch. PyTorch does not have such classes for
// newer types: their storages are untyped.
var storages = map[safetensors.DType]string{
	"F64": "DoubleStorage", safetensors.F32: "FloatStorage", safetensors.F16: "HalfStorage", safetensors.BF16: "BFloat16Storage",
	safetensors.I64: "LongStorage", safetensors.I32: "IntStorage", "I16": "ShortStorage", "I8": "CharStorage",
	safetensors.U8: "ByteStorage", "BOOL": "BoolStorage",
}

// untyped maps types without a class of storages to their names in PyTorch.
var untyped = map[safetensors.DType]string{
	"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "U16": "uint16", "U32": "uint32", "U64": "uint64",
}

// tensor writes torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad,
// backward_hooks), or, with an untyped storage, _rebuild_tensor_v3, which has the type as its last
// argument.
func (p *pickle) tensor(key string, t Tensor) {
	dtype := cmp.Or(t.DType, safetensors.F32)
	class, typed := storages[dtype]
	length := t.len()
	if typed {
		p.global("torch._utils", "_rebuild_tensor_v2")
	} else {
		p.global("torch._utils", "_rebuild_tensor_v3")
		length *= t.width()
	}
	p.add(mark)
	p.add(mark)
	p.text("storage")
	if typed {
		p.global("torch", class)
	} else {
		p.global("torch.storage", "UntypedStorage")
	}
	p.text(key)
	p.text("cpu")
	p.integer(length)
	p.add(tuple, persistent)
	p.integer(0)
	p.add(mark)
	for _, d := range t.Shape {
		p.integer(int64(d))
	}
	p.add(tuple, mark)
	stride := t.len()
	for _, d := range t.Shape {
		stride /= int64(max(d, 1))
		p.integer(stride)
	}
	p.add(tuple, false1)
	p.emptyDict()
	if !typed {
		p.global("torch", untyped[dtype])
	}
	p.add(tuple, reduce)
}
