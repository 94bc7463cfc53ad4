package slurm

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Forecast is what sbatch --test-only answers for a job that it would take. What
// it does not tell is empty.
type Forecast struct {
	Start      time.Time // expected, in local time; zero where the estimate means nothing
	Processors int
	Nodes      string // a host list
	Partition  string
	Cluster    string // only in a federation
	Raw        string // the answer as sbatch wrote it, warnings included
}

// maxForecast is how far ahead an estimate means something. Slurm answers with
// years such as 3047 where it has found no end for the jobs before this one.
const maxForecast = 5 * 365 * 24 * time.Hour

// TestOnly asks sbatch whether it would take a script, which it gets on its
// standard input, so that nothing has to be written for a question. dir is as in
// [SubmitRequest]. That sbatch would refuse the script is a [*CommandError],
// whose hint says what to change.
func (c Client) TestOnly(ctx context.Context, script []byte, dir string) (Forecast, error) {
	// The answer comes on standard error.
	out, said, err := c.runWith(ctx, dir, bytes.NewReader(script), "sbatch", "--test-only")
	if err != nil {
		return Forecast{}, fmt.Errorf("asking sbatch: %w", err)
	}
	return parseForecast(out+said, time.Now()), nil
}

// forecastLine is sbatch's sentence: with the nodes and the partition since
// 17.11, with a cluster in a federation, and before that with bare nodes.
var forecastLine = regexp.MustCompile(`\bJob \d+ to start at (\S+)(?: on cluster (\S+))? using (\d+) processors on (?:nodes )?(\S+)(?: in partition (\S+))?`)

// parseForecast reads an answer. Of a heterogeneous job, which is answered for
// each component, the last to start counts, and the processors are added up.
func parseForecast(said string, now time.Time) Forecast {
	var f Forecast
	var lines, nodes []string
	senseless := false
	for line := range strings.Lines(said) {
		line = strings.TrimPrefix(strings.TrimSpace(strings.Map(printable, line)), "sbatch: ")
		if line == "" {
			continue
		}
		lines = append(lines, line)
		m := forecastLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		start, err := time.ParseInLocation("2006-01-02T15:04:05", m[1], time.Local)
		senseless = senseless || err != nil || start.Sub(now) > maxForecast
		if start.After(f.Start) {
			f.Start = start
		}
		if n, err := smallNumber(m[3]); err == nil && f.Processors+n <= maxSmallNumber {
			f.Processors += n
		}
		nodes = append(nodes, m[4])
		f.Cluster, f.Partition = m[2], m[5]
	}
	if senseless {
		f.Start = time.Time{}
	}
	f.Nodes = strings.Join(nodes, ",")
	f.Raw = strings.Join(lines, "\n")
	return f
}
