package main

// avx2 requires AVX2 and FMA. A tile of 6 rows and 16 columns uses registers 0 to 11. Registers 12
// and 13 hold B, and 14 and 15 alternate elements of A, or hold the masks of C. B is not masked: a
// panel that is narrower than its registers is packed.
func avx2() target {
	multiply := func(w *writer, a, b, sum int) { w.op("VFMADD231PS Y%d, Y%d, Y%d", a, b, sum) }
	return target{
		name: "avx2", rows: 6, lanes: 8, reg: "Y",
		mask:   []string{"MOVQ tile_lanes(DI), R14", "VMOVDQU (R14), Y14", "VMOVDQU 32(R14), Y15"},
		narrow: true,
		zero:   "VXORPS %[1]s, %[1]s, %[1]s",
		load: func(w *writer, address, register string, v int, _ bool) {
			w.op("VMASKMOVPS %s, Y%d, %s", address, 14+v, register)
		},
		store: func(w *writer, address, register string, v int, masked bool) {
			if masked {
				w.op("VMASKMOVPS %s, Y%d, %s", register, 14+v, address)
				return
			}
			w.op("VMOVUPS %s, %s", register, address)
		},
		loadB: func(w *writer, v int) {
			w.op("VMOVUPS %s, Y%d", offset(v*32, "DX"), 12+v)
		},
		multiplyRow: func(w *writer, row, vectors int, address string) {
			broadcast := 14 + row%2
			w.op("VBROADCASTSS %s, Y%d", address, broadcast)
			for v := range vectors {
				multiply(w, 12+v, broadcast, row*vectors+v)
			}
		},
		multiply: multiply,
		packers:  []string{"CopyRows", "Transpose"},
		pack: func(w *writer) {
			w.text("Copies k rows of 16 columns.", "avx2CopyRows", "p")
			w.ops("MOVQ panel_src(DI), SI", "MOVQ panel_dst(DI), DX", "MOVQ panel_srcStride(DI), R8", "MOVQ panel_terms(DI), CX")
			w.label("loop")
			w.ops("VMOVUPS (SI), Y0", "VMOVUPS 32(SI), Y1", "VMOVUPS Y0, (DX)", "VMOVUPS Y1, 32(DX)",
				"ADDQ R8, SI", "ADDQ $64, DX", "DECQ CX", "JNZ loop", "VZEROUPPER", "RET")

			w.text("Transposes 8 columns to k rows. k is a multiple of 8.", "avx2Transpose", "p")
			w.ops("MOVQ panel_src(DI), SI", "MOVQ panel_dst(DI), DX", "MOVQ panel_srcStride(DI), R8", "MOVQ panel_terms(DI), CX",
				"LEAQ (R8)(R8*2), R9", "LEAQ (R8)(R8*4), R10", "LEAQ (R9)(R8*4), R11")
			w.label("loop")
			for row := range 8 {
				w.op("VMOVUPS %s, Y%d", addressOfA[row], row)
			}
			transpose8(w)
			w.ops("ADDQ $32, SI", "ADDQ $512, DX", "SUBQ $8, CX", "JNZ loop", "VZEROUPPER", "RET")
		},
	}
}

// transpose8 stores the 8 columns of the 8 registers from Y0 as rows of 64 bytes at DX.
func transpose8(w *writer) {
	for i := 0; i < 8; i += 4 {
		w.op("VUNPCKLPS Y%d, Y%d, Y%d", i+1, i, 8+i)
		w.op("VUNPCKHPS Y%d, Y%d, Y%d", i+1, i, 9+i)
		w.op("VUNPCKLPS Y%d, Y%d, Y%d", i+3, i+2, 10+i)
		w.op("VUNPCKHPS Y%d, Y%d, Y%d", i+3, i+2, 11+i)
	}
	for i := 0; i < 8; i += 4 {
		w.op("VUNPCKLPD Y%d, Y%d, Y%d", 10+i, 8+i, i)
		w.op("VUNPCKHPD Y%d, Y%d, Y%d", 10+i, 8+i, i+1)
		w.op("VUNPCKLPD Y%d, Y%d, Y%d", 11+i, 9+i, i+2)
		w.op("VUNPCKHPD Y%d, Y%d, Y%d", 11+i, 9+i, i+3)
	}
	// Register 4q+r now holds, in its half h, column 4h+r of rows 4q to 4q+3.
	for r := range 4 {
		w.op("VPERM2F128 $0x20, Y%d, Y%d, Y%d", 4+r, r, 8+r)
		w.op("VPERM2F128 $0x31, Y%d, Y%d, Y%d", 4+r, r, 12+r)
	}
	for i := range 8 {
		w.op("VMOVUPS Y%d, %s", 8+i, offset(i*64, "DX"))
	}
}
