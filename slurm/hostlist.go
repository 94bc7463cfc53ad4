package slurm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of node lists. They bound the memory of names to 64 MiB, because a short list can
// expand to many names.
const (
	maxRangeHosts = 64 * 1024  // hosts of one range; Slurm's own limit
	maxHosts      = 256 * 1024 // hosts of a list; Slurm supports 64K nodes
	maxHostBytes  = 255        // bytes of a name, as in DNS
	maxHostDigits = 18         // significant digits of a number; 18 digits fit into 64 bits
)

// ExpandHosts returns the names in a Slurm node list, like `scontrol show hostnames`:
//
//	list   = item { separator item }        separator: comma, space, tab, newline
//	item   = name | { text "[" range { "," range } "]" } text
//	range  = number [ "-" number ]
//
// The width of the first number of a range, including leading zeros, pads the others.
// ExpandHosts preserves order and duplicates, so the n-th name is node n of a step. With
// several brackets, the last one varies fastest, then the others from left to right. This
// is Slurm's order; it is not lexicographic. Text after the last bracket has the meaning
// that it has since Slurm 23.11.
//
// An empty list has no names. For any other invalid list, the error contains the column.
// This includes forms that some versions of Slurm accept by accident ("n[1-]", "n[1, 2]",
// "n]").
func ExpandHosts(list string) ([]string, error) {
	p := hostParser{src: list}
	var hosts []string
	for {
		item, n, err := p.next(len(hosts))
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return hosts, nil
		}
		hosts = item.appendHosts(hosts, n)
	}
}

// HostAt returns the name with an index in a Slurm node list, like the element of [ExpandHosts]. It
// returns false if the list has no such name or is invalid up to it. It does not expand the list, which
// may belong to another user and may be short but have many names.
func HostAt(list string, index int) (string, bool) {
	p := hostParser{src: list}
	for first := 0; index >= 0; {
		item, n, err := p.next(first)
		if n == 0 || err != nil {
			return "", false
		}
		if index < first+n {
			return item.host(index - first), true
		}
		first += n
	}
	return "", false
}

// next returns the next item of the list and the number of its names, which is 0 at the end
// of the list. The argument before is the number of names before the item.
func (p *hostParser) next(before int) (item hostItem, n int, err error) {
	p.skipSeparators()
	if p.pos == len(p.src) {
		return item, 0, nil
	}
	start := p.pos
	if item, err = p.item(); err != nil {
		return item, 0, err
	}
	n, err = item.count()
	if err == nil && before+n > maxHosts {
		err = fmt.Errorf("more than %d hosts", maxHosts)
	}
	if err != nil {
		return item, 0, p.errorAt(start, err.Error())
	}
	return item, n, nil
}

// host returns the name with an index, in the order of appendHosts.
func (it hostItem) host(index int) string {
	last := len(it.brackets) - 1
	numbers := make([]string, len(it.brackets))
	for k := range it.brackets {
		i := k - 1 // the last bracket is the fastest, then the others from the left
		if k == 0 {
			i = last
		}
		b := it.brackets[i]
		numbers[i] = b.number(index % b.count())
		index /= b.count()
	}
	var name strings.Builder
	for i, text := range it.texts {
		name.WriteString(text)
		if i < len(numbers) {
			name.WriteString(numbers[i])
		}
	}
	return name.String()
}

// number returns the number with an index, with its padding.
func (b hostBracket) number(index int) string {
	for _, r := range b {
		if n := int(r.hi-r.lo) + 1; index >= n {
			index -= n
			continue
		}
		return string(appendPadded(nil, r.lo+uint64(index), r.width))
	}
	return ""
}

// A hostItem is one item of a node list. texts[i] precedes brackets[i]. The last text
// follows the last bracket.
type hostItem struct {
	texts    []string
	brackets []hostBracket
}

type hostBracket []hostRange

// A hostRange contains the numbers from lo to hi with at least width digits.
type hostRange struct {
	lo, hi uint64
	width  int
}

// count returns how many numbers the bracket contains.
func (b hostBracket) count() int {
	n := 0
	for _, r := range b {
		n += int(r.hi - r.lo + 1) // a range has at most maxRangeHosts
	}
	return n
}

// count returns how many names the item contains. It returns an error if there are too
// many or if they are too long.
func (it hostItem) count() (int, error) {
	n, longest := 1, 0
	for _, text := range it.texts {
		longest += len(text)
	}
	for _, b := range it.brackets {
		c := b.count()
		// Both factors are at most maxHosts, so the product does not overflow.
		if c > maxHosts || n*c > maxHosts {
			return 0, fmt.Errorf("more than %d hosts in one item", maxHosts)
		}
		n *= c
		widest := 0
		for _, r := range b {
			widest = max(widest, len(appendPadded(nil, r.hi, r.width)))
		}
		longest += widest
	}
	if longest > maxHostBytes {
		return 0, fmt.Errorf("name of %d bytes, maximum %d", longest, maxHostBytes)
	}
	return n, nil
}

// appendHosts appends the item's n names in Slurm's order. The names share one string.
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
	return appendSubstrings(slices.Grow(hosts, n), names, ends)
}

// numbers returns the numbers of the bracket as text.
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
	return appendSubstrings(make([]string, 0, n), digits, ends)
}

// appendSubstrings appends consecutive substrings of text, which end at ends.
func appendSubstrings(list []string, text []byte, ends []int) []string {
	all, start := string(text), 0
	for _, end := range ends {
		list = append(list, all[start:end])
		start = end
	}
	return list
}

// appendPadded appends n in decimal, padded with zeros to width.
func appendPadded(b []byte, n uint64, width int) []byte {
	var buf [20]byte
	digits := strconv.AppendUint(buf[:0], n, 10)
	for range width - len(digits) {
		b = append(b, '0')
	}
	return append(b, digits...)
}

// A hostParser reads a node list from left to right.
type hostParser struct {
	src string
	pos int
}

func (p *hostParser) skipSeparators() {
	for p.pos < len(p.src) && isHostSeparator(p.src[p.pos]) {
		p.pos++
	}
}

// item reads up to the next separator outside of brackets.
func (p *hostParser) item() (hostItem, error) {
	var it hostItem
	for {
		text, err := p.text()
		if err != nil {
			return hostItem{}, err
		}
		it.texts = append(it.texts, text)
		if p.pos == len(p.src) || p.src[p.pos] != '[' {
			return it, nil
		}
		if len(it.brackets) == maxHostBytes {
			return hostItem{}, p.errorAt(p.pos, fmt.Sprintf("more than %d brackets in one name", maxHostBytes))
		}
		b, err := p.bracket()
		if err != nil {
			return hostItem{}, err
		}
		it.brackets = append(it.brackets, b)
	}
}

// text reads the part of a name up to the next bracket or separator. It may be empty.
func (p *hostParser) text() (string, error) {
	start := p.pos
	for ; p.pos < len(p.src); p.pos++ {
		c := p.src[p.pos]
		if c == '[' || isHostSeparator(c) {
			break
		}
		if !isHostByte(c) {
			return "", p.errorAt(p.pos, "invalid character "+p.quoteNext())
		}
	}
	return p.src[start:p.pos], nil
}

// bracket reads "[" ranges "]".
func (p *hostParser) bracket() (hostBracket, error) {
	var b hostBracket
	start, total := p.pos, 0
	for {
		p.pos++ // "[" or ","
		r, err := p.hostRange()
		if err != nil {
			return nil, err
		}
		if total += int(r.hi-r.lo) + 1; total > maxHosts {
			return nil, p.errorAt(start, fmt.Sprintf("more than %d hosts in one bracket", maxHosts))
		}
		b = append(b, r)
		switch {
		case p.pos == len(p.src):
			return nil, p.errorAt(p.pos, `missing "]"`)
		case p.src[p.pos] == ']':
			p.pos++
			return b, nil
		case p.src[p.pos] != ',':
			return nil, p.errorAt(p.pos, p.quoteNext()+` instead of "-", ",", or "]"`)
		}
	}
}

// hostRange reads a number, or two numbers with "-" between them.
func (p *hostParser) hostRange() (hostRange, error) {
	start := p.pos
	lo, width, err := p.number()
	if err != nil {
		return hostRange{}, err
	}
	r := hostRange{lo: lo, hi: lo, width: width}
	if p.pos < len(p.src) && p.src[p.pos] == '-' {
		p.pos++
		if r.hi, _, err = p.number(); err != nil {
			return hostRange{}, err
		}
	}
	switch {
	case r.hi < r.lo:
		return hostRange{}, p.errorAt(start, fmt.Sprintf("range %s is reversed", p.src[start:p.pos]))
	case r.hi-r.lo >= maxRangeHosts:
		return hostRange{}, p.errorAt(start, fmt.Sprintf("range %s has more than %d hosts", p.src[start:p.pos], maxRangeHosts))
	}
	return r, nil
}

// number reads digits. It returns their value and their count.
func (p *hostParser) number() (value uint64, width int, err error) {
	start := p.pos
	for p.pos < len(p.src) && isDigit(p.src[p.pos]) {
		p.pos++
	}
	digits := p.src[start:p.pos]
	switch {
	case digits == "" && p.pos == len(p.src):
		return 0, 0, p.errorAt(p.pos, "missing number")
	case digits == "":
		return 0, 0, p.errorAt(p.pos, p.quoteNext()+" instead of a number")
	case len(digits) > maxHostBytes || len(strings.TrimLeft(digits, "0")) > maxHostDigits:
		return 0, 0, p.errorAt(start, "number with too many digits")
	}
	value, err = strconv.ParseUint(digits, 10, 64)
	return value, len(digits), err
}

// quoteNext quotes the character at the current position.
func (p *hostParser) quoteNext() string {
	_, size := utf8.DecodeRuneInString(p.src[p.pos:])
	return strconv.Quote(p.src[p.pos : p.pos+size])
}

// errorAt returns an error with the column of pos, counted in bytes from 1.
func (p *hostParser) errorAt(pos int, what string) error {
	return fmt.Errorf("node list %s: column %d: %s", excerpt(p.src, pos), pos+1, what)
}

// excerpt quotes s. If s is long, it quotes the part around pos.
func excerpt(s string, pos int) string {
	const around = 40
	from, to := max(0, pos-around), min(len(s), pos+around)
	before, after := "", ""
	if from > 0 {
		before = "..."
	}
	if to < len(s) {
		after = "..."
	}
	return before + strconv.Quote(s[from:to]) + after
}

func isHostSeparator(c byte) bool {
	return c == ',' || c == ' ' || c == '\t' || c == '\n'
}

// isHostByte reports whether c is a character of host names. Slurm accepts nearly every
// byte. This package rejects Slurm's own syntax ("{}" of list functions) and bytes that
// are not valid in a name.
func isHostByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || isDigit(c) || c == '-' || c == '.' || c == '_'
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// FoldHosts returns names as a node list, like `scontrol show hostlist`. Adjacent names
// that differ only in the number at their end share a bracket. FoldHosts preserves order
// and duplicates. [ExpandHosts] returns the same names for its result.
func FoldHosts(hosts []string) string {
	var out strings.Builder
	for i := 0; i < len(hosts); {
		if i > 0 {
			out.WriteByte(',')
		}
		prefix, digits := splitNumber(hosts[i])
		var ranges []hostRange
		next := i
		for ; next < len(hosts) && digits != ""; next++ {
			p, d := splitNumber(hosts[next])
			if d == "" || p != prefix {
				break
			}
			ranges = appendNumber(ranges, d)
		}
		if next <= i+1 { // a single name
			out.WriteString(hosts[i])
			i++
			continue
		}
		out.WriteString(prefix)
		out.WriteByte('[')
		writeRanges(&out, ranges)
		out.WriteByte(']')
		i = next
	}
	return out.String()
}

// appendNumber extends the last range by a number, or appends a range.
func appendNumber(ranges []hostRange, digits string) []hostRange {
	n, _ := strconv.ParseUint(digits, 10, 64) // at most maxHostDigits
	if len(ranges) > 0 {
		r := &ranges[len(ranges)-1]
		if n == r.hi+1 && n-r.lo < maxRangeHosts && string(appendPadded(nil, n, r.width)) == digits {
			r.hi = n
			return ranges
		}
	}
	return append(ranges, hostRange{lo: n, hi: n, width: len(digits)})
}

func writeRanges(out *strings.Builder, ranges []hostRange) {
	for i, r := range ranges {
		if i > 0 {
			out.WriteByte(',')
		}
		out.Write(appendPadded(nil, r.lo, r.width))
		if r.hi > r.lo {
			out.WriteByte('-')
			out.Write(appendPadded(nil, r.hi, r.width))
		}
	}
}

// splitNumber splits the digits from the end of a name. If there are more than
// maxHostDigits, digits is empty.
func splitNumber(host string) (prefix, digits string) {
	prefix = strings.TrimRight(host, "0123456789")
	digits = host[len(prefix):]
	if len(digits) > maxHostDigits {
		return host, ""
	}
	return prefix, digits
}
