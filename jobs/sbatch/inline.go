package sbatch

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// convertInline converts bash -c '...'. It returns false if the shell code is not known.
func (c *command) convertInline() bool {
	if len(c.args) < 3 || !c.args[1].known || !strings.HasPrefix(c.args[1].text, "-") || !strings.HasSuffix(c.args[1].text, "c") || strings.HasPrefix(c.args[1].text, "--") {
		return false
	}
	if !c.args[2].known {
		return false // convertProgram calls joinLines
	}
	file, err := parseBash(c.args[2].text)
	if err != nil {
		return false
	}
	c.hideInline(file)
	if slices.Contains(usedVariables(file), "SLURM_JOB_NAME") {
		c.r.keepJobName(c.line)
	}
	if call := simpleCommand(file); call != nil && len(c.args) == 3 && !c.inContainer {
		list := call.Args
		if list[0].Lit() == "exec" && len(list) > 1 {
			list = list[1:]
		}
		if list[0].Lit() == "torchrun" {
			c.convertInlineTorchrun(list[1:])
			return true
		}
	}
	line := strings.TrimSpace(c.args[2].text)
	if !isValidText(line) {
		line = sourceText(file)
	}
	if !isValidText(line) || line == "" || hasNode(file, isDocument) {
		c.change(sourceText(c.stmt), "the shell code contains a here-document or a control character: keep it in a script")
		line = "false"
	}
	c.args[2] = arg{text: line, known: true}
	c.convertProgram()
	return true
}

// convertInlineTorchrun converts the arguments in bash -c 'torchrun ...', which srun starts on each node.
func (c *command) convertInlineTorchrun(list []*syntax.Word) {
	vars := c.r.vars
	c.r.vars = map[string]expand.Variable{}
	for name, v := range vars {
		if c.r.exported[name] || slices.Contains(words("SLURM_NNODES SLURM_JOB_NUM_NODES HOME USER"), name) {
			c.r.vars[name] = v
		}
	}
	c.r.inRank = true
	c.args, c.isInline = c.r.args(list), true
	c.convertTorchrun()
	c.r.vars, c.r.inRank = vars, false
}

func parseBash(code string) (*syntax.File, error) {
	return syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(code), "")
}

// parseSimple parses shell code that consists of one simple command. It returns nil for other code.
func parseSimple(code string) *syntax.CallExpr {
	file, err := parseBash(code)
	if err != nil {
		return nil
	}
	return simpleCommand(file)
}

// simpleCommand returns the command of shell code that consists of one command without redirections and
// assignments, or nil.
func simpleCommand(file *syntax.File) *syntax.CallExpr {
	if len(file.Stmts) != 1 || len(file.Stmts[0].Redirs) > 0 || file.Stmts[0].Background || file.Stmts[0].Negated {
		return nil
	}
	call, ok := file.Stmts[0].Cmd.(*syntax.CallExpr)
	if !ok || len(call.Assigns) > 0 || len(call.Args) == 0 {
		return nil
	}
	return call
}

// hideInline hides secrets in the code of bash -c. Their exports become names in setup.secrets.
func (c *command) hideInline(file *syntax.File) {
	if !c.r.isSuspicious(sourceText(file)) {
		return
	}
	var kept []*syntax.Stmt
	for _, s := range file.Stmts {
		d, ok := s.Cmd.(*syntax.DeclClause)
		if !ok || d.Variant.Value != "export" {
			kept = append(kept, s)
			continue
		}
		var rest []*syntax.Assign
		for _, a := range d.Args {
			if a.Name != nil && a.Value != nil && isSecret(a.Name.Value, strings.Trim(sourceText(a.Value), `"'`)) {
				c.r.moveToSecrets(c.line, a.Name.Value, strings.Trim(sourceText(a.Value), `"'`))
				continue
			}
			rest = append(rest, a)
		}
		if d.Args = rest; len(rest) > 0 {
			kept = append(kept, s)
		}
	}
	file.Stmts = kept
	text := sourceText(file)
	if c.r.isSuspicious(text) || text == "" {
		c.change("bash -c", "the code may contain a secret, which a job file must not contain: keep it in a script that only you can read")
		text = "false"
	}
	c.args[2] = arg{text: text, known: true}
}

// joinLines writes the code of bash -c on one line, for example behind a container runtime.
func (c *command) joinLines() {
	for i, a := range c.args {
		if !isShellCode(c.args, i) {
			continue
		}
		if !a.known {
			if w, ok := singleLine(a.word); ok {
				c.args[i] = arg{word: w}
			}
			continue
		}
		if text, ok := oneLine(strings.TrimSpace(a.text)); ok {
			c.args[i] = arg{text: text, known: true}
		}
	}
}

// isShellCode reports whether an argument is the code of bash -c.
func isShellCode(args []arg, i int) bool {
	return i >= 2 && args[i-1].text == "-c" && slices.Contains(words("bash sh"), path.Base(args[i-2].text))
}

// singleLine returns a word of shell code in double quotes on one line. ok is false for code in which
// line breaks are significant, and for code in which quotes or backslashes have a meaning for both
// shells.
func singleLine(w *syntax.Word) (line *syntax.Word, ok bool) {
	if w == nil || len(w.Parts) != 1 {
		return nil, false
	}
	q, isQuoted := w.Parts[0].(*syntax.DblQuoted)
	if !isQuoted || q.Dollar {
		return nil, false
	}
	code := strings.ReplaceAll(strings.Trim(sourceText(q), `"`), "\\\n", "")
	if strings.ContainsAny(code, "\"`\\") {
		return nil, false
	}
	file, err := parseBash(code)
	if err != nil || hasNode(file, isDocument) || len(file.Stmts) > 1 && slices.ContainsFunc(file.Stmts, isExpansion) {
		return nil, false // an empty value would leave a semicolon without a command
	}
	text := sourceText(file)
	if !isValidText(text) || text == "" || strings.Contains(text, `"`) {
		return nil, false
	}
	call := parseSimple(`x "` + text + `"`)
	if call == nil || len(call.Args) != 2 {
		return nil, false
	}
	return call.Args[1], true
}

// isExpansion reports whether a statement consists of expansions only, so that it may be empty.
func isExpansion(s *syntax.Stmt) bool {
	c, ok := s.Cmd.(*syntax.CallExpr)
	return ok && len(c.Assigns) == 0 && !slices.ContainsFunc(c.Args, func(w *syntax.Word) bool {
		return slices.ContainsFunc(w.Parts, func(p syntax.WordPart) bool { _, literal := p.(*syntax.Lit); return literal })
	})
}
