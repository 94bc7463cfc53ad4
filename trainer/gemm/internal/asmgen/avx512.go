package main

import "fmt"

// avx512 requires AVX512F. A tile of 14 rows and 32 columns uses registers 0 to 27. Registers 28
// and 29 hold B, and 30 and 31 alternate elements of A. Columns beyond the edge of B and C are
// masked, which costs nothing and cannot fault.
func avx512() target {
	multiply := func(w *writer, a, b, sum int) { w.op("VFMADD231PS Z%d, Z%d, Z%d", a, b, sum) }
	return target{
		name: "avx512", rows: 14, lanes: 16, reg: "Z",
		mask: []string{"KMOVW tile_mask0(DI), K1", "KMOVW tile_mask1(DI), K2"},
		zero: "VPXORD %[1]s, %[1]s, %[1]s",
		load: func(w *writer, address, register string, v int, _ bool) {
			w.op("VMOVUPS.Z %s, K%d, %s", address, v+1, register)
		},
		store: func(w *writer, address, register string, v int, _ bool) {
			w.op("VMOVUPS %s, K%d, %s", register, v+1, address)
		},
		loadB: func(w *writer, v int) {
			w.op("VMOVUPS.Z %s, K%d, Z%d", offset(v*64, "DX"), v+1, 28+v)
		},
		multiplyRow: func(w *writer, row, vectors int, address string) {
			if vectors == 1 {
				w.op("VFMADD231PS.BCST %s, Z28, Z%d", address, row)
				return
			}
			broadcast := 30 + row%2
			w.op("VBROADCASTSS %s, Z%d", address, broadcast)
			multiply(w, 28, broadcast, 2*row)
			multiply(w, 29, broadcast, 2*row+1)
		},
		multiply: multiply,
		packers:  []string{"CopyRows", "Transpose"},
		pack: func(w *writer) {
			w.text("Copies k rows of up to 32 columns.", "avx512CopyRows", "p")
			w.ops("MOVQ panel_src(DI), SI", "MOVQ panel_dst(DI), DX", "MOVQ panel_srcStride(DI), R8", "MOVQ panel_dstStride(DI), R9",
				"MOVQ panel_terms(DI), CX", "KMOVW panel_mask0(DI), K1", "KMOVW panel_mask1(DI), K2")
			w.label("loop")
			w.ops("VMOVUPS.Z (SI), K1, Z0", "VMOVUPS.Z 64(SI), K2, Z1", "VMOVUPS Z0, (DX)", "VMOVUPS Z1, 64(DX)",
				"ADDQ R8, SI", "ADDQ R9, DX", "DECQ CX", "JNZ loop", "VZEROUPPER", "RET")

			transpose(w, "Transposes up to 16 columns of k terms to rows.", "avx512Transpose", 16, func(register int, address string) {
				w.op("VMOVUPS.Z %s, K1, Z%d", address, register)
			})
		},
	}
}

// transpose writes a function that packs up to 16 columns, whose terms are contiguous, as rows, in
// squares of 16 registers. A register holds the given number of terms of a column. load loads them
// under masks: K1 for the first 16 terms, K2 for the others.
func transpose(w *writer, comment, name string, terms int, load func(register int, address string)) {
	w.text(comment, name, "p")
	w.ops("MOVQ panel_src(DI), SI", "MOVQ panel_dst(DI), DX", "MOVQ panel_srcStride(DI), R8", "MOVQ panel_terms(DI), CX", "MOVQ panel_cols(DI), AX",
		"LEAQ (R8)(R8*2), R9", "LEAQ (R8)(R8*4), R10", "LEAQ (R9)(R8*4), R11", "MOVL $-1, BX")
	w.label("loop")
	w.op("CMPQ CX, $%d", terms)
	w.ops("JGE whole", "MOVL $1, BX", "SHLL CX, BX", "DECL BX")
	w.label("whole")
	w.ops("KMOVW BX, K1", "SHRL $16, BX", "KMOVW BX, K2", "MOVL $-1, BX",
		"LEAQ (SI)(R8*8), R12", "ADDQ R8, R12", "LEAQ (R12)(R10*1), R13")
	for column := range 16 {
		address := fmt.Sprintf("(R13)(R8*%d)", column-14)
		switch {
		case column < 14:
			address = addressOfA[column]
		case column == 14:
			address = "(R13)"
		}
		load(column, address)
		if column < 15 {
			w.op("CMPQ AX, $%d", column+1)
			w.op("JEQ loaded")
		}
	}
	w.label("loaded")
	transpose16(w)
	w.op("SUBQ $%d, CX", terms)
	w.op("JLT part")
	for row := range 16 {
		w.op("VMOVUPS Z%d, %s", row, offset(row*128, "DX"))
	}
	w.op("ADDQ $%d, SI", terms*4)
	w.ops("ADDQ $2048, DX", "TESTQ CX, CX", "JNZ loop", "VZEROUPPER", "RET")
	w.label("part")
	for row := range 16 {
		w.op("VMOVUPS Z%d, %s", row, offset(row*128, "DX"))
		if row < 15 {
			// CX is the number of terms minus the terms of all registers.
			w.op("CMPQ CX, $%d", (row+1)*terms/16-terms)
			w.op("JLE done")
		}
	}
	w.label("done")
	w.ops("VZEROUPPER", "RET")
}

// transpose16 transposes the 16 registers from Z0. First it transposes each quarter in squares of
// four, then it exchanges the squares.
func transpose16(w *writer) {
	for i := 0; i < 16; i += 4 {
		w.op("VUNPCKLPS Z%d, Z%d, Z%d", i+1, i, 16+i)
		w.op("VUNPCKHPS Z%d, Z%d, Z%d", i+1, i, 17+i)
		w.op("VUNPCKLPS Z%d, Z%d, Z%d", i+3, i+2, 18+i)
		w.op("VUNPCKHPS Z%d, Z%d, Z%d", i+3, i+2, 19+i)
	}
	for i := 0; i < 16; i += 4 {
		w.op("VUNPCKLPD Z%d, Z%d, Z%d", 18+i, 16+i, i)
		w.op("VUNPCKHPD Z%d, Z%d, Z%d", 18+i, 16+i, i+1)
		w.op("VUNPCKLPD Z%d, Z%d, Z%d", 19+i, 17+i, i+2)
		w.op("VUNPCKHPD Z%d, Z%d, Z%d", 19+i, 17+i, i+3)
	}
	// Register 4q+r now holds, in its lane l, column 4l+r of rows 4q to 4q+3.
	for r := range 4 {
		w.op("VSHUFF32X4 $0x44, Z%d, Z%d, Z%d", 4+r, r, 16+r)    // rows 0-7 of columns r, 4+r
		w.op("VSHUFF32X4 $0xEE, Z%d, Z%d, Z%d", 4+r, r, 20+r)    // of columns 8+r, 12+r
		w.op("VSHUFF32X4 $0x44, Z%d, Z%d, Z%d", 12+r, 8+r, 24+r) // rows 8-15
		w.op("VSHUFF32X4 $0xEE, Z%d, Z%d, Z%d", 12+r, 8+r, 28+r)
	}
	for r := range 4 {
		w.op("VSHUFF32X4 $0x88, Z%d, Z%d, Z%d", 24+r, 16+r, r)
		w.op("VSHUFF32X4 $0xDD, Z%d, Z%d, Z%d", 24+r, 16+r, 4+r)
		w.op("VSHUFF32X4 $0x88, Z%d, Z%d, Z%d", 28+r, 20+r, 8+r)
		w.op("VSHUFF32X4 $0xDD, Z%d, Z%d, Z%d", 28+r, 20+r, 12+r)
	}
}
