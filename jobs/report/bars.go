package report

import "strconv"

// maxBars is the maximum number of bars in the chart. More bars would be too narrow to
// distinguish.
const maxBars = 48

// A bar is the computation time of one rank per step.
type bar struct {
	Label     string
	X, Y      string
	W, H      string
	Low, High string // y of the 10th and the 90th percentile
	Middle    string // x of the line between them
	Class     string
	Title     string
}

// rankChart is the bar chart of the ranks.
type rankChart struct {
	Bars []bar
	Y    []tick
	Cut  int // number of ranks that are omitted
}

// newRankChart returns the chart of the median computation time per step of each rank. It returns
// nil if there are no ranks.
func newRankChart(ranks []rankTimes) *rankChart {
	if len(ranks) == 0 {
		return nil
	}
	some := slowestRanks(ranks, maxBars)
	hi := 0.0
	for _, r := range some {
		hi = max(hi, r.High)
	}
	ticks, _, hi := axisTicks(0, hi, 4)
	y := func(v float64) float64 { return chartHeight - bottom - v/hi*(chartHeight-top-bottom) }
	b := &rankChart{Cut: len(ranks) - len(some)}
	for _, t := range ticks {
		b.Y = append(b.Y, tick{formatPixel(y(t)), formatValue(t)})
	}
	room := (chartWidth - left - right) / float64(len(some))
	width := min(room*0.7, 40)
	every := (len(some) + 15) / 16 // show every nth label, at most 16
	for i, r := range some {
		at := left + room*(float64(i)+0.5)
		n := bar{X: formatPixel(at - width/2), W: formatPixel(width), Y: formatPixel(y(r.Median)), H: formatPixel(chartHeight - bottom - y(r.Median)),
			Low: formatPixel(y(r.Low)), High: formatPixel(y(r.High)), Middle: formatPixel(at), Class: "bar"}
		n.Title = "rank " + strconv.Itoa(r.Rank) + ": " + formatValue(r.Median) + " ms, from " + formatValue(r.Low) + " to " + formatValue(r.High)
		if i%every == 0 {
			n.Label = strconv.Itoa(r.Rank)
		}
		if r.Straggler {
			n.Class = "bar slow"
			n.Label = strconv.Itoa(r.Rank)
		}
		b.Bars = append(b.Bars, n)
	}
	return b
}
