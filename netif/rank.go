package netif

import "fmt"

// A rating holds the properties by which usable interfaces or networks are ranked. For a
// network, each value is the worst of its hosts.
type rating struct {
	preferred    bool // by the caller
	class        class
	kind         string // of the virtual link, for messages
	rdma         bool
	speed        int // Mb/s, -1 if unknown
	mtu          int // bytes
	defaultRoute bool
	index        int
}

// worst merges the ratings of one network on two hosts. It retains the higher index, so that
// the order of the hosts does not matter.
func (r rating) worst(o rating) rating {
	if o.class < r.class {
		r.class, r.kind = o.class, o.kind
	}
	r.preferred = r.preferred && o.preferred
	r.rdma = r.rdma && o.rdma
	r.speed = min(r.speed, o.speed)
	r.mtu = min(r.mtu, o.mtu)
	r.defaultRoute = r.defaultRoute && o.defaultRoute
	r.index = max(r.index, o.index)
	return r
}

// A criterion compares candidates by one property.
type criterion struct {
	// value returns the property; higher is better. A candidate with an unknown value neither
	// beats another candidate nor loses to it.
	value func(rating) (v int, known bool)
	// praise describes the winner's advantage.
	praise func(rating) string
	// blame describes what the loser lacks. The better candidate is called name.
	blame func(loser, better rating, name string) string
}

// criteria are applied in this order. Each one compares only the candidates that remain.
var criteria = []criterion{
	{
		value:  func(r rating) (int, bool) { return truth(r.preferred), true },
		praise: func(rating) string { return "being the site's fast network" },
		blame:  func(_, _ rating, name string) string { return fmt.Sprintf("%s is the site's fast network", name) },
	},
	{
		value:  func(r rating) (int, bool) { return int(r.class), true },
		praise: func(r rating) string { return r.class.String() },
		blame: func(l, b rating, name string) string {
			return fmt.Sprintf("it is virtual (%s) and %s is %s", l.kind, name, b.class)
		},
	},
	{
		value:  func(r rating) (int, bool) { return truth(r.rdma), true },
		praise: func(rating) string { return "RDMA" },
		blame:  func(_, _ rating, name string) string { return fmt.Sprintf("it has no RDMA and %s has", name) },
	},
	{
		value:  func(r rating) (int, bool) { return r.speed, r.speed > 0 },
		praise: func(r rating) string { return speedText(r.speed) },
		blame: func(l, b rating, name string) string {
			return fmt.Sprintf("it is slower: %s against %s on %s", speedText(l.speed), speedText(b.speed), name)
		},
	},
	{
		value:  func(r rating) (int, bool) { return r.mtu, true },
		praise: func(r rating) string { return fmt.Sprintf("mtu %d", r.mtu) },
		blame: func(l, b rating, name string) string {
			return fmt.Sprintf("its packets are smaller: mtu %d against %d on %s", l.mtu, b.mtu, name)
		},
	},
	{
		value:  func(r rating) (int, bool) { return truth(r.defaultRoute), true },
		praise: func(rating) string { return "the default route" },
		blame:  func(_, _ rating, name string) string { return fmt.Sprintf("the default route is on %s", name) },
	},
	{
		value:  func(r rating) (int, bool) { return -r.index, true },
		praise: func(rating) string { return "coming first of equals" },
		blame:  func(_, _ rating, name string) string { return fmt.Sprintf("%s, otherwise equal, comes first", name) },
	},
}

// A defeat is the criterion by which a candidate lost, and the index of the winner.
type defeat struct {
	criterion *criterion
	to        int
}

// A ranking is the result of rank.
type ranking struct {
	winner  int
	defeats []defeat     // by candidate; zero for the winner
	merits  []*criterion // criteria that distinguished the winner, in order
}

// rank picks the best of at least one rating. The first of several equal ratings wins.
func rank(rs []rating) ranking {
	out := ranking{defeats: make([]defeat, len(rs))}
	alive := make([]int, len(rs))
	for i := range rs {
		alive[i] = i
	}
	for c := range criteria {
		q := &criteria[c]
		best, top := -1, 0
		for _, i := range alive {
			if v, known := q.value(rs[i]); known && (best < 0 || v > top) {
				best, top = i, v
			}
		}
		var left []int
		for _, i := range alive {
			if v, known := q.value(rs[i]); known && v < top {
				out.defeats[i] = defeat{criterion: q, to: best}
			} else {
				left = append(left, i)
			}
		}
		if len(left) < len(alive) {
			out.merits = append(out.merits, q)
		}
		alive = left
	}
	last := &criteria[len(criteria)-1]
	for _, i := range alive[1:] {
		out.defeats[i] = defeat{criterion: last, to: alive[0]}
	}
	out.winner = alive[0]
	return out
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

// speedText formats a speed in Mb/s.
func speedText(mbps int) string {
	switch {
	case mbps <= 0:
		return "unknown speed"
	case mbps%1000 == 0:
		return fmt.Sprintf("%d Gb/s", mbps/1000)
	default:
		return fmt.Sprintf("%d Mb/s", mbps)
	}
}
