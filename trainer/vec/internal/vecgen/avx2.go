package main

import (
	"fmt"
	"slices"
)

// avx2 requires AVX2. Register 15 holds the mask of the elements before the end. Kernels with
// uint16 arrays stop at whole registers, because AVX2 has no masks for them.
var avx2 = target{
	name: "avx2", reg: "Y", registers: 15, bytes: 32,
	names: map[kind]map[string]string{
		float: {"add": "VADDPS", "sub": "VSUBPS", "mul": "VMULPS", "div": "VDIVPS", "max": "VMAXPS", "min": "VMINPS",
			"sqrt": "VSQRTPS"},
		word: {"add": "VPADDD", "sub": "VPSUBD", "mul": "VPMULLD", "and": "VPAND", "or": "VPOR", "xor": "VPXOR",
			"larger": "VPMAXUD", "shl": "VPSLLD", "shr": "VPSRLD", "sar": "VPSRAD"},
		double: {"add": "VADDPD", "mul": "VMULPD"},
		mask:   {"greater": "VCMPPS $30,", "unordered": "VCMPPS $3,", "equal": "VPCMPEQD"},
	},
	tailMask: []string{"LEAQ ones<>+256(SB), BX", "NEGQ CX", "VMOVDQU (BX)(CX*4), Y15", "NEGQ CX"},
	load: func(w *writer, n *node, address string, register int, masked bool) {
		switch {
		case n.op == "loadHalf":
			w.op("VPMOVZXWD %s, Y%d", address, register)
		case n.op == "loadDouble" && masked:
			w.op("VMASKMOVPS %s, X15, X%d", address, register)
			w.op("VCVTPS2PD X%[1]d, Y%[1]d", register)
		case n.op == "loadDouble":
			w.op("VCVTPS2PD %s, Y%d", address, register)
		case masked:
			w.op("VMASKMOVPS %s, Y15, Y%d", address, register)
		default:
			w.op("VMOVUPS %s, Y%d", address, register)
		}
	},
	store: func(w *writer, n *node, address string, register, spare int, masked bool) {
		switch {
		case n.op == "storeHalf":
			w.op("VEXTRACTI128 $1, Y%d, X%d", register, spare)
			w.op("VPACKUSDW X%[1]d, X%[2]d, X%[1]d", spare, register)
			w.op("VMOVDQU X%d, %s", spare, address)
		case masked:
			w.op("VMASKMOVPS Y%d, Y15, %s", register, address)
		default:
			w.op("VMOVUPS Y%d, %s", register, address)
		}
	},
	index: func(w *writer, register, first int) {
		w.op("VMOVD AX, X%d", register)
		w.op("VPBROADCASTD X%[1]d, Y%[1]d", register)
		w.op("VPADDD iota<>+%[1]d(SB), Y%[2]d, Y%[2]d", 4*first, register)
	},
	keep: func(w *writer, from, to int) { w.op("VBLENDVPS Y15, Y%[1]d, Y%[2]d, Y%[2]d", from, to) },
	fold: map[kind]map[int]string{
		float:  {4: "VPERM2F128 $1, Y%[1]d, Y%[1]d, Y%[2]d", 2: "VPERMILPS $0x4E, Y%d, Y%d", 1: "VPERMILPS $0xB1, Y%d, Y%d"},
		double: {2: "VPERM2F128 $1, Y%[1]d, Y%[1]d, Y%[2]d", 1: "VPERMILPD $5, Y%d, Y%d"},
	},
	data: func(w *writer, bits uint32) {
		w.data(fmt.Sprintf("const_%08x", bits), slices.Repeat([]uint32{bits}, 8))
	},
	tables: func(w *writer) {
		w.data("iota", counting(64))
		w.data("ones", append(slices.Repeat([]uint32{1<<32 - 1}, 64), make([]uint32, 8)...))
	},
}
