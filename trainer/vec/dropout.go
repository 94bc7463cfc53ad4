package vec

// Dropout computes y = x*scale where the random number of the element is at or
// above threshold, and 0 elsewhere. Element i has the number first+i; each number
// has one random uint32 for each key. The gradient of x is Dropout of that of y,
// with the same numbers: nothing is kept for it.
//
// To drop a part p of the elements, below 1, threshold is p*2^32 and scale 1/(1-p).
//
// The random number is a pure function of key and number: the number's low half,
// xor a, through lowbias32 (Wellons 2018), plus b, through lowbias32 again, where a
// and b are mixed of the key and the number's high half. It is not PyTorch's, and
// not for secrets.
func (u *Unit) Dropout(y, x []float32, scale float32, threshold uint32, key, first uint64) {
	same(len(y), len(x))
	for len(x) > 0 {
		low, high := uint32(first), uint32(first>>32)
		n := len(x)
		if left := 1<<32 - uint64(low); uint64(n) > left {
			n = int(left)
		}
		a, b := dropoutKeys(key, high)
		u.dropout(y[:n], x[:n], scale, low, a, b, threshold)
		y, x, first = y[n:], x[n:], first+uint64(n)
	}
}

// dropoutKeys mixes the key and the high half of the number. For each high half,
// different keys give different pairs.
func dropoutKeys(key uint64, high uint32) (a, b uint32) {
	low, top := uint32(key), uint32(key>>32)
	a = lowbias32(low + lowbias32(high+top))
	return a, lowbias32(top ^ a)
}

func lowbias32(x uint32) uint32 {
	x = (x ^ x>>16) * 0x7feb352d
	x = (x ^ x>>15) * 0x846ca68b
	return x ^ x>>16
}
