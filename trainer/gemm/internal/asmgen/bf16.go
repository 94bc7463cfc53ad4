package main

import "fmt"

// bf16 requires AVX512F, AVX512BW, and AVX512_BF16. Its tiles equal the tiles of avx512, but an
// element of A and of B is a pair of bfloat16 values, of two terms. The even term is in the lower
// half.
func bf16() target {
	t := avx512()
	t.name = "bf16"
	t.multiply = dotPairs
	t.multiplyRow = func(w *writer, row, vectors int, address string) {
		broadcast := 30 + row%2
		w.op("VBROADCASTSS %s, Z%d", address, broadcast)
		for v := range vectors {
			dotPairs(w, 28+v, broadcast, row*vectors+v)
		}
	}
	t.packers = []string{"CopyRows", "Transpose", "Convert"}
	t.pack = func(w *writer) {
		w.text("Packs k rows of up to 32 columns as pairs of rows. An odd last row is paired with zeros.", "bf16CopyRows", "p")
		w.ops("MOVQ panel_src(DI), SI", "MOVQ panel_dst(DI), DX", "MOVQ panel_srcStride(DI), R8", "MOVQ panel_dstStride(DI), R9",
			"MOVQ panel_terms(DI), CX", "KMOVW panel_mask0(DI), K1", "KMOVW panel_mask1(DI), K2",
			"VMOVDQU64 bf16Pairs<>(SB), Z4", "SUBQ $2, CX", "JLT odd")
		w.label("loop")
		w.ops("VMOVUPS.Z (SI), K1, Z0", "VMOVUPS.Z 64(SI), K2, Z1", "VMOVUPS.Z (SI)(R8*1), K1, Z2", "VMOVUPS.Z 64(SI)(R8*1), K2, Z3")
		pairRows(w)
		w.ops("LEAQ (SI)(R8*2), SI", "ADDQ R9, DX", "SUBQ $2, CX", "JGE loop")
		w.label("odd")
		w.ops("CMPQ CX, $-1", "JNE done", "VMOVUPS.Z (SI), K1, Z0", "VMOVUPS.Z 64(SI), K2, Z1", "VPXORD Z2, Z2, Z2", "VPXORD Z3, Z3, Z3")
		pairRows(w)
		w.label("done")
		w.ops("VZEROUPPER", "RET")
		w.data("bf16Pairs", func(word int) int { return word/2 + word%2*16 })

		transpose(w, "Transposes up to 16 columns of k terms to rows of pairs.", "bf16Transpose", 32, func(register int, address string) {
			w.op("VMOVUPS.Z %s, K1, Z16", address)
			w.op("VMOVUPS.Z 64%s, K2, Z17", address)
			roundTwo(w, 16, 17, register)
		})

		w.text("Packs k rows as pairs of adjacent columns, padded to a full register.", "bf16Convert", "p")
		w.ops("MOVQ panel_src(DI), SI", "MOVQ panel_dst(DI), DX", "MOVQ panel_srcStride(DI), R8", "MOVQ panel_dstStride(DI), R9",
			"MOVQ panel_terms(DI), CX", "MOVQ panel_cols(DI), R10", "KMOVW panel_mask0(DI), K1", "KMOVW panel_mask1(DI), K2")
		w.label("row")
		w.ops("MOVQ SI, R11", "MOVQ DX, R12", "MOVQ R10, R13", "SUBQ $32, R13", "JLT tail")
		w.label("loop")
		w.ops("VMOVUPS (R11), Z0", "VMOVUPS 64(R11), Z1")
		roundTwo(w, 0, 1, 2)
		w.ops("VMOVUPS Z2, (R12)", "ADDQ $128, R11", "ADDQ $64, R12", "SUBQ $32, R13", "JGE loop")
		w.label("tail")
		w.ops("CMPQ R13, $-32", "JEQ next", "VMOVUPS.Z (R11), K1, Z0", "VMOVUPS.Z 64(R11), K2, Z1")
		roundTwo(w, 0, 1, 2)
		w.op("VMOVUPS Z2, (R12)")
		w.label("next")
		w.ops("ADDQ R8, SI", "ADDQ R9, DX", "DECQ CX", "JNZ row", "VZEROUPPER", "RET")
	}
	return t
}

// pairRows rounds two rows of two registers, Z0 and Z1, Z2 and Z3, and stores the pairs at DX. Z4
// is the permutation of the words.
func pairRows(w *writer) {
	for v := range 2 {
		roundTwo(w, v, 2+v, v)
		w.op("VPERMW Z%d, Z4, Z%d", v, v)
		w.op("VMOVUPS Z%d, %s", v, offset(v*64, "DX"))
	}
}

// dotPairs adds the products of the pairs in two registers to dst.
func dotPairs(w *writer, a, b, dst int) {
	w.encode("VDPBF16PS", 0xF3, 0x52, a, b, dst)
}

// roundTwo rounds two registers to one of bfloat16 values, with low in the lower half.
func roundTwo(w *writer, low, high, dst int) {
	w.encode("VCVTNE2PS2BF16", 0xF2, 0x72, low, high, dst)
}

// encode writes an instruction on 512-bit registers that Go's assembler does not support, with its
// prefix and opcode in map 0F38 with W 0 (Intel SDM volume 2, 2.7: EVEX). The registers are in the
// order of Go's assembler: the last is the destination.
func (w *writer) encode(name string, prefix, opcode, rm, v, reg int) {
	inverted := func(register, bit int) byte { return byte(^register >> bit & 1) }
	pp := map[int]byte{0x66: 1, 0xF3: 2, 0xF2: 3}[prefix]
	code := [6]byte{
		0x62,
		inverted(reg, 3)<<7 | inverted(rm, 4)<<6 | inverted(rm, 3)<<5 | inverted(reg, 4)<<4 | 2,
		byte(^v&15)<<3 | 1<<2 | pp,
		2<<5 | inverted(v, 4)<<3,
		byte(opcode),
		3<<6 | byte(reg&7)<<3 | byte(rm&7),
	}
	w.op("LONG $0x%02x%02x%02x%02x; WORD $0x%02x%02x // %s Z%d, Z%d, Z%d",
		code[3], code[2], code[1], code[0], code[5], code[4], name, rm, v, reg)
}

// data writes a table of 32 words.
func (w *writer) data(name string, word func(int) int) {
	w.WriteString("\n")
	for i := 0; i < 32; i += 4 {
		fmt.Fprintf(w, "DATA %s<>+%d(SB)/8, $0x%04x%04x%04x%04x\n", name, i*2, word(i+3), word(i+2), word(i+1), word(i))
	}
	fmt.Fprintf(w, "GLOBL %s<>(SB), RODATA|NOPTR, $64\n", name)
}
