package jobs

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestCheckFiles checks which files and directories must exist, and that errors name line, key,
// and path.
func TestCheckFiles(t *testing.T) {
	dir := t.TempDir()
	for _, folder := range []string{"data", "venv/bin", "emptyvenv", "work", "dir[1]", "bin_dir.bin"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"train.csv", "venv/bin/activate", "dir[1]/train_1.bin", "a[1].bin"} {
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	idx := func(path string) string { return strings.Replace(minimal, `"d"`, `"`+path+`"`, 1) }
	csv := func(keys string) string {
		return strings.Replace(minimal, `kind = "idx", path = "d"`, `kind = "csv", task = "regression", `+keys, 1)
	}
	gpt := func(keys, data string) string { return withGPT(`size = "gpt2"`+keys, data) }
	tokens := func(path string) string { return gpt("", `kind = "tokens", path = "`+path+`"`) }
	command := func(keys string) string { return "name = \"x\"\ncommand.argv = [\"true\"]\n" + keys + "\n" }
	image := func(runtime, image string) string {
		return command(fmt.Sprintf("setup.container.runtime = %q\nsetup.container.image = %q", runtime, image))
	}
	for _, c := range []struct{ src, want string }{
		{idx("data"), ""},
		{idx(dir + "/data"), ""},
		{idx("builtin:fashion-mnist"), ""},
		{idx("none"), "job.toml:7:31: train.data.path: no such directory: \"" + dir + "/none\"\n" +
			"    7 | data = { kind = \"idx\", path = \"none\" }\n" +
			"      |                               ^^^^^^\n" +
			"  a relative path starts at the directory of the job file"},
		{idx("/none"), "no such directory: \"/none\"\n"},
		{idx("~/data"), `"~" is not expanded`},
		{idx("train.csv"), "train.csv\" is not a directory"},
		{idx("train.csv/x"), "stat "},
		{csv(`path = "train.csv"`), ""},
		{csv(`path = "data"`), "data\" is not a file"},
		{csv(`path = "train.csv", eval_path = "eval.csv"`), "train.data.eval_path: no such file"},
		{csv(`path = "a", eval_path = "b"`), "train.data.path: no such file"},
		{gpt("", `kind = "text", path = "train.csv"`), ""},
		{gpt("", `kind = "text", path = "train.*"`), "no such file"},
		{gpt(`, weights = "train.csv"`, `kind = "text", path = "train.csv"`), ""},
		{gpt(`, weights = "w"`, `kind = "text", path = "train.csv"`), "train.model.weights: no such file"},
		{tokens("train.csv"), ""},
		{tokens("dir[1]/train_*.bin"), ""},
		{tokens("dir[1]/train_[0-9].bin"), ""},
		{tokens("a[1].bin"), ""},
		{tokens("dir[1]/val_*.bin"), "train.data.path: no file in \"" + dir + "/dir[1]\" matches \"val_*.bin\""},
		{tokens("bin_*.bin"), "no file in"},
		{tokens("dir*/train_1.bin"), "no such file"},
		{tokens("none/train_*.bin"), "train.data.path: no such directory: \"" + dir + "/none\""},
		{gpt("", `kind = "tokens", path = "train.csv", eval_path = "val_*"`), "train.data.eval_path: no file in"},
		{command(""), ""},
		{command(`command.workdir = "work"`), ""},
		{command(`command.workdir = "none"`), "command.workdir: no such directory"},
		{command(`setup.venv = "venv"`), ""},
		{command(`setup.venv = "emptyvenv"`), "has no bin/activate"},
		{command(`setup.conda = "none/at/all"`), ""},
		{image("apptainer", "work"), ""},
		{image("apptainer", "train.csv"), ""},
		{image("apptainer", "docker://pytorch/pytorch"), ""},
		{image("apptainer", "docker-archive:torch.tar"), ""},
		{image("apptainer", "images/torch"), `setup.container.image: no such file: "` + dir + `/images/torch"`},
		{image("charliecloud", "torch.sqfs"), `setup.container.image: no such file: "` + dir + `/torch.sqfs"`},
		{image("charliecloud", "library/torch"), ""},
		{image("pyxis", "nvcr.io#nvidia/pytorch:24.01"), ""},
	} {
		err := parse(t, c.src).CheckFiles(dir)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%q: %v", c.src, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error()+"\n", c.want)):
			t.Errorf("%q: %v\nwant %s", c.src, err, c.want)
		}
	}
	err := parse(t, csv(`path = "a", eval_path = "b"`)).CheckFiles(dir)
	if ds, ok := err.(Diagnostics); !ok || len(ds) != 2 {
		t.Errorf("two missing files: %v", err)
	}
	if err := (&Job{Command: &Command{Workdir: "/none"}}).CheckFiles(dir); err == nil || err.Error() != `command.workdir: no such directory: "/none"` {
		t.Errorf("a job without a file: %v", err)
	}
}

// TestResolvePaths checks that relative paths are resolved against the directory of the job file,
// once.
func TestResolvePaths(t *testing.T) {
	job := load(t, "testdata/good/every-train-key.toml")
	job.ResolvePaths("/home/u/jobs")
	if d := job.Train.Data; d.Path != "/home/u/jobs/data/train.csv" || d.EvalPath != "/data/eval.csv" {
		t.Errorf("data: %+v", d)
	}
	if job.Setup.Venv != "/home/u/venv" || job.Setup.Conda != "base" {
		t.Errorf("setup: %+v", job.Setup)
	}
	weights := load(t, "testdata/good/gpt-tokens.toml")
	weights.ResolvePaths("/j")
	if got := weights.Train; got.Model.Weights != "/j/gpt2/model.safetensors" || got.Data.Path != "/j/data/train_*.bin" || got.Data.EvalPath != "/j/data/eval.bin" {
		t.Errorf("gpt: %+v", got)
	}
	once := *job.Train
	job.ResolvePaths("/elsewhere")
	if !reflect.DeepEqual(*job.Train, once) {
		t.Error("resolving twice moves paths")
	}

	for workdir, want := range map[string]Text{"": "/j", `command.workdir = "a/../b"`: "/j/b", `command.workdir = "/w"`: "/w"} {
		job := parse(t, "name = \"x\"\ncommand.argv = [\"true\"]\nsetup.conda = \"envs/a\"\n"+workdir+"\n")
		job.ResolvePaths("/j")
		if job.Command.Workdir != want || job.Setup.Conda != "/j/envs/a" {
			t.Errorf("%q: %+v %+v", workdir, job.Command, job.Setup)
		}
	}
	demo := load(t, "examples/demo.toml")
	demo.ResolvePaths("/j")
	if demo.Train.Data.Path != "builtin:fashion-mnist" {
		t.Errorf("builtin data: %q", demo.Train.Data.Path)
	}
}
