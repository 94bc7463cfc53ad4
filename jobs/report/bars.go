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

// bars is the bar chart of the ranks.
type bars struct {
	Bars []bar
	Y    []tick
	Cut  int // number of ranks that are omitted
}

// barsOf returns the chart of the median computation time per step of each rank. It returns
// nil if there are no ranks.
func barsOf(ranks []rank) *bars {
	if len(ranks) == 0 {
		return nil
	}
	some := shown(ranks, maxBars)
	hi := 0.0
	for _, r := range some {
		hi = max(hi, r.High)
	}
	ticks, _, hi := scale(0, hi, 4)
	y := func(v float64) float64 { return chartHeight - bottom - v/hi*(chartHeight-top-bottom) }
	b := &bars{Cut: len(ranks) - len(some)}
	for _, t := range ticks {
		b.Y = append(b.Y, tick{pixel(y(t)), short(t)})
	}
	room := (chartWidth - left - right) / float64(len(some))
	width := min(room*0.7, 40)
	every := (len(some) + 15) / 16 // show every nth label, at most 16
	for i, r := range some {
		at := left + room*(float64(i)+0.5)
		n := bar{X: pixel(at - width/2), W: pixel(width), Y: pixel(y(r.Median)), H: pixel(chartHeight - bottom - y(r.Median)),
			Low: pixel(y(r.Low)), High: pixel(y(r.High)), Middle: pixel(at), Class: "bar"}
		n.Title = "rank " + strconv.Itoa(r.Rank) + ": " + short(r.Median) + " ms, from " + short(r.Low) + " to " + short(r.High)
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
