package unpickle

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// decoder is the machine that a pickle programs: a stack of values and a memo. Python's
// pickletools.py describes the instructions.
type decoder struct {
	in      []byte
	at      int
	allowed map[Class]bool
	stack   []any
	marks   []int // heights of the stack
	memo    []any
	values  int // pushed until now
	encoded int // bytes of the strings that encode has converted
}

var (
	errEnd       = errors.New("unexpected end of data")
	errUnderflow = errors.New("the stack is empty")
)

// step executes one instruction. It reports whether it was the last one.
func (d *decoder) step() (done bool, err error) {
	op, err := d.take(1)
	if err != nil {
		return false, err
	}
	switch op[0] {
	case '\x80': // PROTO
		return false, d.protocol()
	case '\x95': // FRAME
		_, err := d.take(8)
		return false, err
	case '.': // STOP
		if len(d.stack) != 1 || len(d.marks) > 0 {
			return false, fmt.Errorf("%d values at the end, want 1", len(d.stack))
		}
		return true, nil
	case '(': // MARK
		d.marks = append(d.marks, len(d.stack))
		return false, d.count()
	case 'N':
		return false, d.push(nil)
	case '\x88':
		return false, d.push(true)
	case '\x89':
		return false, d.push(false)
	case ')':
		return false, d.push(Tuple(nil))
	case ']':
		return false, d.push(&List{})
	case '}':
		return false, d.push(&Dict{})
	case 'K', 'M', 'J', '\x8a', 'G':
		return false, d.number(op[0])
	case '\x8c', 'X', '\x8d', 'C', 'B', '\x8e':
		return false, d.text(op[0])
	case '\x85', '\x86', '\x87', 't':
		return false, d.tuple(op[0])
	case 'a', 'e', 's', 'u':
		return false, d.fill(op[0])
	case '\x94', 'q', 'r', 'h', 'j':
		return false, d.recall(op[0])
	case 'c', '\x93':
		return false, d.class(op[0])
	case 'R', '\x81':
		return false, d.call()
	case 'b': // BUILD
		return false, d.build()
	case 'Q': // BINPERSID
		id, err := d.pop()
		if err != nil {
			return false, err
		}
		return false, d.push(&Reference{id})
	}
	return false, fmt.Errorf("instruction %q is not supported", op)
}

// take returns the next n bytes.
func (d *decoder) take(n int) ([]byte, error) {
	if n < 0 || n > len(d.in)-d.at {
		return nil, errEnd
	}
	d.at += n
	return d.in[d.at-n : d.at], nil
}

// size reads an unsigned number of n bytes.
func (d *decoder) size(n int) (int, error) {
	raw, err := d.take(n)
	if err != nil {
		return 0, err
	}
	v := uint64(0)
	for i, b := range raw {
		v |= uint64(b) << (8 * i)
	}
	if v > math.MaxInt32 {
		return 0, fmt.Errorf("a size of %d", v)
	}
	return int(v), nil
}

func (d *decoder) count() error {
	if d.values++; d.values > maxValues {
		return fmt.Errorf("more than %d values", maxValues)
	}
	return nil
}

func (d *decoder) push(v any) error {
	d.stack = append(d.stack, v)
	return d.count()
}

func (d *decoder) pop() (any, error) {
	last := len(d.stack) - 1
	if last < 0 || len(d.marks) > 0 && last < d.marks[len(d.marks)-1] {
		return nil, errUnderflow
	}
	v := d.stack[last]
	d.stack = d.stack[:last]
	return v, nil
}

// popMark removes and returns the values since the last mark. They are valid until the next push.
func (d *decoder) popMark() ([]any, error) {
	last := len(d.marks) - 1
	if last < 0 {
		return nil, errors.New("no mark")
	}
	from := d.marks[last]
	d.marks = d.marks[:last]
	values := d.stack[from:]
	d.stack = d.stack[:from]
	return values, nil
}

func (d *decoder) protocol() error {
	v, err := d.size(1)
	if err == nil && (v < 2 || v > 5) {
		return fmt.Errorf("protocol %d, want 2 to 5", v)
	}
	return err
}

func (d *decoder) number(op byte) error {
	width := map[byte]int{'K': 1, 'M': 2, 'J': 4, 'G': 8}[op]
	if op == '\x8a' { // LONG1: a size, then two's complement
		n, err := d.size(1)
		if err != nil {
			return err
		}
		if n > 8 {
			return fmt.Errorf("an integer of %d bytes, want at most 8", n)
		}
		width = n
	}
	raw, err := d.take(width)
	if err != nil {
		return err
	}
	if op == 'G' {
		return d.push(math.Float64frombits(binary.BigEndian.Uint64(raw)))
	}
	var wide [8]byte
	copy(wide[:], raw)
	v := int64(binary.LittleEndian.Uint64(wide[:]))
	if unused := 64 - 8*width; (op == 'J' || op == '\x8a') && unused < 64 {
		v = v << unused >> unused // extend the sign
	}
	return d.push(v)
}

// text reads a string or bytes.
func (d *decoder) text(op byte) error {
	n, err := d.size(map[byte]int{'\x8c': 1, 'X': 4, '\x8d': 8, 'C': 1, 'B': 4, '\x8e': 8}[op])
	if err != nil {
		return err
	}
	raw, err := d.take(n)
	if err != nil {
		return err
	}
	if op == 'C' || op == 'B' || op == '\x8e' {
		return d.push(bytes.Clone(raw))
	}
	if !utf8.Valid(raw) {
		return errors.New("a string is not valid UTF-8")
	}
	return d.push(string(raw))
}

func (d *decoder) tuple(op byte) error {
	if op == 't' {
		values, err := d.popMark()
		if err != nil {
			return err
		}
		return d.push(append(Tuple(nil), values...))
	}
	t := make(Tuple, op-'\x84')
	for i := len(t) - 1; i >= 0; i-- {
		v, err := d.pop()
		if err != nil {
			return err
		}
		t[i] = v
	}
	return d.push(t)
}

// fill adds values to the list, or pairs to the dict, below them.
func (d *decoder) fill(op byte) error {
	var values []any
	var err error
	switch op {
	case 'e', 'u':
		values, err = d.popMark()
	case 'a':
		values, err = d.popLast(1)
	case 's':
		values, err = d.popLast(2)
	}
	if err != nil {
		return err
	}
	if len(d.stack) == 0 {
		return errUnderflow
	}
	switch to := d.stack[len(d.stack)-1].(type) {
	case *List:
		if op == 'a' || op == 'e' {
			to.Items = append(to.Items, values...)
			return nil
		}
	case *Dict:
		if (op == 's' || op == 'u') && len(values)%2 == 0 {
			for i := 0; i < len(values); i += 2 {
				to.Keys = append(to.Keys, values[i])
				to.Values = append(to.Values, values[i+1])
			}
			return nil
		}
	}
	return fmt.Errorf("instruction %q does not fit the value before it", op)
}

// popLast removes and returns the last n values, which are valid until the next push.
func (d *decoder) popLast(n int) ([]any, error) {
	from := len(d.stack) - n
	if from < 0 || len(d.marks) > 0 && from < d.marks[len(d.marks)-1] {
		return nil, errUnderflow
	}
	values := d.stack[from:]
	d.stack = d.stack[:from]
	return values, nil
}

// recall stores the last value in the memo, or pushes a value from there.
func (d *decoder) recall(op byte) error {
	i := len(d.memo)
	if op != '\x94' {
		var err error
		if i, err = d.size(map[byte]int{'q': 1, 'r': 4, 'h': 1, 'j': 4}[op]); err != nil {
			return err
		}
	}
	if op == 'h' || op == 'j' {
		if i >= len(d.memo) {
			return fmt.Errorf("the memo has %d values, not value %d", len(d.memo), i)
		}
		return d.push(d.memo[i])
	}
	if len(d.stack) == 0 {
		return errUnderflow
	}
	v := d.stack[len(d.stack)-1]
	switch {
	case i < len(d.memo):
		d.memo[i] = v
	case i == len(d.memo):
		d.memo = append(d.memo, v)
	default:
		return fmt.Errorf("value %d of the memo, want value %d next", i, len(d.memo))
	}
	return d.count()
}

// class reads a class, as two lines or from two strings on the stack.
func (d *decoder) class(op byte) error {
	var names [2]string
	if op == 'c' {
		for i := range names {
			end := bytes.IndexByte(d.in[d.at:], '\n')
			if end < 0 {
				return errEnd
			}
			names[i] = string(d.in[d.at : d.at+end])
			d.at += end + 1
		}
	} else {
		values, err := d.popLast(2)
		if err != nil {
			return err
		}
		for i, v := range values {
			s, ok := v.(string)
			if !ok {
				return errors.New("the name of a class is not a string")
			}
			names[i] = s
		}
	}
	// Python 3 writes the names of Python 2 in protocol 2.
	c := Class(strings.Replace(names[0], "__builtin__", "builtins", 1) + "." + names[1])
	if c != orderedDict && c != encode && !d.allowed[c] {
		if len(c) > 100 {
			c = c[:100]
		}
		return &ClassError{c}
	}
	return d.push(c)
}

// call creates an object from a class and a tuple of arguments.
func (d *decoder) call() error {
	values, err := d.popLast(2)
	if err != nil {
		return err
	}
	class, isClass := values[0].(Class)
	args, isTuple := values[1].(Tuple)
	if !isClass || !isTuple {
		return errors.New("a call without a class or without a tuple of arguments")
	}
	switch class {
	case orderedDict:
		if len(args) > 0 {
			return fmt.Errorf("%s with arguments is not supported", class)
		}
		return d.push(&Dict{})
	case encode:
		return d.encode(args)
	}
	return d.push(&Object{Class: class, Args: args})
}

// encode pushes the bytes of a string of Latin-1 characters.
func (d *decoder) encode(args Tuple) error {
	if len(args) == 2 && args[1] == any("latin1") {
		if s, ok := args[0].(string); ok {
			// The memo can repeat a string. Python writes a string for each bytes object.
			if d.encoded += len(s); d.encoded > len(d.in) {
				return errors.New("one string is used for several bytes objects")
			}
			raw := make([]byte, 0, len(s))
			for _, r := range s {
				if r > 0xff {
					return errors.New("bytes with a character that is not in Latin-1")
				}
				raw = append(raw, byte(r))
			}
			return d.push(raw)
		}
	}
	return fmt.Errorf("%s with these arguments is not supported", encode)
}

// build sets the state of an object. Attributes of an OrderedDict are not part of its content.
func (d *decoder) build() error {
	state, err := d.pop()
	if err != nil {
		return err
	}
	if len(d.stack) == 0 {
		return errUnderflow
	}
	switch o := d.stack[len(d.stack)-1].(type) {
	case *Object:
		o.State = state
		return nil
	case *Dict:
		return nil
	}
	return errors.New("a state without an object")
}
