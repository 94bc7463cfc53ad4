package collective

import "math/bits"

// fromRoot returns this rank's distance from the root. rankAt returns the rank at a distance.
func (x *exchange) fromRoot() int       { return (x.rank - x.call.Root + x.n) % x.n }
func (x *exchange) rankAt(away int) int { return (x.call.Root + away) % x.n }

// treeBroadcast passes a small buffer down a binomial tree.
func (x *exchange) treeBroadcast(buf []byte) error {
	away := x.fromRoot()
	x.steps = uint32(bits.Len(uint(x.n - 1)))
	far := 1
	for ; far < x.n; far *= 2 {
		if away&far != 0 {
			if err := x.wait(x.post(x.rankAt(away-far), uint32(bits.Len(uint(far))-1), buf), nil); err != nil {
				return err
			}
			break
		}
	}
	for far /= 2; far >= 1; far /= 2 {
		if away+far < x.n {
			x.send(x.rankAt(away+far), uint32(bits.Len(uint(far))-1), buf)
		}
	}
	return nil
}

// chainBroadcast passes a large buffer from rank to rank. Each rank forwards segments on arrival.
func (x *exchange) chainBroadcast(buf []byte) error {
	away := x.fromRoot()
	last := away == x.n-1
	var in incoming
	if away > 0 {
		in = x.post(x.rankAt(away-1), 0, buf)
		x.announce(x.rankAt(away-1), len(buf))
	}
	if !last {
		if err := x.awaitReady(x.rankAt(away+1), len(buf)); err != nil {
			return err
		}
	}
	if away == 0 {
		x.send(x.rankAt(1), 0, buf)
		return nil
	}
	return x.wait(in, func(i uint32, from, to int) {
		if !last {
			x.sendSegment(x.rankAt(away+1), 0, i, buf[from:to])
		}
	})
}
