package vec

// Dropout computes y = x*scale for elements whose random number is at least threshold, and 0 for
// others. Element i has the index first+i. Each index has one random uint32 for each key. To
// compute the gradient of x, apply Dropout to the gradient of y with the same indices: no mask is
// stored.
//
// To drop a fraction p < 1 of the elements, set threshold to p*2^32 and scale to 1/(1-p).
//
// The random number is a pure function of key and index: the low half of the index, xor a, through
// lowbias32 (Wellons 2018), plus b, through lowbias32 again. a and b are derived from the key and
// the high half of the index. It differs from PyTorch's generator and is not cryptographic.
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

// dropoutKeys mixes the key and the high half of the index. For each high half, different keys give
// different pairs.
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
