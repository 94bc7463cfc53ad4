package cpu

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/gemm"
)

// MatMul computes a matrix multiplication.
func (d *Device) MatMul(p device.Product) {
	if p.ColumnSum.Len() > 0 {
		if p.Bias.Len() > 0 || p.Activation != device.Identity {
			panic("cpu: matrix multiplication with a column sum cannot have a bias or an activation")
		}
		d.ColumnSum(p.ColumnSum, p.B, p.Accumulate)
	}
	from := gemm.Zero()
	switch {
	case p.Accumulate && (p.Bias.Len() > 0 || p.Activation != device.Identity):
		panic("cpu: matrix multiplication with accumulate cannot have a bias or an activation")
	case p.Accumulate:
		from = gemm.Accumulate()
	case p.Bias.Len() > 0:
		from = gemm.Bias(p.Bias.Floats())
	}
	if p.Activation == device.Identity {
		multiply(d.products, p.Precision, matrix(p.C), matrix(p.A), matrix(p.B), from)
		return
	}
	if p.Pre.Rows != p.C.Rows || p.Pre.Cols != p.C.Cols {
		panic(fmt.Sprintf("cpu: the product is %dx%d, before its activation %dx%d", p.C.Rows, p.C.Cols, p.Pre.Rows, p.Pre.Cols))
	}
	whole("a product", p.C)
	whole("a product before its activation", p.Pre)
	if p.Gradient {
		if p.Bias.Len() > 0 || p.Activation != device.GELU {
			panic("cpu: matrix multiplication with an activation gradient supports only GELU without a bias")
		}
		multiply(d.products, p.Precision, matrix(p.C), matrix(p.A), matrix(p.B), from)
		d.ActivateGrad(p.Activation, p.C.Data, p.C.Data, p.Pre.Data, p.C.Data)
		return
	}
	multiply(d.products, p.Precision, matrix(p.Pre), matrix(p.A), matrix(p.B), from)
	d.Activate(p.Activation, p.C.Data, p.Pre.Data)
}

// multiply computes a matrix multiplication in the given precision.
func multiply(ws *gemm.Workspace, p device.Precision, c, a, b gemm.Matrix, from gemm.Start) {
	if p == device.BF16 {
		gemm.BFloat16(ws, c, a, b, from)
		return
	}
	gemm.Float32(ws, c, a, b, from)
}

func matrix(m device.Matrix) gemm.Matrix {
	return gemm.Matrix{Data: m.Data.Floats(), Rows: m.Rows, Cols: m.Cols, RowStride: m.RowStride, ColStride: m.ColStride}
}
