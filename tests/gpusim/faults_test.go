//go:build cuda

package gpusim_test

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/gpusim"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
)

// The interpreter's errors.
const (
	illegal    = "CUDA_ERROR_ILLEGAL_ADDRESS"
	misaligned = "CUDA_ERROR_MISALIGNED_ADDRESS"
	failed     = "CUDA_ERROR_LAUNCH_FAILED"
)

// A wholeWarp is the thread in the message of an error of a warp.
const wholeWarp = -1

// faults lists code of kernels with 32 threads, or more, and 64 bytes of dynamic shared memory. %rd1 is the
// address of 36 written bytes, %rd2 of 36 bytes that nothing has written, %rd3 of freed memory, and
// %r1 is the index of the thread.
var faults = []struct {
	name   string
	code   []string // the last line that is not indented is the one in the message
	thread int      // in the message
	block  int      // number of threads; 0: 32
	err    string   // none: the kernel is right
	want   string   // message
}{
	{name: "valid accesses", code: []string{"st.shared.u32 [%r3], %r1;", "ld.shared.u32 %r2, [%r3];", "st.global.u32 [%rd1+32], %r2;", "setp.eq.s32 %p2, %r1, 0;", "@%p2 st.shared.u64 [dynamic_shared+56], 0;"}},
	{name: "beyond an allocation", code: []string{"ld.global.u32 %r2, [%rd1+36];"}, err: illegal, want: "in no allocation, and 0 bytes behind one of 36 bytes"},
	{name: "across the end", code: []string{"ld.global.u64 %rd9, [%rd1+32];"}, err: illegal, want: "crosses the end of an allocation of 36 bytes"},
	{name: "before an allocation", code: []string{"ld.global.u32 %r2, [%rd1+-4];"}, err: illegal, want: "in no allocation"},
	{name: "null", code: []string{"ld.global.u32 %r2, [0];"}, err: illegal, want: "address 0x0: it is in no allocation"},
	{name: "the last address", code: []string{"ld.global.u32 %r2, [-4];"}, err: illegal, want: "address 0xfffffffffffffffc: it is in no allocation"},
	{name: "freed memory", code: []string{"ld.global.u32 %r2, [%rd3];"}, err: illegal, want: "in no allocation"},
	{name: "a write beyond", code: []string{"st.global.u32 [%rd1+36], %r1;"}, err: illegal, want: "in no allocation"},
	{name: "one thread beyond", code: []string{"mul.wide.u32 %rd9, %r1, 4;", "add.s64 %rd9, %rd9, %rd1;", "st.global.u32 [%rd9], %r1;"}, thread: 9, err: illegal, want: "in no allocation"},
	{name: "misaligned", code: []string{"ld.global.u32 %r2, [%rd1+2];"}, err: misaligned, want: "misaligned address 0x"},
	{name: "a misaligned vector", code: []string{"ld.global.v2.u32 {%r2, %r3}, [%rd1+4];"}, err: misaligned, want: "of 8 bytes"},
	{name: "beyond declared shared memory", code: []string{"st.shared.u32 [%r3+128], %r1;"}, err: illegal, want: "outside of shared memory: 128 bytes at 1024 are declared, and 64 at 1168 are dynamic"},
	{name: "beyond the launch's shared memory", code: []string{"st.shared.u32 [dynamic_shared+64], %r1;"}, err: illegal, want: "address 1232 is outside of shared memory"},
	{name: "before shared memory", code: []string{"mov.u32 %r2, room;", "ld.shared.u32 %r2, [%r2+-4];"}, err: illegal, want: "address 1020 is outside of shared memory"},
	{name: "the end of the address space", code: []string{"ld.shared.v4.u32 {%r2, %r4, %r5, %r6}, [-16];"}, err: illegal, want: "address 4294967280 is outside"},
	{name: "misaligned shared memory", code: []string{"st.shared.u32 [%r3+1], %r1;"}, err: misaligned, want: "misaligned shared address 1025"},
	{name: "beyond the parameters", code: []string{"ld.param.u64 %rd9, [PARAM_2+8];"}, err: illegal, want: "not in the parameters"},
	{name: "a race", code: []string{"st.shared.u32 [room], %r1;"}, thread: 1, err: failed, want: "race of thread 1"},
	{name: "unwritten memory", code: []string{"\tld.global.f32 %f1, [%rd2+8];", "\tadd.rn.f32 %f2, %f1, %f1;", "st.global.f32 [%rd1], %f2;"}, err: failed, want: "register %f2 depends on uninitialized memory, which line LINE-2 read at address 0x"},
	{name: "a copy of unwritten memory", code: []string{"ld.global.v2.u32 {%r2, %r4}, [%rd2];", "shfl.sync.bfly.b32 %r5, %r2, 1, 31, -1;", "selp.b32 %r5, %r5, %r4, %p1;", "st.shared.u32 [%r3], %r5;", "ld.shared.u32 %r6, [%r3];", "st.global.u32 [%rd1], %r6;"}},
	{name: "use of a copy", code: []string{"\tld.global.u32 %r2, [%rd2];", "\tst.global.u32 [%rd1], %r2;", "\tld.global.u32 %r4, [%rd1];", "\tadd.s32 %r4, %r4, 1;", "st.global.u32 [%rd1], %r4;"}, err: failed, want: "line LINE-2 read"},
	{name: "an unused result", code: []string{"ld.global.f32 %f1, [%rd2];", "add.rn.f32 %f2, %f1, %f1;", "selp.f32 %f2, 0f00000000, %f2, %p1;", "st.global.f32 [%rd1], %f2;"}},
	{name: "an unwritten condition", code: []string{"\tld.global.u32 %r2, [%rd2];", "\tsetp.eq.s32 %p2, %r2, 5;", "@%p2 st.global.u32 [%rd1], %r1;"}, err: failed, want: "register %p2 depends on"},
	{name: "an unwritten address", code: []string{"\tld.global.u64 %rd9, [%rd2];", "st.global.u32 [%rd9], %r1;"}, err: failed, want: "register %rd9 depends on"},
	{name: "partly written memory", code: []string{"\tst.global.u16 [%rd2], %rs1;", "\tld.global.u32 %r2, [%rd2];", "\tadd.s32 %r2, %r2, 1;", "st.global.u32 [%rd1], %r2;"}, err: failed, want: "register %r2 depends on"},
	{name: "unwritten shared memory", code: []string{"\tld.shared.u32 %r2, [%r3];", "\tadd.s32 %r2, %r2, 1;", "st.global.u32 [%rd1], %r2;"}, err: failed, want: "which line LINE-2 read at address 0x400"},
	{name: "an unwritten register", code: []string{"\tadd.s32 %r2, %r9, 1;", "st.global.u32 [%rd1], %r2;"}, err: failed, want: "uninitialized register %r2"},
	{name: "a register of some threads", code: []string{"\tsetp.ne.s32 %p2, %r1, 3;", "\t@%p2 mov.u32 %r9, 1;", "\tadd.s32 %r2, %r9, 1;", "st.shared.u32 [%r3], %r2;"}, thread: 3, err: failed, want: "uninitialized register %r2"},
	{name: "an unwritten matrix", code: []string{"\tld.global.f32 %f1, [%rd2];", "\tmov.u32 %r2, 0;", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f2,%f3,%f4,%f5}, {%r2,%r2,%r2,%r2}, {%r2,%r2}, {%f1,%f1,%f1,%f1};"}, err: failed, want: "register %f1 depends on"},
	{name: "copies", code: []string{"cp.async.ca.shared.global [%r3], [%rd1+32], 4;", "cp.async.wait_all;", "ld.shared.u32 %r2, [%r3];", "add.s32 %r2, %r2, 1;", "st.global.u32 [%rd1], %r2;", "bar.sync 0;", "setp.eq.s32 %p2, %r1, 0;", "@%p2 cp.async.cg.shared.global [room], [%rd1], 16;", "@%p2 cp.async.ca.shared.global [dynamic_shared+8], [%rd1+8], 8, 5;", "cp.async.commit_group;", "cp.async.wait_group 0;", "bar.sync 0;", "ld.shared.u32 %r2, [dynamic_shared+12];"}},
	{name: "a copy of zeros", code: []string{"mov.u32 %r2, 0;", "cp.async.ca.shared.global [%r3], [%rd1+36], 4, %r2;", "cp.async.wait_all;", "ld.shared.u32 %r2, [%r3];", "add.s32 %r2, %r2, 1;", "st.global.u32 [%rd1], %r2;"}},
	{name: "an earlier group", code: []string{"\tcp.async.ca.shared.global [%r3], [%rd1], 4;", "\tcp.async.commit_group;", "\tsetp.eq.s32 %p2, %r1, 0;", "\t@%p2 cp.async.ca.shared.global [dynamic_shared], [%rd1], 4;", "\tcp.async.commit_group;", "\tcp.async.wait_group 1;", "\tld.shared.u32 %r2, [%r3];", "@%p2 ld.shared.u32 %r2, [dynamic_shared];"}, err: failed, want: "thread 0 has not waited for its copy to shared memory at 1168"},
	{name: "a copy of no group", code: []string{"\tcp.async.ca.shared.global [%r3], [%rd1], 4;", "\tcp.async.wait_group 0;", "ld.shared.u32 %r2, [%r3];"}, err: failed, want: "thread 0 has not waited"},
	{name: "a write before the wait", code: []string{"\tcp.async.ca.shared.global [%r3], [%rd1], 4;", "st.shared.u32 [%r3], %r1;"}, err: failed, want: "thread 0 has not waited"},
	{name: "another copy before the wait", code: []string{"\tcp.async.ca.shared.global [%r3], [%rd1], 4;", "cp.async.ca.shared.global [%r3], [%rd1], 4;"}, err: failed, want: "thread 0 has not waited"},
	{name: "another thread before the wait", code: []string{"\tsetp.eq.s32 %p2, %r1, 1;", "\t@%p2 cp.async.cg.shared.global [room], [%rd1], 16;", "\tbar.sync 0;", "ld.shared.u16 %rs2, [room+2];"}, err: failed, want: "thread 1 has not waited for its copy to shared memory at 1026"},
	{name: "a copy without a barrier", code: []string{"\tsetp.eq.s32 %p2, %r1, 0;", "\t@%p2 cp.async.cg.shared.global [room], [%rd1], 16;", "\tbar.sync 0;", "\tcp.async.wait_all;", "ld.shared.u32 %r2, [room];"}, thread: 1, err: failed, want: "race of thread 1"},
	{name: "a copy over another thread's data", code: []string{"\tld.shared.u32 %r2, [room];", "\tsetp.eq.s32 %p2, %r1, 0;", "@%p2 cp.async.cg.shared.global [room], [%rd1], 16;"}, err: failed, want: "race of thread 0"},
	{name: "a copy to a misaligned address", code: []string{"cp.async.ca.shared.global [%r3+4], [%rd1], 8;"}, err: misaligned, want: "misaligned shared address 1028"},
	{name: "a copy from a misaligned address", code: []string{"cp.async.ca.shared.global [%r3], [%rd1+2], 4;"}, err: misaligned, want: "misaligned address 0x"},
	{name: "a copy from beyond an allocation", code: []string{"cp.async.cg.shared.global [room], [%rd1+32], 16;"}, err: illegal, want: "crosses the end of an allocation of 36 bytes"},
	{name: "a copy beyond shared memory", code: []string{"\tsetp.eq.s32 %p2, %r1, 0;", "@%p2 cp.async.cg.shared.global [dynamic_shared+64], [%rd1], 16;"}, err: illegal, want: "address 1232 is outside of shared memory"},
	{name: "a copy of too many bytes", code: []string{"\tmov.u32 %r2, 5;", "cp.async.ca.shared.global [%r3], [%rd1], 4, %r2;"}, err: failed, want: "a copy of 5 of 4 bytes"},
	{name: "a copy of unwritten global memory", code: []string{"\tcp.async.ca.shared.global [%r3], [%rd2], 4;", "\tcp.async.wait_all;", "\tld.shared.u32 %r2, [%r3];", "\tadd.s32 %r2, %r2, 1;", "st.global.u32 [%rd1], %r2;"}, err: failed, want: "which line LINE-2 read at address 0x400"},
	{name: "an undefined copy", code: []string{"cp.async.ca.shared.global [%r3], [%rd1], 4, %r9;"}, err: failed, want: "uninitialized register %r9"},
	{name: "a barrier of some warps", block: 48, code: []string{"setp.lt.s32 %p2, %r1, 32;", "@%p2 ret;", "bar.sync 0;", "st.global.u32 [%rd1], %r1;"}},
	{name: "a barrier after a branch", code: []string{"\tsetp.lt.s32 %p2, %r1, 16;", "\t@%p2 bra $L1;", "mov.u32 %r2, 1;", "$L1:", "bar.sync 0;"}},
	{name: "a barrier of half a warp", code: []string{"\tsetp.lt.s32 %p2, %r1, 16;", "\t@%p2 bra $L1;", "bar.sync 0;", "\t$L1:"}, thread: wholeWarp, err: failed, want: "it is not executed by all threads of the warp"},
	{name: "a barrier after half a warp has ended", code: []string{"\tsetp.lt.s32 %p2, %r1, 16;", "\t@%p2 ret;", "bar.sync 0;"}, thread: wholeWarp, err: failed, want: "it is not executed by all threads of the warp"},
	{name: "two barriers", code: []string{"\tsetp.lt.s32 %p2, %r1, 16;", "\t@%p2 bra $L1;", "\tbar.sync 0;", "\tbra.uni $L2;", "\t$L1:", "bar.sync 0;", "\t$L2:"}, thread: wholeWarp, err: failed, want: "it is not executed by all threads of the warp"},
	{name: "a barrier and an instruction of the warp", code: []string{"\tsetp.lt.s32 %p2, %r1, 16;", "\t@%p2 bra $L1;", "\tbar.sync 0;", "\t$L1:", "shfl.sync.bfly.b32 %r5, %r1, 1, 31, -1;"}, thread: wholeWarp, err: failed, want: "it is not executed by all threads of the warp"},
	{name: "a predicated barrier", code: []string{"\tsetp.lt.s32 %p2, %r1, 16;", "@%p2 bar.sync 0;"}, thread: wholeWarp, err: failed, want: "a predicate at a barrier"},
	{name: "a shuffle of half a warp", code: []string{"\tsetp.lt.s32 %p2, %r1, 16;", "\t@%p2 bra $L1;", "shfl.sync.bfly.b32 %r5, %r1, 1, 31, -1;", "\t$L1:"}, thread: wholeWarp, err: failed, want: "it is not executed by all threads of the warp"},
	{name: "a predicated shuffle", code: []string{"\tsetp.lt.s32 %p2, %r1, 16;", "@%p2 shfl.sync.bfly.b32 %r5, %r1, 1, 31, -1;"}, thread: wholeWarp, err: failed, want: "a predicate at an instruction of the whole warp"},
}

// faultModule returns PTX for a kernel, and the line of the last code that is not indented.
func faultModule(kernel string, code []string) (text string, line int) {
	const head = `.version 7.0
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 dynamic_shared[];
.visible .entry KERNEL(
	.param .u64 PARAM_0,
	.param .u64 PARAM_1,
	.param .u64 PARAM_2
)
.maxntid 64, 1, 1
{
	.shared .align 4 .b8 room[128];
	ld.param.u64 %rd1, [PARAM_0];
	ld.param.u64 %rd2, [PARAM_1];
	ld.param.u64 %rd3, [PARAM_2];
	mov.u32 %r1, %tid.x;
	shl.b32 %r3, %r1, 2;
	mov.u32 %r8, room;
	add.s32 %r3, %r3, %r8;
	setp.ge.s32 %p1, %r1, 0;
	mov.u16 %rs1, 3;
`
	text = strings.ReplaceAll(head, "KERNEL", kernel)
	for _, c := range code {
		text += c + "\n"
		if !strings.HasPrefix(c, "\t") {
			line = strings.Count(text, "\n")
		}
	}
	return text + "ret;\n// -- End function\n}\n", line
}

// TestKernelFaults checks that the interpreter reports accesses out of bounds, misaligned accesses,
// and use of memory and registers that nothing has written: as CUDA's error, and in its log with
// kernel, thread, line, and address. It reports no valid access.
func TestKernelFaults(t *testing.T) {
	gpusim.Require(t)
	if os.Getenv("GPUSIM_TEST") != "" {
		runFaults(t)
	}
	out, err := gpusim.Again(t, t.Name(), "GPUSIM_TEST=1", "GPUSIM_KERNELS=ptx", fmt.Sprint("GPUSIM_DEVICES=", len(faults)))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for i, c := range faults {
		t.Run(c.name, func(t *testing.T) {
			kernel := fmt.Sprintf("fault_%d_", i)
			_, line := faultModule(kernel, c.code)
			var result, log string
			for l := range strings.Lines(out) {
				if rest, ok := strings.CutPrefix(l, "result "+kernel+": "); ok {
					result = rest
				}
				if strings.HasPrefix(l, "gpusim: ptx: kernel "+kernel+",") {
					log += l
				}
			}
			if c.err == "" {
				if result != "<nil>\n" || log != "" {
					t.Errorf("%s%s", result, log)
				}
				return
			}
			last := ""
			for _, l := range c.code {
				if !strings.HasPrefix(l, "\t") {
					last = l
				}
			}
			who := fmt.Sprint("thread ", c.thread)
			if c.thread == wholeWarp {
				who = "warp 0"
			}
			where := fmt.Sprintf("block 0,0,0, %s, line %d (%s): ", who, line, strings.TrimSuffix(last, ";"))
			want := strings.ReplaceAll(c.want, "LINE-2", fmt.Sprint(line-2))
			if !strings.Contains(result, c.err) || strings.Count(log, "\n") != 1 || !strings.Contains(log, where) || !strings.Contains(log, want) {
				t.Errorf("%s%swant %s, %q, %q", result, log, c.err, where, want)
			}
		})
	}
}

// runFaults runs each kernel on a separate GPU, because no other kernel can run there after an
// error.
func runFaults(t *testing.T) {
	const bytes = 36
	for i, c := range faults {
		g := must[*driver.GPU](t)(driver.Open(i))
		unbind := must[func()](t)(g.Bind())
		s := must[driver.Stream](t)(driver.NewStream(0))
		name := fmt.Sprintf("fault_%d_", i)
		text, _ := faultModule(name, c.code)
		m := must[*driver.Module](t)(driver.LoadPTX(name, text))
		f := must[*driver.Function](t)(m.Function(name))
		var p [3]driver.Ptr
		for j := range p {
			p[j] = must[driver.Ptr](t)(driver.Alloc(bytes))
		}
		check(t, driver.Free(p[2]))
		check(t, s.Clear(p[0], bytes))
		var a driver.Args
		check(t, s.Launch(f, driver.Launch{Block: driver.Dim{X: cmp.Or(c.block, 32)}, Shared: 64}, a.Ptr(p[0]).Ptr(p[1]).Ptr(p[2])))
		fmt.Printf("result %s: %v\n", name, s.Synchronize())
		unbind()
	}
	os.Exit(map[bool]int{true: 1}[t.Failed()]) // contexts with an error cannot be closed
}
