package slurm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestCheckIDs checks which IDs of jobs and array tasks are valid. Options must not pass as IDs.
func TestCheckIDs(t *testing.T) {
	for id, want := range map[string]bool{
		"0": true, "18": true, "4294967294": true, "18_3": true, "4294967294_4294967294": true,
		"": false, "42949672940": false, "18_": false, "_3": false, "18_3_4": false, "18_x": false, "x_3": false, "18_[1-2]": false, "-1": false, "1 2": false, "--me": false, "18_42949672940": false,
	} {
		if err := checkIDs([]string{"7", id}); (err == nil) != want {
			t.Errorf("%q: got %v, want valid %v", id, err, want)
		}
	}
}

// TestCompareIDs checks that IDs are sorted by number.
func TestCompareIDs(t *testing.T) {
	want := []string{"9", "9_0", "10", "18", "18_3", "18_10", "19"}
	got := []string{"18_10", "10", "9_0", "19", "18_3", "9", "18"}
	slices.SortFunc(got, CompareIDs)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := CompareIDs("18_3", "18_3"); got != 0 {
		t.Errorf("got %d for equal IDs, want 0", got)
	}
}

// TestParseArrayTasks checks the lists of array tasks in Slurm's formats.
func TestParseArrayTasks(t *testing.T) {
	for _, tt := range []struct {
		expression, want string
		err              string // part of the error
	}{
		{expression: "3", want: "[3]"},
		{expression: "3-3", want: "[3]"},
		{expression: "2-5,9", want: "[2 3 4 5 9]"},
		{expression: "[2-5%4]", want: "[2 3 4 5]"},
		{expression: "0-20:10", want: "[0 10 20]"},
		{expression: "1-4:2,7", want: "[1 3 7]"},
		{expression: "", err: "missing number"},
		{expression: "1,3,...", err: `"..."`},
		{expression: "5-2", err: `"5-2"`},
		{expression: "1-5:0", err: `"1-5:0"`},
		{expression: "-1", err: "missing number"},
		{expression: "1-", err: "missing number"},
		{expression: "0-99999999", err: "more than 4194304"},
		{expression: "0-4194304", err: "more than 4194304"},
		{expression: "0-4194303,9", err: "more than 4194304"},
	} {
		got, err := parseArrayTasks(tt.expression)
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: got error %v, want %q", tt.expression, err, tt.err)
		}
		var indices []int
		for _, span := range got {
			for i := range 100 {
				if span.contains(i) {
					indices = append(indices, i)
				}
			}
		}
		if err == nil && (fmt.Sprint(indices) != tt.want || countTasks(got) != len(indices)) {
			t.Errorf("%q: got %v, %d tasks, want %s", tt.expression, indices, countTasks(got), tt.want)
		}
	}
	if got, err := parseArrayTasks("0-4194303"); err != nil || countTasks(got) != maxArrayTasks {
		t.Errorf("longest expression: got %d tasks, %v", countTasks(got), err)
	}
}

// FuzzParseArrayTasks checks that any list is rejected or has a limited number of tasks.
func FuzzParseArrayTasks(f *testing.F) {
	for _, s := range []string{"3", "[2-5%4]", "0-20:4,7", "1,3,...", "0-4294967294"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseArrayTasks(s)
		if n := countTasks(got); (err == nil) == (n == 0) || n > maxArrayTasks {
			t.Fatalf("%q: got %d tasks, %v", s, n, err)
		}
	})
}

func countTasks(spans []taskSpan) (n int) {
	for _, s := range spans {
		n += s.count()
	}
	return n
}
