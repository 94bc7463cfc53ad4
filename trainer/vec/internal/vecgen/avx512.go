package main

import "fmt"

// avx512 requires AVX512F and BMI2. Elements beyond the end are masked, which cannot fault.
var avx512 = target{
	name: "avx512", reg: "Z", registers: 32, bytes: 64, broadcast: true, features: features{scalef: true, masks: true},
	names: map[kind]map[string]string{
		float: {"add": "VADDPS", "sub": "VSUBPS", "mul": "VMULPS", "div": "VDIVPS", "max": "VMAXPS", "min": "VMINPS",
			"sqrt": "VSQRTPS", "scale": "VSCALEFPS"},
		word: {"add": "VPADDD", "sub": "VPSUBD", "mul": "VPMULLD", "and": "VPANDD", "or": "VPORD", "xor": "VPXORD",
			"shl": "VPSLLD", "shr": "VPSRLD", "sar": "VPSRAD"},
		double: {"add": "VADDPD", "mul": "VMULPD"},
	},
	tailMask: []string{"MOVL $-1, BX", "BZHIL CX, BX, BX", "KMOVW BX, K1"},
	load: func(w *writer, n *node, address string, register int, masked bool) {
		name := map[string]string{"load": "VMOVUPS", "loadHalf": "VPMOVZXWD", "loadDouble": "VCVTPS2PD"}[n.op]
		if masked {
			w.op("%s.Z %s, K1, Z%d", name, address, register)
			return
		}
		w.op("%s %s, Z%d", name, address, register)
	},
	store: func(w *writer, n *node, address string, register, _ int, masked bool) {
		name := map[string]string{"store": "VMOVUPS", "storeHalf": "VPMOVDW"}[n.op]
		if masked {
			w.op("%s Z%d, K1, %s", name, register, address)
			return
		}
		w.op("%s Z%d, %s", name, register, address)
	},
	index: func(w *writer, register, first int) {
		w.op("VPBROADCASTD AX, Z%d", register)
		w.op("VPADDD iota<>+%d(SB), Z%d, Z%d", 4*first, register, register)
	},
	keep: func(w *writer, from, to int) { w.op("VMOVAPS Z%d, K1, Z%d", from, to) },
	choose: func(w *writer, compare, y, x, yes, no, to string) {
		w.op(map[string]string{
			"greater": "VCMPPS $30, %s, %s, K2", "unordered": "VCMPPS $3, %s, %s, K2", "atLeast": "VPCMPUD $5, %s, %s, K2",
		}[compare], y, x)
		w.op("VBLENDMPS %s, %s, K2, %s", yes, no, to)
	},
	fold: map[kind]map[int]string{
		float: {8: "VSHUFF64X2 $0x4E, Z%[1]d, Z%[1]d, Z%[2]d", 4: "VSHUFF64X2 $0xB1, Z%[1]d, Z%[1]d, Z%[2]d",
			2: "VPERMILPS $0x4E, Z%d, Z%d", 1: "VPERMILPS $0xB1, Z%d, Z%d"},
		double: {4: "VSHUFF64X2 $0x4E, Z%[1]d, Z%[1]d, Z%[2]d", 2: "VSHUFF64X2 $0xB1, Z%[1]d, Z%[1]d, Z%[2]d",
			1: "VPERMILPD $0x55, Z%d, Z%d"},
	},
	data:   func(w *writer, bits uint32) { w.data(fmt.Sprintf("const_%08x", bits), []uint32{bits}) },
	tables: func(w *writer) { w.data("iota", counting(64)) },
}

// counting returns the numbers from 0 to before n.
func counting(n uint32) []uint32 {
	var list []uint32
	for i := range n {
		list = append(list, i)
	}
	return list
}
