package torchfile

import (
	"fmt"
	"io"
	"slices"
	"strconv"
)

// Optimizer is the state of an optimizer.
type Optimizer struct {
	// Groups are the parameter groups. PyTorch identifies a parameter by its position in the
	// concatenation of all groups.
	Groups []Group
	// State holds the tensors of each parameter, in the order of the groups, with PyTorch's names,
	// such as "exp_avg". It is empty before the first step.
	State [][]Tensor
}

// Group is a parameter group: parameters that share their settings.
type Group struct {
	Names   []string // names of the parameters
	Options []Option // settings
}

// Option is a setting of an optimizer: a float64, a bool, or a Tuple of float64.
type Option struct {
	Name  string
	Value any
}

// WriteOptimizer writes the state_dict() of an optimizer in PyTorch's format.
func WriteOptimizer(w io.Writer, o Optimizer) error {
	params := 0
	for _, g := range o.Groups {
		params += len(g.Names)
	}
	if len(o.State) > 0 && len(o.State) != params {
		return fmt.Errorf("state of %d parameters, want %d", len(o.State), params)
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
	p.add(plainList, mark)
	first := 0
	for _, g := range o.Groups {
		p.group(g, first)
		first += len(g.Names)
	}
	p.add(appends, setItems, stop)
	return write(w, p, slices.Concat(o.State...))
}

// group writes a parameter group whose first parameter has the given position.
func (p *pickle) group(g Group, first int) {
	p.add(plainDict, mark)
	for _, option := range g.Options {
		p.text(option.Name)
		p.value(option.Value, nil)
	}
	p.text("param_names")
	p.add(plainList, mark)
	for _, n := range g.Names {
		p.text(n)
	}
	p.add(appends)
	p.text("params")
	p.add(plainList, mark)
	for i := range g.Names {
		p.integer(int64(first + i))
	}
	p.add(appends, setItems)
}
