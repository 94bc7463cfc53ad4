package random

import "math"

// The following functions replace the math package for the few arguments that occur here. They have
// no branches and are therefore faster, and they are bit-identical on every CPU, which math does
// not guarantee. Methods and coefficients are from FreeBSD's e_log.c, k_sin.c, and k_cos.c. The
// relative error is below 1e-15.

// mulAdd returns x*y+z with two roundings. The conversion prevents the compiler from using a fused
// multiply-add; an assignment would not.
func mulAdd(x, y, z float64) float64 { return float64(x*y) + z }

// logUnit returns the natural logarithm of x, 0 < x <= 1 and not subnormal.
func logUnit(x float64) float64 {
	const (
		ln2High = 6.93147180369123816490e-01
		ln2Low  = 1.90821492927058770002e-10

		l1 = 6.666666666666735130e-01
		l2 = 3.999999999940941908e-01
		l3 = 2.857142874366239149e-01
		l4 = 2.222219843214978396e-01
		l5 = 1.818357216161805012e-01
		l6 = 1.531383769920937332e-01
		l7 = 1.479819860510658591e-01

		sqrtHalf = 0x3fe6a09e667f3bcd // bits of sqrt(1/2)
	)
	// x = 2^k (1+f), sqrt(1/2) <= 1+f < sqrt(2)
	bits := int64(math.Float64bits(x)) - sqrtHalf
	k := float64(bits >> 52)
	f := math.Float64frombits(uint64(bits&(1<<52-1)+sqrtHalf)) - 1

	s := f / (2 + f)
	z := float64(s * s)
	w := float64(z * z)
	even := mulAdd(w, mulAdd(w, l6, l4), l2)
	odd := mulAdd(w, mulAdd(w, mulAdd(w, l7, l5), l3), l1)
	rest := mulAdd(z, odd, float64(w*even))

	square := float64(0.5 * f * f)
	low := mulAdd(s, square+rest, float64(k*ln2Low))
	return mulAdd(k, ln2High, f-(square-low))
}

// sincosTurn returns the sine and the cosine of x, 0 <= x <= 2 pi.
func sincosTurn(x float64) (sin, cos float64) {
	const (
		halfPiHigh = 1.57079632673412561417e+00 // the first 33 bits of pi/2
		halfPiLow  = 6.07710050650619224932e-11

		s1 = -1.66666666666666324348e-01
		s2 = 8.33333333332248946124e-03
		s3 = -1.98412698298579493134e-04
		s4 = 2.75573137070700676789e-06
		s5 = -2.50507602534068634195e-08
		s6 = 1.58969099521155010221e-10

		c1 = 4.16666666666666019037e-02
		c2 = -1.38888888888741095749e-03
		c3 = 2.48015872894767294178e-05
		c4 = -2.75573143513906633035e-07
		c5 = 2.08757232129817482790e-09
		c6 = -1.13596475577881948265e-11
	)
	// x = quarter pi/2 + r, |r| <= pi/4
	quarter := int(mulAdd(x, 2/math.Pi, 0.5))
	q := float64(quarter)
	r := mulAdd(-q, halfPiLow, mulAdd(-q, halfPiHigh, x))
	z := float64(r * r)

	p := mulAdd(z, mulAdd(z, mulAdd(z, mulAdd(z, mulAdd(z, s6, s5), s4), s3), s2), s1)
	sinR := mulAdd(float64(r*z), p, r)
	p = mulAdd(z, mulAdd(z, mulAdd(z, mulAdd(z, mulAdd(z, c6, c5), c4), c3), c2), c1)
	cosR := 1 - mulAdd(-z, float64(z*p), float64(0.5*z))

	turns := [4]float64{sinR, cosR, -sinR, -cosR}
	return turns[quarter&3], turns[(quarter+1)&3]
}
