package main

import (
	"fmt"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs/watch/screen"
)

const (
	columnGap = 2
	// leastName is the minimum width of the first column. Longer names are shortened if the
	// table does not fit.
	leastName = 24
	// leastSentence is the minimum width of the last column. If less is left, the last column
	// moves below its row.
	leastSentence = 24
	belowRow      = 4 // indentation of text below a row
)

// layout aligns rows in columns. The first row is the header. If the table is wider than
// width, layout shortens the names in the first column and wraps the last column. In most
// tables, the last column is a sentence. If the table still does not fit, columns from the
// right move below their row, with their names. A width of 0 is unlimited.
func layout(rows [][]string, width int) []string {
	last := len(rows[0]) - 1
	widths := make([]int, last+1)
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], screen.Width(cell))
		}
	}
	before := func(column int) int { // width of the columns before column
		n := 0
		for _, w := range widths[:column] {
			n += w + columnGap
		}
		return n
	}
	beside := last + 1 // number of columns that stay in the row
	if width > 0 && before(last)+widths[last] > width {
		widths[0] = min(widths[0], max(leastName, width/3))
		if room := width - before(last); room >= min(widths[last], leastSentence) {
			widths[last] = room
		} else {
			for beside = last; beside > 1 && before(beside)-columnGap > width; beside-- {
			}
		}
	}
	var lines []string
	for r, row := range rows {
		var line strings.Builder
		for i, cell := range row[:min(beside, last)] {
			if i == 0 {
				cell = screen.Shorten(cell, widths[0])
			}
			fmt.Fprintf(&line, "%-*s", widths[i]+columnGap, cell)
		}
		if beside > last {
			wrapped := screen.Wrap(row[last], min(width, widths[last]), 0)
			line.WriteString(wrapped[0])
			for _, more := range wrapped[1:] {
				line.WriteString("\n" + strings.Repeat(" ", before(last)) + more)
			}
		} else if below := belowText(rows[0], row, beside); r > 0 && below != "" {
			for _, l := range screen.Wrap(strings.Repeat(" ", belowRow)+below, width, belowRow) {
				line.WriteString("\n" + l)
			}
		}
		for l := range strings.SplitSeq(line.String(), "\n") {
			lines = append(lines, strings.TrimRight(l, " "))
		}
	}
	return lines
}

// belowText returns the cells of the columns that do not fit in the row, with the names of the
// columns. It omits the name of the last column.
func belowText(header, row []string, beside int) string {
	var parts []string
	last := len(row) - 1
	for i := beside; i < last; i++ {
		if row[i] != noCell {
			parts = append(parts, strings.ToLower(header[i])+" "+row[i])
		}
	}
	text := strings.Join(parts, ", ")
	if row[last] != noCell {
		text = strings.TrimPrefix(text+"; "+row[last], "; ")
	}
	return text
}
