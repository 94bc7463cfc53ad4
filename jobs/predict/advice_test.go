package predict

import (
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// TestAdviseBF16 checks that only a job in bf16 on a CPU without bf16 instructions gets the advice.
func TestAdviseBF16(t *testing.T) {
	for _, c := range []struct {
		name      string
		precision jobs.Precision
		hasBF16   bool
		want      string
	}{
		{"fp32", jobs.PrecisionFP32, false, ""},
		{"bf16 with instructions", jobs.PrecisionBF16, true, ""},
		{"bf16 without instructions", jobs.PrecisionBF16, false, `train.precision = "fp32": without bf16 instructions`},
	} {
		if got := adviseBF16(c.precision, c.hasBF16, "avx2"); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: got %q", c.name, got)
		}
	}
}
