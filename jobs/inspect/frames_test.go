package inspect

import (
	"reflect"
	"strings"
	"testing"
)

// TestMainThread checks which frames belong to the main thread.
func TestMainThread(t *testing.T) {
	const faulthandlerDump = `Thread 0x00007f59def746c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 975 in run
  File "/usr/lib/python3.11/threading.py", line 995 in _bootstrap

Current thread 0x00007f59df395040 (most recent call first):
  File "/opt/venv/lib/python3.13t/site-packages/torch/distributed/distributed_c10d.py", line 1322 in all_reduce
  File "/home/a b/train.py", line 7 in <module>
`
	for _, tt := range []struct {
		name, source, dump string
		want               []string
	}{
		{"main thread is not the first", sourcePySpy, "Process 7: python train.py\nPython v3.11.2\n\nThread 8 (idle): \"Loader\"\n    get (queue.py:3)\nThread 7 (active): \"MainThread\"\n    all_reduce (torch.py:10)\n    main (train.py:1)\n",
			[]string{"all_reduce (torch.py:10)", "main (train.py:1)"}},
		{"no main thread", sourcePySpy, "Thread 0x7f (idle)\n    wait (threading.py:3)\n    run (x.py:1)\nThread 0x80 (idle)\n    get (queue.py:3)\n", []string{"wait (threading.py:3)", "run (x.py:1)"}},
		{"no threads", sourcePySpy, "Process 7: python train.py\n", nil},
		{"empty", sourcePySpy, "", nil},
		{"main thread is the last", sourceFaulthandler, faulthandlerDump, []string{"all_reduce (torch/distributed/distributed_c10d.py:1322)", "<module> (train.py:7)"}},
		{"names of threads", sourceFaulthandler, "Thread 0x01 [loader] (most recent call first):\n  File \"a.py\", line 1 in a\n\nThread 0x02 [python] (most recent call first):\n  File \"<string>\", line ??? in b\n  ...\n", []string{"b (<string>:???)"}},
		{"standard library", sourceFaulthandler, "Thread 0x02 (most recent call first):\n  File \"/usr/lib/python3.11/asyncio/base.py\", line 3 in run\n", []string{"run (asyncio/base.py:3)"}},
		{"no frame", sourceFaulthandler, "Thread 0x01 (most recent call first):\n  File \"a.py\", line 1 in a\n\nThread 0x02 (most recent call first):\n  <no Python frame>\n", nil},
		{"empty", sourceFaulthandler, "", nil},
	} {
		t.Run(tt.source+" "+tt.name, func(t *testing.T) {
			if got := mainThread(tt.dump, tt.source); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestIsInCollective checks which frames belong to a collective.
func TestIsInCollective(t *testing.T) {
	for frame, want := range map[string]bool{
		"all_reduce (torch/distributed/distributed_c10d.py:1322)":                  true,
		"wrapper (torch/distributed/elastic/multiprocessing/errors/__init__.py:3)": false,
		"main (torch/distributed/run.py:5)":                                        false,
		"read (train.py:7)":                                                        false,
	} {
		if got := isInCollective([]string{"wait (x.py:1)", frame}); got != want {
			t.Errorf("%s: got %v, want %v", frame, got, want)
		}
	}
}

// FuzzMainThread checks that each frame is part of one line.
func FuzzMainThread(f *testing.F) {
	f.Add("Thread 0x02 (most recent call first):\n  File \"a.py\", line 1 in a\n", sourceFaulthandler)
	f.Add("Thread 7 (active): \"MainThread\"\n    main (train.py:1)\n", sourcePySpy)
	f.Fuzz(func(t *testing.T, dump, source string) {
		for _, frame := range mainThread(dump, source) {
			if frame == "" || strings.Contains(frame, "\n") {
				t.Errorf("frame %q", frame)
			}
		}
	})
}
