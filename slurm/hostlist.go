package slurm

import (
	"fmt"
	"slices"
	"strconv"
)

// Limits on what a host list may expand to, so that a short hostile list cannot
// fill the memory: at most 64 MiB of names.
const (
	maxRangeHosts = 64 * 1024  // Slurm's own limit for one range
	maxHosts      = 256 * 1024 // of a whole list; Slurm itself stops at 64K nodes
	maxHostBytes  = 255        // of one name, as in the DNS
)

// ExpandHosts returns the names that a Slurm host list stands for, as
// `scontrol show hostnames` does, without needing scontrol:
//
//	list   = item { separator item }        separator: comma, space, tab, newline
//	item   = name | { text "[" range { "," range } "]" } text
//	range  = number [ "-" number ]
//
// The width of the first number of a range, leading zeros included, pads the
// others. Order and duplicates are kept, so the n-th name is node n of a step.
// With several brackets the last one varies fastest, then the others from left
// to right, which is Slurm's order and not the lexicographic one. Text after the
// last bracket is understood as Slurm does from 23.11 on.
//
// An empty list has no names. Every other text is refused with the column at
// which it stops being a host list, including forms that some versions of Slurm
// let pass by accident ("n[1-]", "n[1, 2]", "n]").
func ExpandHosts(list string) ([]string, error) {
	p := hostParser{src: list}
	var hosts []string
	for {
		p.skipSeparators()
		if p.pos == len(p.src) {
			return hosts, nil
		}
		start := p.pos
		item, err := p.item()
		if err != nil {
			return nil, err
		}
		n, err := item.count()
		if err == nil && len(hosts)+n > maxHosts {
			err = fmt.Errorf("more than %d hosts in all", maxHosts)
		}
		if err != nil {
			return nil, p.errorAt(start, err.Error())
		}
		hosts = item.appendHosts(hosts, n)
	}
}

// hostItem is one item of a host list: texts[i] stands before brackets[i], and
// one text more stands at the end.
type hostItem struct {
	texts    []string
	brackets []hostBracket
}

type hostBracket []hostRange

// hostRange is the numbers from lo to hi, each at least width digits wide.
type hostRange struct {
	lo, hi uint64
	width  int
}

func (b hostBracket) count() int {
	n := 0
	for _, r := range b {
		n += int(r.hi - r.lo + 1) // a range holds at most maxRangeHosts
	}
	return n
}

// count is the number of names that the item stands for; an error if they are
// too many or too long.
func (it hostItem) count() (int, error) {
	n, longest := 1, 0
	for _, text := range it.texts {
		longest += len(text)
	}
	for _, b := range it.brackets {
		// Both factors are at most maxHosts, so the product fits.
		if c := b.count(); c > maxHosts || n*c > maxHosts {
			return 0, fmt.Errorf("more than %d hosts in one item", maxHosts)
		} else {
			n *= c
		}
		widest := 0
		for _, r := range b {
			widest = max(widest, len(appendPadded(nil, r.hi, r.width)))
		}
		longest += widest
	}
	if longest > maxHostBytes {
		return 0, fmt.Errorf("a name of %d bytes: at most %d are allowed", longest, maxHostBytes)
	}
	return n, nil
}

// appendHosts appends the item's n names in Slurm's order. They share one piece
// of memory.
func (it hostItem) appendHosts(hosts []string, n int) []string {
	if len(it.brackets) == 0 {
		return append(hosts, it.texts[0])
	}
	numbers := make([][]string, len(it.brackets))
	for i, b := range it.brackets {
		numbers[i] = b.numbers()
	}
	// order lists the brackets from the fastest to the slowest.
	last := len(it.brackets) - 1
	order := []int{last}
	for i := range last {
		order = append(order, i)
	}
	at := make([]int, len(it.brackets))
	var names []byte
	ends := make([]int, 0, n)
	for range n {
		for i, text := range it.texts {
			names = append(names, text...)
			if i < len(numbers) {
				names = append(names, numbers[i][at[i]]...)
			}
		}
		ends = append(ends, len(names))
		for _, i := range order {
			if at[i]++; at[i] < len(numbers[i]) {
				break
			}
			at[i] = 0
		}
	}
	return appendCut(slices.Grow(hosts, n), names, ends)
}

// numbers writes the bracket out.
func (b hostBracket) numbers() []string {
	n := b.count()
	var digits []byte
	ends := make([]int, 0, n)
	for _, r := range b {
		for n := r.lo; n <= r.hi; n++ {
			digits = appendPadded(digits, n, r.width)
			ends = append(ends, len(digits))
		}
	}
	return appendCut(make([]string, 0, n), digits, ends)
}

// appendCut appends the pieces of a text that end where ends says.
func appendCut(to []string, text []byte, ends []int) []string {
	whole, start := string(text), 0
	for _, end := range ends {
		to = append(to, whole[start:end])
		start = end
	}
	return to
}

// appendPadded appends n in decimal, with zeros before it up to the width.
func appendPadded(to []byte, n uint64, width int) []byte {
	var room [20]byte
	digits := strconv.AppendUint(room[:0], n, 10)
	for range width - len(digits) {
		to = append(to, '0')
	}
	return append(to, digits...)
}
