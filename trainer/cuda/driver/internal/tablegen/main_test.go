package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckedInFilesAreGenerated checks that the generated files match driver.tbl.
func TestCheckedInFilesAreGenerated(t *testing.T) {
	table, err := os.ReadFile("../../driver.tbl")
	if err != nil {
		t.Fatal(err)
	}
	made, err := files(string(table))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range made {
		got, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is not what tablegen writes: run go generate ./trainer/cuda/driver", name)
		}
	}
}

// TestTableErrorsHaveLine checks that errors in driver.tbl name the line.
func TestTableErrorsHaveLine(t *testing.T) {
	for table, want := range map[string]string{
		"# x\ncuA | =\n":             "driver.tbl:2: 2 fields",
		"cuA | = |\ncuA | = | int a": "driver.tbl:2: duplicate function cuA",
	} {
		if _, err := files(table); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", table, err, want)
		}
	}
}
