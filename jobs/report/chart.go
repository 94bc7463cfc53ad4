package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Size of a chart, in SVG units. The chart is about as wide as a phone or a printed column, so
// that its text stays readable there. On a large screen the page scales it up.
const (
	chartWidth, chartHeight = 480.0, 240.0
	left, right             = 56.0, 24.0
	top, bottom             = 12.0, 38.0
)

// A chart is a line chart over steps.
type chart struct {
	ID, Title, Unit string
	Summary         string // textual description of the chart
	Lines           []line
	X, Y            []tick
	Marks           []string // x of the restarts
	Lost            int      // values that are not finite or cannot be drawn
	Head            []string
	Rows            [][]string // the values of the chart as a table
}

// A line is a line of a chart, with SVG coordinates.
type line struct {
	Name, Class string
	Path        string
	Dots        []dot // markers, if there are at most maxDots points
}

type dot struct{ X, Y string }

type tick struct {
	At    string
	Label string
}

// lineData is the source of a line.
type lineData struct {
	name, class string
	points      []point
}

// maxPoints is the maximum number of points per line. Lines with at most maxDots points also
// have markers. maxRows is the maximum number of points per line in the table.
const (
	maxPoints = 400
	maxDots   = 60
	maxRows   = 50
)

// newChart returns a chart of lines over steps, starting at step 0. It returns nil if there is
// nothing to draw. Restarts are steps to mark. Base makes the y axis start at 0.
func newChart(id, title, unit string, base bool, restarts []int, from ...lineData) *chart {
	c := &chart{ID: id, Title: title, Unit: unit}
	var all []point
	for i := range from {
		before := len(from[i].points)
		valid := slices.DeleteFunc(slices.Clone(from[i].points), func(p point) bool { return p.x < 0 || !finite(p.x) || !finite(p.y) })
		c.Lost += before - len(valid)
		from[i].points = valid
		all = append(all, valid...)
	}
	if len(all) == 0 {
		return nil
	}
	_, hiX := valueRange(all, func(p point) float64 { return p.x })
	loY, hiY := valueRange(all, func(p point) float64 { return p.y })
	if base || loY > 0 && loY < hiY/3 {
		loY = min(loY, 0)
	}
	xs, loX, hiX := axisTicks(0, hiX, 5)
	ys, loY, hiY := axisTicks(loY, hiY, 5)
	x := func(v float64) float64 { return left + (v-loX)/(hiX-loX)*(chartWidth-left-right) }
	y := func(v float64) float64 { return chartHeight - bottom - (v-loY)/(hiY-loY)*(chartHeight-top-bottom) }
	for _, v := range xs {
		c.X = append(c.X, tick{formatPixel(x(v)), formatValue(v)})
	}
	for _, v := range ys {
		c.Y = append(c.Y, tick{formatPixel(y(v)), formatValue(v)})
	}
	for _, step := range restarts {
		if float64(step) <= hiX {
			c.Marks = append(c.Marks, formatPixel(x(float64(step))))
		}
	}
	for _, f := range from {
		if len(f.points) == 0 {
			continue
		}
		l := line{Name: f.name, Class: f.class}
		var path strings.Builder
		for i, p := range downsample(f.points, maxPoints) {
			fmt.Fprintf(&path, "%s%s %s", map[bool]string{true: "M", false: "L"}[i == 0], formatPixel(x(p.x)), formatPixel(y(p.y)))
			if len(f.points) <= maxDots {
				l.Dots = append(l.Dots, dot{formatPixel(x(p.x)), formatPixel(y(p.y))})
			}
		}
		l.Path = path.String()
		c.Lines = append(c.Lines, l)
	}
	c.describe(from)
	return c
}

// describe adds a textual description and a table to the chart.
func (c *chart) describe(from []lineData) {
	c.Head = []string{"step"}
	var words []string
	rows := map[int][]string{}
	var steps []int
	for _, f := range from {
		if len(f.points) == 0 {
			continue
		}
		c.Head = append(c.Head, f.name)
		first, last := f.points[0], f.points[len(f.points)-1]
		lo, hi := valueRange(f.points, func(p point) float64 { return p.y })
		words = append(words, fmt.Sprintf("%s: from %s at step %s to %s at step %s, lowest %s, highest %s",
			f.name, formatValue(first.y), formatValue(first.x), formatValue(last.y), formatValue(last.x), formatValue(lo), formatValue(hi)))
		for _, p := range downsample(f.points, maxRows) {
			step := int(p.x)
			if rows[step] == nil {
				steps = append(steps, step)
			}
			row := rows[step]
			for len(row) < len(c.Head)-2 {
				row = append(row, "")
			}
			rows[step] = append(row[:len(c.Head)-2], formatValue(p.y))
		}
	}
	c.Summary = strings.Join(words, "; ")
	slices.Sort(steps)
	for _, s := range steps {
		row := append([]string{strconv.Itoa(s)}, rows[s]...)
		for len(row) < len(c.Head) {
			row = append(row, "")
		}
		c.Rows = append(c.Rows, row)
	}
}

// downsample reduces the points of a line to the given maximum. It keeps the minimum and the
// maximum of each section, and the first and last point.
func downsample(points []point, limit int) []point {
	if len(points) <= limit {
		return points
	}
	out := []point{points[0]}
	inner := points[1 : len(points)-1]
	stretches := (limit - 2) / 2
	for i := range stretches {
		part := inner[i*len(inner)/stretches : (i+1)*len(inner)/stretches]
		lo, hi := 0, 0
		for k, p := range part {
			if p.y < part[lo].y {
				lo = k
			}
			if p.y > part[hi].y {
				hi = k
			}
		}
		out = append(out, part[min(lo, hi)])
		if lo != hi {
			out = append(out, part[max(lo, hi)])
		}
	}
	return append(out, points[len(points)-1])
}

func valueRange(points []point, value func(point) float64) (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, p := range points {
		lo, hi = min(lo, value(p)), max(hi, value(p))
	}
	return lo, hi
}

// axisTicks returns about n ticks at round values for an axis from lo to hi, and the range from
// the first to the last tick, which includes lo and hi.
func axisTicks(lo, hi float64, n int) (ticks []float64, from, to float64) {
	if hi-lo <= math.Abs(hi)*1e-9 || hi-lo < 1e-100 {
		wider := math.Abs(hi) / 2
		if wider < 1e-100 {
			wider = 1
		}
		lo, hi = lo-wider, hi+wider
	}
	raw := (hi - lo) / float64(n)
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	step := 10 * power
	for _, s := range []float64{1, 2, 5} {
		if s*power >= raw {
			step = s * power
			break
		}
	}
	first, last := math.Floor(lo/step), math.Ceil(hi/step)
	for k := first; k <= last && len(ticks) < 4*n; k++ {
		ticks = append(ticks, k*step)
	}
	return ticks, first * step, last * step
}

func formatPixel(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

// formatValue formats a number with 4 digits, and with k, M, or G for large values.
func formatValue(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e15:
		return strconv.FormatFloat(v, 'g', 3, 64)
	case a >= 1e9:
		return strconv.FormatFloat(v/1e9, 'g', 4, 64) + "G"
	case a >= 1e6:
		return strconv.FormatFloat(v/1e6, 'g', 4, 64) + "M"
	case a >= 1e4:
		return strconv.FormatFloat(v/1e3, 'g', 4, 64) + "k"
	case a >= 1000:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

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
	listed := slowestRanks(ranks, maxBars)
	hi := 0.0
	for _, r := range listed {
		hi = max(hi, r.High)
	}
	ticks, _, hi := axisTicks(0, hi, 4)
	y := func(v float64) float64 { return chartHeight - bottom - v/hi*(chartHeight-top-bottom) }
	b := &rankChart{Cut: len(ranks) - len(listed)}
	for _, t := range ticks {
		b.Y = append(b.Y, tick{formatPixel(y(t)), formatValue(t)})
	}
	slot := (chartWidth - left - right) / float64(len(listed))
	width := min(slot*0.7, 40)
	every := (len(listed) + 15) / 16 // show every nth label, at most 16
	for i, r := range listed {
		center := left + slot*(float64(i)+0.5)
		n := bar{X: formatPixel(center - width/2), W: formatPixel(width), Y: formatPixel(y(r.Median)), H: formatPixel(chartHeight - bottom - y(r.Median)),
			Low: formatPixel(y(r.Low)), High: formatPixel(y(r.High)), Middle: formatPixel(center), Class: "bar"}
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
