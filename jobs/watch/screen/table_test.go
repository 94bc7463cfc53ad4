package screen

import (
	"strings"
	"testing"
)

// TestTableWrapped checks that a table that is wider than the terminal wraps and keeps all its text.
func TestTableWrapped(t *testing.T) {
	table := Table{Header: []string{"RUN", "PHASE", "STEP", "NOTE"}, Rows: [][]string{
		{"good", "failed", "1200", "rank 3 on n2 was lost: its process was ended"},
		{"other", "done", "", ""},
	}}
	for width, want := range map[int]string{
		0: `RUN    PHASE   STEP  NOTE
good   failed  1200  rank 3 on n2 was lost: its process was ended
other  done    -     -`,
		50: `RUN    PHASE   STEP  NOTE
good   failed  1200  rank 3 on n2 was lost: its
                     process was ended
other  done    -     -`,
		30: `RUN    PHASE   STEP
good   failed  1200
    rank 3 on n2 was lost: its
    process was ended
other  done    -`,
		16: `RUN    PHASE
good   failed
    step 1200;
    rank 3 on n2
    was lost:
    its process
    was ended
other  done`,
	} {
		if got := strings.Join(table.Wrapped(width), "\n"); got != want {
			t.Errorf("%d columns: got\n%s\nwant\n%s", width, got, want)
		}
	}
	long := strings.Repeat("x", 30) + "-lr0.1"
	if got := (Table{Header: []string{"RUN", "NOTE"}, Rows: [][]string{{long, "it continues"}}}).Wrapped(40); got[1] != "xxxxxxxxxxx...xxxx-lr0.1  it continues" {
		t.Errorf("a long name: %q", got)
	}
}

// TestTableLines checks that a table for a page removes columns in their order and cuts lines.
func TestTableLines(t *testing.T) {
	table := Table{Header: []string{"RUN", "JOB", "STEP", "NOTE"}, Drop: []int{0, 1, 2, 0}, Rows: [][]string{
		{"good", "101", "1200", "rank 3 on n2 was lost: its process was killed"},
		{"other", "", "7", ""},
	}}
	for width, want := range map[int]string{
		0: `RUN    JOB  STEP  NOTE
good   101  1200  rank 3 on n2 was lost: its process was killed
other  -    7     -`,
		50: `RUN    JOB  STEP  NOTE
good   101  1200  rank 3 on n2 was lost: its pr...
other  -    7     -`,
		34: `RUN    STEP  NOTE
good   1200  rank 3 on n2 was l...
other  7     -`,
		30: `RUN    NOTE
good   rank 3 on n2 was los...
other  -`,
	} {
		if got := strings.Join(table.Lines(width), "\n"); got != want {
			t.Errorf("%d columns: got\n%s\nwant\n%s", width, got, want)
		}
	}
}

// TestTableWithWideCharacters checks that characters that are two columns wide do not move the cells
// after them, in rows that keep them and in lines that replace them.
func TestTableWithWideCharacters(t *testing.T) {
	table := Table{Header: []string{"RUN", "VALUE", "NOTE"}, Rows: [][]string{{"日本語", "値", "x"}, {"abc", "12345", "y"}}}
	const wide = `RUN     VALUE  NOTE
日本語  値     x
abc     12345  y`
	for _, lines := range [][]string{table.Wrapped(0), table.Wrapped(80), table.Lines(0)} {
		if got := strings.Join(lines, "\n"); got != wide {
			t.Errorf("got\n%s\nwant\n%s", got, wide)
		}
	}
	const replaced = `RUN  VALUE  NOTE
???  ?      x
abc  12345  y`
	if got := strings.Join(table.Lines(80), "\n"); got != replaced {
		t.Errorf("got\n%s\nwant\n%s", got, replaced)
	}
}

// TestTableWithALongCell checks that a long cell does not make other rows as long. The last cell keeps
// its whole text.
func TestTableWithALongCell(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	table := Table{Header: []string{"RUN", "VALUE", "NOTE"}, Rows: [][]string{{long, long, long}, {"a", "b", "c"}}}
	for _, lines := range [][]string{table.Wrapped(0), table.Lines(0), table.Wrapped(80), table.Lines(80)} {
		if n := len(lines[len(lines)-1]); n > 3*maxPadding {
			t.Errorf("the last row has %d bytes", n)
		}
	}
	if lines := table.Lines(0); !strings.HasSuffix(lines[1], long+"  "+long) {
		t.Errorf("row 1 has only %d bytes", len(lines[1]))
	}
}
