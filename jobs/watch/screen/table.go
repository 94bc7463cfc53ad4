package screen

import "strings"

const (
	columnGap = 2 // spaces between columns
	// minNameWidth is the minimum width of the first column. Longer names are shortened if the
	// table does not fit.
	minNameWidth = 24
	// minNoteWidth is the minimum width of the last column in [Table.Wrapped]. If less is left,
	// the last column moves below its row.
	minNoteWidth = 24
	// minCutNoteWidth is the width up to which [Table.Lines] cuts the last column before it
	// removes columns.
	minCutNoteWidth = 20
	belowIndent     = 4 // indentation of text below a row
	// maxPadding is the maximum width to which cells are padded. A longer cell moves only the
	// cells after it in its row. Otherwise, one long text of another user would make all rows as
	// long.
	maxPadding = 256
)

// noCell marks an empty cell.
const noCell = "-"

// A Table is text in aligned columns. The first column is a name, and in most tables, the last
// column is a sentence. Cells must not contain control sequences.
type Table struct {
	Header []string
	Rows   [][]string
	// Drop is the order in which [Table.Lines] removes columns, from 1. Columns with 0 are
	// never removed. It is nil or has the length of Header.
	Drop []int
}

// Wrapped returns the lines of the table with all its text. If the table is wider than width, it
// shortens the names in the first column and wraps the last column. If the table still does not
// fit, columns from the right move below their row, with their names. A width of 0 is unlimited.
func (t Table) Wrapped(width int) []string {
	rows, widths := t.cells(false)
	last := len(widths) - 1
	inRow := last + 1 // number of columns that stay in the row
	if width > 0 && position(widths, last)+widths[last] > width {
		widths[0] = nameWidth(widths[0], width)
		if space := width - position(widths, last); space >= min(widths[last], minNoteWidth) {
			widths[last] = space
		} else {
			for inRow = last; inRow > 1 && position(widths, inRow)-columnGap > width; inRow-- {
			}
		}
	}
	var lines []string
	for r, row := range rows {
		// Texts of another user may have many lines, so no string grows with each of them.
		of := []string{alignCells(row[:min(inRow, last)], widths)}
		if inRow > last {
			wrapped := Wrap(row[last], min(width, widths[last]), 0)
			of[0] += wrapped[0]
			for _, more := range wrapped[1:] {
				of = append(of, strings.Repeat(" ", position(widths, last))+more)
			}
		} else if text := overflowText(t.Header, row, inRow); r > 0 && text != "" {
			of = append(of, Wrap(strings.Repeat(" ", belowIndent)+text, width, belowIndent)...)
		}
		for _, l := range of {
			lines = append(lines, strings.TrimRight(l, " "))
		}
	}
	return lines
}

// Lines returns one line for each row, for a page that is drawn repeatedly. If the table is wider
// than width, it shortens the names, removes columns in the order of Drop, and cuts the lines. A
// width of 0 is unlimited.
func (t Table) Lines(width int) []string {
	rows, widths := t.cells(width > 0) // as Cut does
	last := len(widths) - 1
	needed := func() int { return position(widths, last) + min(widths[last], minCutNoteWidth) }
	if width > 0 && needed() > width {
		widths[0] = nameWidth(widths[0], width)
	}
	for drop := 1; width > 0 && needed() > width && drop <= len(widths); drop++ {
		for i := range widths {
			if t.Drop != nil && t.Drop[i] == drop {
				widths[i] = 0
			}
		}
	}
	lines := make([]string, len(rows))
	for r, row := range rows {
		lines[r] = strings.TrimRight(alignCells(row, widths), " ")
		if width > 0 {
			lines[r] = Cut(lines[r], width)
		}
	}
	return lines
}

// cells returns the header and the rows, without empty cells, and the widths of the columns. It
// can replace wide characters like [Clip].
func (t Table) cells(replaceWide bool) (rows [][]string, widths []int) {
	widths = make([]int, len(t.Header))
	for _, row := range append([][]string{t.Header}, t.Rows...) {
		cells := make([]string, len(row))
		for i, cell := range row {
			if cell == "" {
				cell = noCell
			}
			if replaceWide {
				cell = Clip(cell, len(cell))
			}
			cells[i] = cell
			widths[i] = max(widths[i], min(columns(cell), maxPadding))
		}
		rows = append(rows, cells)
	}
	return rows, widths
}

// nameWidth returns the width of the first column in a table that does not fit.
func nameWidth(now, width int) int { return min(now, max(minNameWidth, width/3)) }

// position returns the position of a column. Removed columns have the width 0.
func position(widths []int, column int) int {
	n := 0
	for _, w := range widths[:column] {
		if w > 0 {
			n += w + columnGap
		}
	}
	return n
}

// alignCells pads the cells to their widths. It omits removed columns, and shortens the name in
// the first column.
func alignCells(cells []string, widths []int) string {
	var line strings.Builder
	for i, cell := range cells {
		if widths[i] == 0 {
			continue
		}
		if i == 0 {
			cell = Shorten(cell, widths[0]) // at most maxPadding columns
		}
		line.WriteString(cell)
		line.WriteString(strings.Repeat(" ", columnGap+max(0, widths[i]-columns(cell))))
	}
	return line.String()
}

// overflowText returns the cells of the columns that do not fit in the row, with the names of the
// columns. It omits the name of the last column.
func overflowText(header, row []string, inRow int) string {
	var parts []string
	last := len(row) - 1
	for i := inRow; i < last; i++ {
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
