package symptoms

import (
	"sync"
)

// automaton finds the words of all symptoms in one pass over a line (Aho and Corasick,
// "Efficient String Matching", 1975). It needs one table lookup per byte. Regular expressions
// run only on lines that contain one of their words, so the package can scan logs of millions
// of lines quickly.
type automaton struct {
	class   [256]uint8 // class of each byte; both cases of a letter share a class
	classes int
	next    []uint32 // next state, by state + class; a state is the index of its first entry
	sets    []rowSet // by state / classes: rows with a word that ends in this state
	always  rowSet   // rows without words
}

// wordEnds marks an entry of automaton.next whose target state completes at least one word.
const wordEnds = 1 << 31

// rowSet is a set of rows of the table.
type rowSet [2]uint64

func (s *rowSet) add(row int)           { s[row/64] |= 1 << (row % 64) }
func (s *rowSet) addAll(o rowSet)       { s[0] |= o[0]; s[1] |= o[1] }
func (s *rowSet) contains(row int) bool { return s[row/64]&(1<<(row%64)) != 0 }
func (s *rowSet) isEmpty() bool         { return s[0]|s[1] == 0 }

// scanner returns the automaton of the table. It is built on first use, because most commands
// read no log.
var scanner = sync.OnceValue(func() *automaton {
	words := make([][]string, len(table))
	for i := range table {
		words[i] = requiredWords(table[i].expression)
	}
	return newAutomaton(words)
})

// newAutomaton returns the automaton for rows with the given words. It supports at most 128
// rows.
func newAutomaton(rows [][]string) *automaton {
	a := &automaton{classes: 1} // class 0: bytes that occur in no word
	for _, words := range rows {
		for _, w := range words {
			for _, b := range []byte(w) {
				if a.class[b] == 0 {
					a.class[b] = uint8(a.classes)
					a.classes++
				}
			}
		}
	}
	for b := byte('A'); b <= 'Z'; b++ {
		a.class[b] = a.class[b|0x20]
	}
	a.addState()
	for row, words := range rows {
		if len(words) == 0 {
			a.always.add(row)
		}
		for _, w := range words {
			a.addWord(w, row)
		}
	}
	a.link()
	return a
}

func (a *automaton) addState() uint32 {
	state := uint32(len(a.next))
	a.next = append(a.next, make([]uint32, a.classes)...)
	a.sets = append(a.sets, rowSet{})
	return state
}

// addWord adds a word to the trie of all words. State 0 is the root.
func (a *automaton) addWord(word string, row int) {
	state := uint32(0)
	for _, b := range []byte(word) {
		at := state + uint32(a.class[b])
		if a.next[at] == 0 {
			to := a.addState()
			a.next[at] = to
		}
		state = a.next[at]
	}
	a.setOf(state).add(row)
}

func (a *automaton) setOf(state uint32) *rowSet { return &a.sets[int(state)/a.classes] }

// link converts the trie to an automaton. If a state has no child for a byte, it gets the
// transition of its longest proper suffix. Breadth-first order guarantees that the suffix,
// which is shorter, is already complete.
func (a *automaton) link() {
	suffix := make([]uint32, len(a.sets)) // by state / classes
	queue := []uint32{0}
	for len(queue) > 0 {
		state := queue[0]
		queue = queue[1:]
		back := suffix[int(state)/a.classes]
		if state != 0 {
			a.setOf(state).addAll(*a.setOf(back))
		}
		for c := range uint32(a.classes) {
			child := a.next[state+c]
			switch {
			case child != 0:
				if state != 0 {
					suffix[int(child)/a.classes] = a.next[back+c]
				}
				queue = append(queue, child)
			case state != 0:
				a.next[state+c] = a.next[back+c]
			}
		}
	}
	for i, to := range a.next {
		if !a.setOf(to).isEmpty() {
			a.next[i] |= wordEnds
		}
	}
}

// find returns the rows that have a word in line, and all rows without words.
func (a *automaton) find(line []byte) rowSet {
	found, state := a.always, uint32(0)
	for _, b := range line {
		state = a.next[state+uint32(a.class[b])]
		if state&wordEnds != 0 {
			state &^= wordEnds
			found.addAll(*a.setOf(state))
		}
	}
	return found
}
