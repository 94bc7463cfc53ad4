package report

import "strconv"

// maxBars is how many ranks have a bar: more could not be told apart.
const maxBars = 48

// bar is a rank's part of a step.
type bar struct {
	Label     string
	X, Y      string
	W, H      string
	Low, High string // where all but its shortest and longest times begin and end
	Middle    string // x of these
	Class     string
	Title     string
}

// bars is the figure of ranks.
type bars struct {
	Bars []bar
	Y    []tick
	Cut  int // ranks that are left out
}

// barsOf draws how long each rank computes in a step.
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
	every := (len(some) + 15) / 16 // labels that fit
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
