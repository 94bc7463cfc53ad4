// Package prometheus keeps a file of present figures in the text format of Prometheus
// (prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4), as the textfile
// collector of node_exporter takes it.
//
// It promises that the file is replaced whole, so that a collector never reads half of
// one, and that names and values are what the format allows. It does not serve HTTP,
// and does not keep what was before.
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

// Metric is one figure. By the conventions of Prometheus the name of a counter ends in
// _total, and one with a unit names it: _seconds, _bytes, _ratio.
type Metric struct {
	Name  string
	Help  string // one sentence
	Count bool   // it only grows; else it is a gauge
	Value float64
}

var nameForm = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// Format is the text of metrics, each with the same labels. A name that the format does
// not allow panics: names are the program's.
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
		panic(fmt.Sprintf("prometheus: %q is no name", name))
	}
	return name
}

// escape writes a backslash before what the format gives a meaning to.
func escape(text, quotes string) string {
	pairs := []string{`\`, `\\`, "\n", `\n`}
	if quotes != "" {
		pairs = append(pairs, quotes, `\`+quotes)
	}
	return strings.NewReplacer(pairs...).Replace(strings.ToValidUTF8(text, "\uFFFD"))
}

// number is a value as Go's ParseFloat reads it, in the format's words for those that
// are not finite.
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

// Replace puts a file with this text at path, which ends in ".prom": others are not
// collected. It may be read by everyone, as the collector has a user of its own.
func Replace(path string, text []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // not *.prom: nothing collects it
	if err != nil {
		return fmt.Errorf("write metrics for Prometheus: %w", err)
	}
	defer os.Remove(temp.Name()) // fails once it is renamed, as it should
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
