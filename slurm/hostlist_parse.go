package slurm

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxHostDigits is how many digits of a number count: 18 always fit 64 bits.
const maxHostDigits = 18

// hostParser reads a host list from left to right.
type hostParser struct {
	src string
	pos int
}

func (p *hostParser) skipSeparators() {
	for p.pos < len(p.src) && isHostSeparator(p.src[p.pos]) {
		p.pos++
	}
}

// item reads up to the next separator outside brackets.
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

// text reads the part of a name that stands outside brackets, perhaps nothing.
func (p *hostParser) text() (string, error) {
	start := p.pos
	for ; p.pos < len(p.src); p.pos++ {
		c := p.src[p.pos]
		if c == '[' || isHostSeparator(c) {
			break
		}
		if !isHostByte(c) {
			return "", p.errorAt(p.pos, p.here()+" cannot stand in a host name")
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
			return nil, p.errorAt(p.pos, `"]" is missing`)
		case p.src[p.pos] == ']':
			p.pos++
			return b, nil
		case p.src[p.pos] != ',':
			return nil, p.errorAt(p.pos, p.here()+` where "-", "," or "]" should be`)
		}
	}
}

// hostRange reads a number or two with "-" between them.
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
		return hostRange{}, p.errorAt(start, fmt.Sprintf("the range %s runs backwards", p.src[start:p.pos]))
	case r.hi-r.lo >= maxRangeHosts:
		return hostRange{}, p.errorAt(start, fmt.Sprintf("the range %s has more than %d hosts", p.src[start:p.pos], maxRangeHosts))
	}
	return r, nil
}

// number reads digits and returns their value and how many they are.
func (p *hostParser) number() (value uint64, width int, err error) {
	start := p.pos
	for p.pos < len(p.src) && isDigit(p.src[p.pos]) {
		p.pos++
	}
	digits := p.src[start:p.pos]
	switch {
	case digits == "" && p.pos == len(p.src):
		return 0, 0, p.errorAt(p.pos, "ends where a number should be")
	case digits == "":
		return 0, 0, p.errorAt(p.pos, p.here()+" where a number should be")
	case len(digits) > maxHostBytes || len(strings.TrimLeft(digits, "0")) > maxHostDigits:
		return 0, 0, p.errorAt(start, "a number with too many digits")
	}
	value, err = strconv.ParseUint(digits, 10, 64)
	return value, len(digits), err
}

// here quotes the character at the current position.
func (p *hostParser) here() string {
	_, size := utf8.DecodeRuneInString(p.src[p.pos:])
	return strconv.Quote(p.src[p.pos : p.pos+size])
}

// errorAt says what is wrong at a byte of the list, counted from 1.
func (p *hostParser) errorAt(pos int, what string) error {
	return fmt.Errorf("host list %s: column %d: %s", excerpt(p.src, pos), pos+1, what)
}

// excerpt quotes s, or what stands around pos where s is long.
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

// isHostByte accepts the letters of host names. Slurm takes nearly every byte;
// what is left out here is Slurm's own syntax ("{}" of list functions) and what
// a name cannot mean.
func isHostByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || isDigit(c) || c == '-' || c == '.' || c == '_'
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
