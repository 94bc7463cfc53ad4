package conformance

import (
	"fmt"
)

func checkEmbedding(s *suite) {
	for _, e := range []embedding{
		{rows: 1, cols: 1, vocabulary: 1, length: 1, context: 1},
		{rows: 6, cols: 5, vocabulary: 3, length: 3, context: 4, first: 1},
		{rows: 7, cols: 64, vocabulary: 50, length: 1, context: 9, first: 8},
		{rows: 60, cols: 33, vocabulary: 7, length: 20, context: 31, first: 11},
		{rows: 40, cols: 300, vocabulary: 2, length: 20, context: 20},
		{rows: 520, cols: 130, vocabulary: 1000, length: 130, context: 130},
		// Enough tokens for several blocks of a GPU's sort.
		{rows: 2048, cols: 2, vocabulary: 2, length: 512, context: 512},
		{rows: 1100, cols: 3, vocabulary: 17, length: 275, context: 275},
		{rows: 1100, cols: 2, vocabulary: 40000, length: 1100, context: 1100},
		{rows: 4200, cols: 3, vocabulary: 300, length: 600, context: 600},
	} {
		s.run(fmt.Sprintf("%+v", e), func(s *suite) { s.embedding(e) })
	}
}

// embedding is a batch of rows/length sequences.
type embedding struct{ rows, cols, vocabulary, length, context, first int }

func (s *suite) embedding(e embedding) {
	ids := s.upTo(e.rows, e.vocabulary)
	table, positions := s.normal(e.vocabulary*e.cols), s.normal(e.context*e.cols)
	y, tokens := s.emptyMatrix(e.rows, e.cols), s.tokens(ids)
	s.d.Embed(y, tokens, s.inputMatrix(table, e.vocabulary, e.cols, whole), s.inputMatrix(positions, e.context, e.cols, whole), e.length, e.first)
	want := make([]float32, e.rows*e.cols)
	for i, id := range ids {
		for j := range e.cols {
			want[i*e.cols+j] = table[int(id)*e.cols+j] + positions[(e.first+i%e.length)*e.cols+j]
		}
	}
	s.same("y", s.numbers(y), want)

	// The order of additions is specified, so every bit is.
	dy := s.normal(e.rows * e.cols)
	dtable, dpositions := s.resultMatrix(table, e.vocabulary, e.cols, whole), s.resultMatrix(positions, e.context, e.cols, whole)
	s.d.EmbedGrad(dtable, dpositions, s.inputMatrix(dy, e.rows, e.cols, whole), tokens, e.length)
	for i, id := range ids {
		for j := range e.cols {
			table[int(id)*e.cols+j] += dy[i*e.cols+j]
			positions[i%e.length*e.cols+j] += dy[i*e.cols+j]
		}
	}
	s.same("dtable", s.numbers(dtable), table)
	s.same("dpositions", s.numbers(dpositions), positions)
}
