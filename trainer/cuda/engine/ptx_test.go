//go:build cuda

package engine_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/gpusim"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/kernels"
)

// TestPTXMutations checks that TestPTX would find errors in the PTX.
func TestPTXMutations(t *testing.T) {
	gpusim.Require(t)
	const waitAndFence = "cp.async.wait_all;\n\t// end inline asm\n\t// begin inline asm\n\tfence.proxy.async.shared::cta;"
	for _, c := range []struct{ name, mutation, test, attention, want string }{
		{name: "no barriers", mutation: "bar.sync \t0;=>", test: "TestConformance/Losses", want: "race of thread"},
		{name: "one barrier less", mutation: `bar.sync 	0;(\s+ld.shared.f32[^;]*scratch)=>$1`, test: "TestConformance/Losses", want: "race of thread"},
		{name: "another operation", mutation: "add.rn.f32=>sub.rn.f32", test: "TestConformance/Losses", want: "the PTX and the host's code differ"},
		{name: "no fused multiplication", mutation: "fma.rn.f32=>mad.rn.f32", test: "TestConformance/Losses", want: "unknown"},
		{name: "matrices are not transposed", mutation: "x4.trans.shared=>x4.shared", test: "TestConformance/Attention", attention: "mma", want: "the PTX and the host's code differ"},
		{name: "other rows of the left matrix", mutation: `(mma.sync[^{]*[{][^}]*[}], [{])(%r[0-9]+),(%r[0-9]+),=>$1$3,$2,`, test: "TestConformance/Attention", attention: "mma", want: "the PTX and the host's code differ"},
		{name: "other rows of the right matrix", mutation: `(mma.sync[^{]*[{][^}]*[}], [{][^}]*[}], [{])(%r[0-9]+),(%r[0-9]+)[}]=>$1$3,$2}`, test: "TestConformance/Attention", attention: "mma", want: "the PTX and the host's code differ"},
		{name: "other destinations of matrices", mutation: `(ldmatrix[^{]*[{])(%r[0-9]+),(%r[0-9]+),=>$1$3,$2,`, test: "TestConformance/Attention", attention: "mma", want: "the PTX and the host's code differ"},
		{name: "pairs in the other order", mutation: `(cvt.rn.bf16x2.f32\s+%r[0-9]+), (%f[0-9]+), (%f[0-9]+);=>$1, $3, $2;`, test: "TestConformance/Attention", attention: "mma", want: "the PTX and the host's code differ"},
		{name: "misaligned reads", mutation: "ld.global.f32=>ld.global.f64", test: "TestConformance/Elementwise", want: "misaligned address"},
		{name: "reads beyond a tensor", mutation: "setp.ge.u64=>setp.gt.u64", test: "TestTwoSteps/mlp_precision_0", want: "bytes behind one of"},
		{name: "no writes to shared memory", mutation: "st.shared.f32=>// st.shared.f32", test: "TestConformance/Losses", want: "depends on uninitialized memory, which line"},
		{name: "a register that is not set", mutation: "mov.f32 \t%f=>// mov.f32", test: "TestConformance/Losses", want: "uninitialized register"},
		{name: "no fence", mutation: "fence.proxy.async.shared::cta;=>", test: "TestConformance/Attention", attention: "wgmma", want: "shared memory is not what it was at the last fence.proxy.async"},
		{name: "no wait for copies", mutation: "cp.async.wait_all;=>", test: "TestConformance/Attention", attention: "wgmma", want: "has not waited for its copy to shared memory"},
		{name: "a fence before the wait", mutation: waitAndFence + "=>fence.proxy.async.shared::cta;\ncp.async.wait_all;", test: "TestConformance/Attention", attention: "wgmma", want: "shared memory is not what it was at the last fence.proxy.async"},
		{name: "the same buffer", mutation: "(xor.b32 +\t%r[0-9]+, %r[0-9]+), 1;=>$1, 0;", test: "TestConformance/Attention", attention: "wgmma", want: "wgmma reads uninitialized shared memory"},
		{name: "another descriptor", mutation: "add.u64 b, b, 128;=>add.u64 b, b, 64;", test: "TestConformance/Attention", attention: "wgmma", want: "gpusim:"},
		{name: "unknown instruction", mutation: "shfl.sync.bfly.b32=>shfl.sync.up.b32", test: "TestConformance/Losses", want: "unknown shfl"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := gpusim.Again(t, c.test, "GPUSIM_KERNELS=compare", "GPUSIM_MUTATION="+c.mutation, "DDPBATCH_TEST_APART=1", "DDPBATCH_ATTENTION="+c.attention)
			if err == nil || !strings.Contains(out, c.want) {
				t.Errorf("%v, want %q\n%s", err, c.want, out)
			}
		})
	}
}

// TestPTX checks that the PTX of all kernels gives the same bits as the kernels that are compiled for
// the host: in the conformance suite, with large heads of attention and several tiles, in two steps of
// each model, and in graphs. It checks that these include each kernel. The interpreter also checks
// alignment, bounds, initialization, races, the waits of cp.async, and the fences of wgmma. Each tensor
// is an allocation.
func TestPTX(t *testing.T) {
	gpusim.Require(t)
	compared := filepath.Join(t.TempDir(), "compared")
	for _, c := range []struct{ name, test, passed, attention, fusion string }{
		{name: "operations", test: allButRepeat, passed: "TestConformance/Rules"},
		{name: "mma", test: "TestConformance/Attention", passed: "TestConformance/Attention", attention: "mma"},
		{name: "large heads", test: "TestAttentionOfLargeHeads", passed: "TestAttentionOfLargeHeads"},
		{name: "large heads with mma", test: "TestAttentionOfLargeHeads/128_precision_1", passed: "TestAttentionOfLargeHeads", attention: "mma"},
		{name: "several tiles", test: "TestAttentionOnWGMMA", passed: "TestAttentionOnWGMMA"},
		{name: "decisions", test: "TestStepDecisions", passed: "TestStepDecisions"},
		{name: "kept rows", test: "TestKeptRowsHaveTheSameBits", passed: "TestKeptRowsHaveTheSameBits"},
		{name: "graphs", test: "TestGroupsTrainTheSame/gpt_precision_1", passed: "TestGroupsTrainTheSame/gpt_precision_1"},
		{name: "graphs that differ", test: "TestGroupsThatDiffer", passed: "TestGroupsThatDiffer"},
		{name: "rounded weights", test: "TestRoundedWeightsTrainTheSame", passed: "TestRoundedWeightsTrainTheSame"},
		{name: "training", test: "TestTwoSteps", passed: "TestTwoSteps/gpt_precision_1"},
		{name: "training without fusion", test: "TestTwoSteps/gpt_precision_1", passed: "TestTwoSteps/gpt_precision_1", fusion: "none"},
		{name: "training with mma", test: "TestTwoSteps/gpt_precision_1", passed: "TestTwoSteps/gpt_precision_1", attention: "mma"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := gpusim.Again(t, c.test, "GPUSIM_KERNELS=compare", "DDPBATCH_TEST_APART=1", "GPUSIM_COMPARED="+compared, "DDPBATCH_ATTENTION="+c.attention, "DDPBATCH_FUSION="+c.fusion)
			if err != nil || !strings.Contains(out, "--- PASS: "+c.passed) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	text, err := os.ReadFile(compared)
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Fields(string(text))
	for _, module := range slices.Concat(kernels.Modules(), kernels.HopperModules()) {
		for _, name := range kernels.Names(module) {
			if !slices.Contains(names, name) {
				t.Errorf("kernel %s of %s was not compared", name, module)
			}
		}
	}
}
