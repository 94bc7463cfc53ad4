package torchfile

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
)

// Optimizer is the state of an optimizer with one group of parameters.
type Optimizer struct {
	// Names are those of the parameters, in the order of the model's parameters(): by
	// their places in it PyTorch knows them.
	Names []string
	// State has what is kept of each parameter, under the names that PyTorch gives it
	// ("exp_avg"). None before the first step.
	State [][]Tensor
	// Options are the group's settings.
	Options []Option
}

// Option is a setting of an optimizer: a float64, a bool, or a pair [2]float64.
type Option struct {
	Name  string
	Value any
}

// WriteOptimizer writes what the state_dict() of an optimizer is in PyTorch.
func WriteOptimizer(w io.Writer, o Optimizer) error {
	if len(o.State) > 0 && len(o.State) != len(o.Names) {
		return fmt.Errorf("the state of %d parameters, of %d", len(o.State), len(o.Names))
	}
	p := pickle{}
	p.add(proto, plainDict, mark)
	p.text("state")
	p.add(plainDict, mark)
	at := 0
	for i, of := range o.State {
		p.integer(int64(i))
		p.add(plainDict, mark)
		for _, t := range of {
			p.text(t.Name)
			p.tensor(strconv.Itoa(at), t)
			at++
		}
		p.add(setItems)
	}
	p.add(setItems)
	p.text("param_groups")
	p.add(plainList, mark, plainDict, mark)
	for _, option := range o.Options {
		p.text(option.Name)
		p.value(option.Value)
	}
	p.text("param_names")
	p.add(plainList, mark)
	for _, n := range o.Names {
		p.text(n)
	}
	p.add(appends)
	p.text("params")
	p.add(plainList, mark)
	for i := range o.Names {
		p.integer(int64(i))
	}
	p.add(appends, setItems, appends, setItems, stop)
	return write(w, p, slices.Concat(o.State...))
}

// value is that of an option.
func (p *pickle) value(v any) {
	switch v := v.(type) {
	case float64:
		p.add(float8)
		p.out = binary.BigEndian.AppendUint64(p.out, math.Float64bits(v))
	case bool:
		p.add(map[bool]string{true: true1, false: false1}[v])
	case [2]float64:
		p.add(mark)
		p.value(v[0])
		p.value(v[1])
		p.add(tuple)
	default:
		panic(fmt.Sprintf("torchfile: an option of type %T", v))
	}
}
