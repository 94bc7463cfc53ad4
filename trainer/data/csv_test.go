package data

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// hint returns the hint of an error, or "".
func hint(err error) string {
	if h, ok := errors.AsType[interface {
		error
		Hint() string
	}](err); ok {
		return h.Hint()
	}
	return ""
}

// TestCSV checks inputs, targets, and labels of files as spreadsheets and pandas write them.
func TestCSV(t *testing.T) {
	for _, c := range []struct {
		name, text string
		rules      csvRules
		x          []float32
		targets    []float32
		labels     []int32
	}{
		{"samples only", "1,2,3\n4,5,6\n", csvRules{}, []float32{1, 2, 4, 5}, []float32{3, 6}, nil},
		{"header", "a,b,y\n1,2,3\n", csvRules{}, []float32{1, 2}, []float32{3}, nil},
		{"target by name", "a,y,b\n1,2,3\n4,5,6", csvRules{target: "y"}, []float32{1, 3, 4, 6}, []float32{2, 5}, nil},
		{"target by number", "7,2,3\n", csvRules{target: "1"}, []float32{2, 3}, []float32{7}, nil},
		{"pandas without names", "0,1,label\n.5,-2e1,3\n", csvRules{}, []float32{.5, -20}, []float32{3}, nil},
		{"labels", "a,b,y\n1,2,0\n3,4,2\n", csvRules{classify: true}, []float32{1, 2, 3, 4}, nil, []int32{0, 2}},
		{"labels first, no header", "2,10,20\n0,30,40\n", csvRules{classify: true, target: "1"}, []float32{10, 20, 30, 40}, nil, []int32{2, 0}},
		{"byte order mark, CRLF, quotes and blanks", "\xef\xbb\xbf\"a\", b,y\r\n\"1\", 2,3\r\n\r\n4,5,6\r\n", csvRules{target: "a"}, []float32{2, 3, 5, 6}, []float32{1, 4}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := readCSV("f.csv", strings.NewReader(c.text), c.rules)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(f.x, c.x) || !slices.Equal(f.targets, c.targets) || !slices.Equal(f.labels, c.labels) {
				t.Errorf("inputs %v, targets %v, labels %v; want %v, %v, %v", f.x, f.targets, f.labels, c.x, c.targets, c.labels)
			}
		})
	}
}

// TestCSVErrors checks that errors name file, line, and column, with a hint for common causes.
func TestCSVErrors(t *testing.T) {
	like, err := readCSV("train.csv", strings.NewReader("a,b,y\n1,2,0\n3,4,1\n"), csvRules{classify: true})
	if err != nil {
		t.Fatal(err)
	}
	many := strings.Repeat("x", 1)
	for i := range 20 {
		many += ",c" + string(rune('a'+i))
	}
	for _, c := range []struct {
		name, text string
		rules      csvRules
		want, hint string
	}{
		{"empty", "", csvRules{}, `f.csv:1:1: no samples`, ""},
		{"header only", "\na,b\n", csvRules{}, `f.csv:2:1: no samples after the line of column names`, ""},
		{"word in a sample", "a,b\n1,2\n3, x4\n", csvRules{}, `f.csv:3:4: column "b": "x4" is not a number`, ""},
		{"no value", "1,2\n3,\n", csvRules{}, `f.csv:2:3: no value`, ""},
		{"not finite", "1,2\nNaN,4\n", csvRules{}, `f.csv:2:1: "NaN" is not finite`, ""},
		{"too large", "1,2\n1,1e39\n", csvRules{}, `f.csv:2:3: "1e39" is out of the range of a 32-bit number`, ""},
		{"missing column", "1,2,3\n\n4,5\n", csvRules{}, `f.csv:3:1: 2 columns, but the first line has 3`, ""},
		{"open quote", "1,2\n\"3,4\n", csvRules{}, `f.csv:2:6: extraneous or missing " in quoted-field`, ""},
		{"bare quote", "1,2\n3\",4\n", csvRules{}, `f.csv:2:2: bare " in non-quoted-field`, ""},
		{"semicolons", "1;2;3\n", csvRules{}, `f.csv:1:1: one column only, want inputs and a target`, "separate the columns by commas"},
		{"half a header", "a,2.5,c\n", csvRules{}, `f.csv:1:1: the first line is neither samples nor column names: "a" is not a number, but others are`, "begin the file with a line of column names, or with a sample"},
		{"row numbers", ",a,b\n0,1,2\n", csvRules{}, `f.csv:1:1: column 1 has no name`, "remove the row numbers: in pandas, write the file with to_csv(..., index=False)"},
		{"same name", "a,b,a\n", csvRules{}, `f.csv:1:5: column 3 has the name "a" of column 1`, ""},
		{"no such target", "a,b\n1,2\n", csvRules{target: "z"}, `f.csv:1:1: no column "z" to predict`, "columns are: a, b"},
		{"many columns", many + "\n", csvRules{target: "z"}, `f.csv:1:1: no column "z" to predict`, "columns are: x, ca, cb, cc, cd, ce, cf, cg, ch, ci, cj, ..., ct"},
		{"target by name without header", "1,2\n", csvRules{target: "y"}, `f.csv:1:1: no column "y" to predict: the file has no line of column names`, "give the number of the column, 1 to 2, or add a line of column names"},
		{"target out of range", "1,2\n", csvRules{target: "3"}, `f.csv:1:1: no column "3" to predict: the file has no line of column names`, "give the number of the column, 1 to 2, or add a line of column names"},
		{"label not whole", "1,2.0\n", csvRules{classify: true}, `f.csv:1:3: label "2.0" is not an integer from 0`, "number the classes 0, 1, 2, ... in the column to predict, or choose another column as target"},
		{"label negative", "a,y\n1,-1\n", csvRules{classify: true}, `f.csv:2:3: column "y": label "-1" is not an integer from 0`, "number the classes 0, 1, 2, ... in the column to predict, or choose another column as target"},
		{"label large", "1,10000\n", csvRules{classify: true}, `f.csv:1:3: label 10000, but at most 10000 classes are allowed`, "set target to the column to predict, or set the task to regression"},
		{"held out: new label", "a,b,y\n1,2,0\n1,2,2\n", csvRules{classify: true, like: like}, `f.csv:3:5: column "y": label 2, but those in "train.csv" are 0 to 1`, ""},
		{"held out: fewer columns", "a,y\n1,0\n", csvRules{classify: true, like: like}, `f.csv:1:1: 2 columns, but "train.csv" has 3`, ""},
		{"held out: other order", "b,a,y\n1,2,0\n", csvRules{classify: true, like: like}, `f.csv:1:1: column 1 is "b", but in "train.csv" it is "a"`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := readCSV("f.csv", strings.NewReader(c.text), c.rules)
			if err == nil {
				t.Fatal("no error")
			}
			if err.Error() != c.want || hint(err) != c.hint {
				t.Errorf("error %q, hint %q;\nwant  %q, hint %q", err, hint(err), c.want, c.hint)
			}
		})
	}
}

// TestOpenCSV checks data sets for classification and regression, with and without held-out files.
func TestOpenCSV(t *testing.T) {
	dir := t.TempDir()
	trainPath, evalPath := filepath.Join(dir, "train.csv"), filepath.Join(dir, "eval.csv")
	write(t, trainPath, []byte("a,b,y\n1,2,0\n3,4,2\n"))
	write(t, evalPath, []byte("5,6,1\n"))
	train, eval, err := Open(t.Context(), Options{Kind: KindCSV, Path: trainPath, EvalPath: evalPath, Task: TaskClassification})
	if err != nil {
		t.Fatal(err)
	}
	if train.Len() != 2 || train.Inputs() != 2 || train.Outputs() != 3 || !train.Classes() {
		t.Errorf("training data: %d samples of %d inputs, %d outputs, classes %t", train.Len(), train.Inputs(), train.Outputs(), train.Classes())
	}
	if eval.Len() != 1 || eval.Outputs() != 3 {
		t.Errorf("held-out data: %d samples, %d classes; want 1, 3", eval.Len(), eval.Outputs())
	}
	reg, none, err := Open(t.Context(), Options{Kind: KindCSV, Path: trainPath, Target: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if none != nil {
		t.Error("held-out data where none were named")
	}
	x, targets := make([]float32, 4), make([]float32, 2)
	reg.Read([]int{1, 0}, Batch{X: x, Targets: targets})
	if !slices.Equal(x, []float32{4, 2, 2, 0}) || !slices.Equal(targets, []float32{3, 1}) {
		t.Errorf("read inputs %v, targets %v", x, targets)
	}

	_, _, err = Open(t.Context(), Options{Kind: KindCSV, Path: filepath.Join(dir, "none.csv")})
	if want := "read \"" + dir + "/none.csv\": no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("missing file: %v, want %s", err, want)
	}
	_, _, err = Open(t.Context(), Options{Kind: KindCSV, Path: dir})
	if want := "read \"" + dir + "\": is a directory"; err == nil || err.Error() != want {
		t.Errorf("folder: %v, want %s", err, want)
	}
}

// TestOpenCSVOfOneClass checks that held-out samples may all have the same class, and that
// training samples may not.
func TestOpenCSVOfOneClass(t *testing.T) {
	dir := files(t, map[string][]byte{"one.csv": []byte("a,b,y\n1,2,7\n3,4,7\n"), "plain.csv": []byte("1,7\n"), "two.csv": []byte("a,b,y\n1,2,0\n3,4,7\n")})
	one, plain, two := filepath.Join(dir, "one.csv"), filepath.Join(dir, "plain.csv"), filepath.Join(dir, "two.csv")
	for path, want := range map[string]string{
		one:   `read "` + one + `": column "y": all 2 labels are 7, want at least 2 classes`,
		plain: `read "` + plain + `": all 1 labels are 7, want at least 2 classes`,
	} {
		_, _, err := Open(t.Context(), Options{Kind: KindCSV, Path: path, Task: TaskClassification})
		if err == nil || err.Error() != want || hint(err) == "" {
			t.Errorf("error %v, hint %q;\nwant  %s", err, hint(err), want)
		}
	}
	if _, _, err := Open(t.Context(), Options{Kind: KindCSV, Path: two, EvalPath: one, Task: TaskClassification}); err != nil {
		t.Error(err)
	}
	if _, _, err := Open(t.Context(), Options{Kind: KindCSV, Path: one}); err != nil {
		t.Errorf("as numbers: %v", err)
	}
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// FuzzCSV checks that any text is rejected with an error that names the file or makes a consistent
// data set.
func FuzzCSV(f *testing.F) {
	for _, text := range []string{"1,2,3\n4,5,6\n", "a,b,y\n1,2,0\n", "0,1,label\n.5,-2e1,3\n", "\xef\xbb\xbfa,b\r\n\"1\",2\r\n", "1;2\n", ",a\n0,1\n", "1,2\n\"3,4\n"} {
		f.Add(text, "", true)
		f.Add(text, "y", false)
		f.Add(text, "1", false)
	}
	f.Fuzz(func(t *testing.T, text, target string, classify bool) {
		file, err := readCSV("f.csv", strings.NewReader(text), csvRules{target: target, classify: classify})
		if err != nil {
			if !strings.Contains(err.Error(), "f.csv") {
				t.Errorf("error without the file: %v", err)
			}
			return
		}
		checkDataset(t, file.dataset(file.classes))
	})
}

// TestCSVHeaderWithManyColumns checks that the time to check a header does not grow with the
// square of its columns.
func TestCSVHeaderWithManyColumns(t *testing.T) {
	const columns = 300_000
	var header, sample strings.Builder
	for i := range columns {
		fmt.Fprintf(&header, "c%d,", i)
		sample.WriteString("1,")
	}
	text := header.String() + "y\n" + sample.String() + "0\n"
	start := time.Now()
	f, err := readCSV("f.csv", strings.NewReader(text), csvRules{})
	if err != nil || len(f.names) != columns+1 {
		t.Fatalf("%d names, %.200v", len(f.names), err)
	}
	if took := time.Since(start); took > time.Minute {
		t.Errorf("took %s", took)
	}
}
