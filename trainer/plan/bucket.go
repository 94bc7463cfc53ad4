package plan

import "github.com/ddpbatch/ddpbatch/trainer/ddp"

// bucket is a group of gradients that are reduced together.
type bucket struct {
	elements int
	flop     float64 // FLOPs of the backward pass from the previous bucket to this bucket's last gradient
}

// buckets returns the buckets of package ddp for this number of ranks, in the order in which they
// are reduced, with size bytes per gradient element.
func (w Work) buckets(size float64, ranks int) []bucket {
	ready, flop := make([]float64, len(w.Params)), 0.0 // FLOPs until each gradient is ready
	for _, r := range w.Backward {
		flop += r.FLOP
		ready[r.Param] = flop
	}
	var out []bucket
	before := 0.0
	for _, s := range (ddp.Options{FirstBucket: w.FirstBucket, Bucket: w.Bucket}).Spans(w.Params, ranks, int(size)) {
		now := before // a bucket waits for the previous buckets
		for _, at := range ready[s.First:s.End] {
			now = max(now, at)
		}
		out = append(out, bucket{s.Elements, now - before})
		before = now
	}
	return out
}
