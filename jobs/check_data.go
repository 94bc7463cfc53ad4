package jobs

import (
	"path/filepath"
	"slices"
	"strings"
)

// builtinPrefix marks a data set that is part of the executable.
const builtinPrefix = "builtin:"

// builtinData lists the data sets that are part of the executable.
var builtinData = []string{builtinPrefix + "fashion-mnist"}

// dataKeys are the keys of [train.data] by kind.
var dataKeys = []kindKeys{
	{kind: string(DataIDX), required: []string{"path"}},
	{kind: string(DataCSV), required: []string{"path", "task"}, optional: []string{"eval_path", "holdout", "target"}},
	{kind: string(DataSafetensors), required: []string{"path", "task"}, optional: []string{"eval_path", "holdout", "features", "target"}},
	{
		kind: string(DataText), required: []string{"path"}, optional: []string{"holdout", "vocabulary"},
		// A second text may contain characters that are not in the vocabulary of the first.
		instead: map[string]string{"eval_path": "holdout = 0.1 keeps a tenth of the text for evaluation"},
	},
	{kind: string(DataTokens), required: []string{"path"}, optional: []string{"eval_path", "holdout", "dtype", "vocabulary_size"}},
	{kind: string(DataSynthetic), required: []string{"task", "samples", "inputs", "outputs"}},
}

func (d *decoder) checkData(data *Data) {
	const table = "train.data."
	if !d.isValid(table + "kind") {
		return
	}
	d.checkKind(table, string(data.Kind), dataKeys)
	if data.DropLast && data.Uneven != UnevenDrop && d.given[table+"uneven"] && d.isValid(table+"uneven", table+"drop_last") {
		d.report(table+"uneven", "leave one of the two out", "stands beside drop_last, which leaves out all that does not go around")
	}
	if data.Kind == DataSynthetic {
		const outputs = table + "outputs"
		if d.isValid(table+"task", outputs) && data.Task == TaskClassification && data.Outputs < 2 {
			d.report(outputs, "", "classification needs 2 classes or more, not %d", data.Outputs)
		}
		return
	}
	if d.isValid(table + "path") {
		d.checkPath(data)
	}
	if data.Kind == DataTokens {
		d.checkPattern(table+"path", data.Path)
		d.checkPattern(table+"eval_path", data.EvalPath)
		if data.VocabularySize > maxVocabulary {
			d.report(table+"vocabulary_size", "leave the key out for as many as the files need", "must be %d or less, not %d", maxVocabulary, data.VocabularySize)
		}
	}
	if data.Holdout > 0 && data.EvalPath != "" && d.isValid(table+"holdout", table+"eval_path") {
		d.report(table+"holdout", "", "stands beside eval_path, which has the data for evaluation")
	}
}

func (d *decoder) checkPath(data *Data) {
	const key = "train.data.path"
	path := string(data.Path)
	switch {
	case path == "":
		d.report(key, "", "is empty")
	case !strings.HasPrefix(path, builtinPrefix):
	case data.Kind != DataIDX:
		d.report(key, "", "%q is not a file: builtin data needs kind = \"idx\"", path)
	case !slices.Contains(builtinData, path):
		d.report(key, "allowed: a folder, or "+strings.Join(builtinData, ", "), "%q is not a builtin data set", path)
		d.found[len(d.found)-1].Suggestion = nearest(path, builtinData)
	}
}

// checkPattern reports an invalid file name pattern, which can match no file.
func (d *decoder) checkPattern(key string, path Text) {
	if _, err := filepath.Match(filepath.Base(string(path)), ""); err != nil && d.isValid(key) {
		d.report(key, "for example: fineweb_train_*.bin", "%q is not a pattern: a \"[\" or \"\\\" in it has no end", path)
	}
}
