package slurm

import "testing"

func TestBindTogether(t *testing.T) {
	const lumi = "mask_cpu:fe000000000000,fe00000000000000,fe0000,fe000000,fe,fe00,fe00000000,fe0000000000"
	for _, tt := range []struct {
		bind  string
		tasks int
		want  string
	}{
		{"", 4, ""},
		{"none", 4, "none"},
		{"cores", 4, "cores"},
		{"verbose,cores", 4, "verbose,cores"},
		{lumi, 8, "mask_cpu:0xfefefefefefefefe"},
		{lumi, 2, "mask_cpu:0xfefe000000000000"},
		{"quiet,mask_cpu:0x1,0x2", 2, "quiet,mask_cpu:0x3"},
		{"mask_cpu:0x1", 4, "mask_cpu:0x1"},
		{"mask_cpu:0x1*2,0x2*2", 4, "mask_cpu:0x3"},
		{"mask_cpu:0x1*2,0x2*2", 2, "mask_cpu:0x1"},
		{"mask_cpu:0x" + "f0000000000000000000000000000000" + ",0xf", 2, "mask_cpu:0xf000000000000000000000000000000f"},
		{"map_cpu:0,8,0x10", 3, "mask_cpu:0x10101"},
		{"map_ldom:0,3", 2, "mask_ldom:0x9"},
		{"mask_ldom:0x1,0x8", 2, "mask_ldom:0x9"},
		{"rank", 4, "none"},
		{"v,rank_ldom", 4, "v,none"},
		{"mask_cpu:zz", 4, "none"},
		{"mask_cpu", 4, "none"},
		{"map_cpu:0*x", 4, "none"},
	} {
		if got := BindTogether(tt.bind, tt.tasks); got != tt.want {
			t.Errorf("BindTogether(%q, %d): got %q, want %q", tt.bind, tt.tasks, got, tt.want)
		}
	}
	for bind, want := range map[string]string{"": "", "closest": "closest", "none": "none", "map_gpu:0,1": "none", "verbose,single:1": "verbose,none",
		"per_task:1": "none", "mask_gpu:0x1,0x2": "none"} {
		if got := GPUBindTogether(bind); got != want {
			t.Errorf("GPUBindTogether(%q): got %q, want %q", bind, got, want)
		}
	}
}
