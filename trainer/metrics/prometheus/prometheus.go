// Package prometheus writes a file of current metrics in Prometheus's text format
// (prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4), for the textfile collector
// of node_exporter.
//
// It guarantees that the file is replaced atomically, so that a collector never reads a partial
// file, and that names and values are valid in the format. It does not serve HTTP and stores no
// history.
package prometheus

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// A Metric is one value. By Prometheus's conventions, the name of a counter ends in _total, and a
// name includes the unit: _seconds, _bytes, _ratio.
type Metric struct {
	Name  string
	Help  string // one sentence
	Count bool   // a counter, which only grows; otherwise a gauge
	Value float64
}

var nameForm = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// Format returns the text of metrics, all with the same labels. It panics if a name is invalid,
// because names are constants of the program.
func Format(labels [][2]string, metrics []Metric) []byte {
	var set []string
	for _, l := range labels {
		set = append(set, mustName(l[0])+`="`+escape(l[1], `"`)+`"`)
	}
	var out strings.Builder
	for _, m := range metrics {
		kind := "gauge"
		if m.Count {
			kind = "counter"
		}
		fmt.Fprintf(&out, "# HELP %s %s\n# TYPE %s %s\n%s{%s} %s\n", mustName(m.Name), escape(m.Help, ""), m.Name, kind, m.Name, strings.Join(set, ","), number(m.Value))
	}
	return []byte(out.String())
}

func mustName(name string) string {
	if !nameForm.MatchString(name) {
		panic(fmt.Sprintf("prometheus: invalid name %q", name))
	}
	return name
}

// escape escapes backslashes, line breaks, and, if given, quotes.
func escape(text, quotes string) string {
	pairs := []string{`\`, `\\`, "\n", `\n`}
	if quotes != "" {
		pairs = append(pairs, quotes, `\`+quotes)
	}
	return strings.NewReplacer(pairs...).Replace(strings.ToValidUTF8(text, "\uFFFD"))
}

// number returns a value in the format of Go's ParseFloat, with the format's own spelling for
// values that are not finite.
func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 1):
		return "+Inf"
	case math.IsInf(v, -1):
		return "-Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// Replace atomically replaces the file at path, which must end in ".prom" because the collector
// ignores other files. All users may read it, because the collector runs as a different user.
func Replace(path string, text []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // not *.prom, so that the collector ignores it
	if err != nil {
		return fmt.Errorf("write metrics for Prometheus: %w", err)
	}
	defer os.Remove(temp.Name()) // fails after the rename, as intended
	_, err = temp.Write(text)
	if err == nil {
		err = temp.Chmod(0o644)
	}
	if cerr := temp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write metrics for Prometheus: %w", err)
	}
	return nil
}

// Path returns the path of the file for a run in the directory of the collector. It contains the
// ID of the run, so that concurrent runs do not share a file.
func Path(dir, name, run string) string {
	plain := strings.Map(func(r rune) rune {
		if strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", r) {
			return r
		}
		return '_'
	}, name)
	return filepath.Join(dir, "ddpbatch-"+plain+"-"+run+".prom")
}
