package torchfile

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/ddpbatch/ddpbatch/trainer/unpickle"
)

// WriteValue writes a value of Python: nil, a bool, int64, float64, string, []byte, unpickle.Tuple,
// *unpickle.List, *unpickle.Dict, or Tensor. It panics for other types. A value must not contain
// itself.
func WriteValue(w io.Writer, v any) error {
	var p pickle
	var tensors []Tensor
	p.add(proto)
	p.value(v, &tensors)
	p.add(stop)
	return write(w, p, tensors)
}

// value writes a value and adds the tensors in it to tensors.
func (p *pickle) value(v any, tensors *[]Tensor) {
	switch v := v.(type) {
	case nil:
		p.add(none)
	case bool:
		p.add(map[bool]string{true: true1, false: false1}[v])
	case int64:
		p.integer(v)
	case float64:
		p.add(float8)
		p.out = binary.BigEndian.AppendUint64(p.out, math.Float64bits(v))
	case string:
		p.text(v)
	case []byte: // protocol 2 does not have bytes
		runes := make([]rune, len(v))
		for i, b := range v {
			runes[i] = rune(b)
		}
		p.global("_codecs", "encode")
		p.add(mark)
		p.text(string(runes))
		p.text("latin1")
		p.add(tuple, reduce)
	case unpickle.Tuple:
		p.add(mark)
		for _, e := range v {
			p.value(e, tensors)
		}
		p.add(tuple)
	case *unpickle.List:
		p.add(plainList, mark)
		for _, e := range v.Items {
			p.value(e, tensors)
		}
		p.add(appends)
	case *unpickle.Dict:
		p.add(plainDict, mark)
		for i, k := range v.Keys {
			p.value(k, tensors)
			p.value(v.Values[i], tensors)
		}
		p.add(setItems)
	case Tensor:
		p.tensor(strconv.Itoa(len(*tensors)), v)
		*tensors = append(*tensors, v)
	default:
		panic(fmt.Sprintf("torchfile: a value of type %T", v))
	}
}
