package sbatch

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"mvdan.cc/sh/v3/syntax"

	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
	"github.com/ddpbatch/ddpbatch/jobs"
)

// secretParts are name parts, separated by underscores, that mark variables and options as
// secret. The value reports whether the part must be the last one.
var secretParts = map[string]bool{
	"ACCESSKEY": false, "PRIVATEKEY": false, "CREDS": false, "JWT": false, "BEARER": false, "COOKIE": false, "AUTHORIZATION": false,
	"TOKEN": true, "TOKENS": true, "KEY": true, "PASS": true, "PWD": true, "PW": true, "PAT": true, "AUTH": true, "SAS": true,
	"OTP": true,
}

// secretTexts mark a name as secret at any position, as in MYSECRET and PGPASSWORD.
var secretTexts = []string{"PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "APIKEY", "API_KEY", "ACCESS_KEY", "PRIVATE_KEY", "CREDENTIAL", "WEBHOOK", "CONNECTION_STRING", "SEED_PHRASE", "MNEMONIC"}

// secretEndings mark a name as secret at the end of its last part, as in SSHPASS and OAUTH.
var secretEndings = []string{"PASS", "TOKEN", "AUTH"}

// publicNames matches names that only resemble names of secrets: names of files, special
// tokens of a vocabulary, columns of a data set, and other settings.
var publicNames = lazyregexp.New(`^(?:` +
	`(?:OLD)?PWD|(?:GIT|SSH|SUDO)_ASKPASS|XAUTHORITY|.*COMPASS|.*BYPASS|(?:NCCL|OMP|UCX|OMPI|SLURM)_.*|` +
	`.*_(?:FILE|PATH|DIR|NAME|LENGTH|SOCK|TYPE)|` +
	`(?:.*_)?(?:BOS|EOS|PAD|UNK|SEP|CLS|MASK|IMAGE|SPECIAL|STOP|START|END|PLACEHOLDER|INITIALIZER|INIT|MODIFIER)_TOKENS?|` +
	`(?:.*_)?(?:SORT|METRIC|MONITOR|PRIMARY|CACHE|IMAGE|TEXT|LABEL|TARGET|INPUT|OUTPUT|FEATURE|COLUMN|JSON|HOT|STATE_DICT)_KEYS?` +
	`)$`)

// camelCase matches the boundary between two words of a name such as apiKey.
var camelCase = lazyregexp.New(`([a-z0-9])([A-Z])`)

// isSecretName reports whether the name of a variable or an option indicates a secret.
func isSecretName(name string) bool {
	name = strings.Trim(name, "-+[]")
	name = name[strings.LastIndexByte(name, '[')+1:] // os.environ['API_KEY']
	name = strings.ToUpper(strings.ReplaceAll(camelCase().ReplaceAllString(name, "${1}_${2}"), "-", "_"))
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 { // an override such as wandb.api_key
		if name = name[dot+1:]; name == "KEY" {
			return false
		}
	}
	if publicNames().MatchString(name) {
		return false
	}
	if slices.ContainsFunc(secretTexts, func(s string) bool { return strings.Contains(name, s) }) {
		return true
	}
	parts := strings.Split(name, "_")
	last := parts[len(parts)-1]
	if last == "ID" && len(parts) > 1 { // AWS_ACCESS_KEY_ID
		return parts[len(parts)-2] == "KEY"
	}
	for i, part := range parts {
		if mustBeLast, ok := secretParts[strings.TrimRight(part, "0123456789")]; ok && (!mustBeLast || i == len(parts)-1) {
			return true
		}
	}
	return slices.ContainsFunc(secretEndings, func(end string) bool { return strings.HasSuffix(last, end) })
}

var (
	// publicValue matches a variable, a number of up to three digits, a switch, or a command, which
	// is not a secret, whatever its name is.
	publicValue = lazyregexp.New("(?i)^(?:[0-9]{0,3}|true|false|yes|no|on|off|none|null|auto|basic|\\$\\w+|\\$\\{\\w+\\}|\\$\\(.*|`.*)$")
	// countValue matches a count, such as 2048, 2e9, 300B, or 2*10^11.
	countValue = lazyregexp.New(`(?i)^[0-9][0-9_.,*^]{0,14}(?:e\+?[0-9]{1,2})?[kmgbt]?$`)
	// filePath matches a file path, such as the path of a key file.
	filePath = lazyregexp.New(`^(?:\.{1,2}|~|\$HOME|\$\{HOME\}|/[\w.-]+)(?:/[\w.-]+)+$`)
)

// plainValue matches a word in lower case, such as the name of a column.
var plainValue = lazyregexp.New(`^[a-z_]{1,24}$`)

// labelValue matches a short word or a name with dots, such as the value of key=constants.CACHE_CLEAR, which is not the
// value of a generated key.
var labelValue = lazyregexp.New(`^(?:[A-Za-z_]{1,12}|[A-Za-z_]{1,32}(?:\.[A-Za-z_]{1,32})+)$`)

// cryptographicKey matches names of keys that are secrets, whatever their values are.
var cryptographicKey = lazyregexp.New(`CRYPT|SIGN|LICENSE|MASTER|AUTH|SSH|ACCOUNT|SHARED`)

// isNameOfColumn reports whether a name in lower case, such as prompt_key, may select a column or an entry.
func isNameOfColumn(name string) bool {
	upper := strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	isKey := strings.HasSuffix(upper, "_KEY") || strings.HasSuffix(upper, "_KEYS")
	return isKey && strings.ToLower(name) == name && !cryptographicKey().MatchString(upper) && !slices.ContainsFunc(secretTexts, func(s string) bool { return strings.Contains(upper, s) })
}

// isSecret reports whether the value of a variable or an option is a secret, judging by its
// name and its value.
func isSecret(name, value string) bool {
	value = strings.Trim(value, `"'`)
	if m := defaultValue().FindStringSubmatch(value); m != nil && m[0] == value && isSecretName(name) {
		value = m[2]
	}
	upper := strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	switch {
	case publicValue().MatchString(value):
		return false
	case isSecretName(name):
		isLabel := upper == "KEY" && name != upper && labelValue().MatchString(value)
		isCount := strings.HasSuffix(upper, "TOKENS") && countValue().MatchString(value)
		return !isLabel && !isCount && !(isNameOfColumn(name) && plainValue().MatchString(value)) && !(nameOfFile().MatchString(upper) && filePath().MatchString(value))
	case commitName().MatchString(upper) && hexadecimal().MatchString(value):
		return false
	}
	return hasSecret(value)
}

var (
	commitName  = lazyregexp.New(`(?:COMMIT|SHA\d*|REV|REVISION|HASH|DIGEST|CHECKSUM|MD5)$`)
	nameOfFile  = lazyregexp.New(`CREDENTIALS?$|(?:^|^SSH_|_SSH_|^SSL_|^TLS_|PRIVATE_|_AUTH_)KEY$`) // SSH_KEY=~/.ssh/id_rsa
	hexadecimal = lazyregexp.New(`^[0-9a-f]+$`)
)

// secretShapes matches tokens of well-known services.
var secretShapes = lazyregexp.New(
	`\bhf_[A-Za-z0-9]{20,}|\bgh[opusr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}|\bxox[a-z]-[\w-]{10,}` +
		`|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[\w-]{30,}|\bnvapi-[\w-]{20,}|\bpypi-[\w-]{20,}|\bnpm_[A-Za-z0-9]{30,}|\bdapi[0-9a-f]{32}\b` +
		`|\b[sr]k_(?:live|test)_\w{16,}|\bSG\.[\w-]{16,}\.[\w-]{16,}|\b(?:bot)?\d{8,10}:AA[\w-]{30,}` + // Stripe, SendGrid, Telegram
		`|\bwandb_v\d_\w{20,}|(?:^|[\s=:,])(?:local-)?[0-9a-f]{40}(?:$|[\s,;])` + // W&B; not a commit in a path
		`|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*` + // JSON web token
		`|(?i:\b(?:bearer|basic|authorization:\s*\w+)\s+[\w.~+/-]{6,}=*)` + // Authorization
		`|-----BEGIN [A-Z ]*PRIVATE KEY` +
		`|(?i:\b(?:AccountKey|SharedAccessKey|SharedAccessSignature|password|pwd)=[^;\s$/][^;\s$]*)` +
		`|(?i:[?&](?:[\w-]*token|[\w-]*key|[\w-]*signature|sig|secret|password|auth)=[^&\s$]+)` +
		`|https?://hooks\.slack\.com/\S+|https?://[\w.]*discord(?:app)?\.com/api/webhooks/\S+|https?://\S*webhook\.office\.com/\S+`)

// skKey matches keys of OpenAI and similar services, and long words that start with sk-.
var skKey = lazyregexp.New(`\bsk-[\w-]{20,}`)

// userInfo matches the user and the optional password of a URL. It also matches a port and a
// path with an "@", which hasSecret distinguishes.
var userInfo = lazyregexp.New(`\b([A-Za-z][A-Za-z0-9+.-]*)://([^\s/?#@:"']*)(?::([^\s@"']*))?@`)

var portAndPath = lazyregexp.New(`^\d{1,5}/`)

// hasSecret reports whether a text, such as a value or a part of a script, contains a
// recognizable secret. It checks the shape of each word, and the name or option before it.
func hasSecret(text string) bool {
	text = unquote.Replace(text)
	if secretShapes().MatchString(text) {
		return true
	}
	for _, key := range skKey().FindAllString(text, -1) {
		if strings.ContainsFunc(key, unicode.IsDigit) && strings.ContainsFunc(key, unicode.IsUpper) {
			return true
		}
	}
	for _, m := range userInfo().FindAllStringSubmatch(text, -1) {
		scheme, user, password := strings.ToLower(m[1]), m[2], m[3]
		isToken := (strings.HasSuffix(scheme, "http") || strings.HasSuffix(scheme, "https")) && user != "" && user != "git" && !strings.HasPrefix(user, "$")
		isPassword := password != "" && !strings.HasPrefix(password, "$") && !portAndPath().MatchString(password)
		if isPassword || password == "" && isToken {
			return true
		}
	}
	return namesSecret(splitFields(text))
}

var unquote = strings.NewReplacer(`"`, "", "'", "", `\`, "")

// defaultValue matches an expansion with a default, such as ${MAX_TOKENS:-512}.
var defaultValue = lazyregexp.New(`\$\{(\w+):?-([^${}]*)\}`)

// fileContent matches a command that prints a file, as in $(cat ~/token).
var fileContent = lazyregexp.New("\\$\\((?:cat |<) *[\\w./~${}-]+\\)|`cat [\\w./~${}-]+`")

// splitFields splits a text into words at blanks and at the punctuation of shells and JSON. It writes the
// default of a variable as a word and as an assignment, and a command that prints a file as a variable.
func splitFields(text string) []string {
	text = fileContent().ReplaceAllLiteralString(text, "$FILE")
	text = defaultValue().ReplaceAllStringFunc(text, func(s string) string {
		m := defaultValue().FindStringSubmatch(s)
		if m[2] == "" {
			return "$" + m[1]
		}
		return m[2] + " " + m[1] + "=" + m[2]
	})
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\n;|&()<>{},", r) })
}

// namesSecret reports whether one of the words names a secret and its value follows:
// NAME=value, --name=value, --name value, name:value, "Name: value", or login value.
func namesSecret(words []string) bool {
	for i, word := range words {
		next := ""
		if i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") {
			next = words[i+1]
		}
		name, value, assigned := strings.Cut(word, "=")
		if !assigned {
			name, value, _ = strings.Cut(word, ":")
			if value == "" && (strings.HasSuffix(word, ":") || strings.HasPrefix(word, "--")) {
				value = next
			}
		}
		switch {
		case (assigned || strings.HasPrefix(word, "--") || len(name) > 4) && isSecretName(name) && isSecret(name, value):
			return true
		case assigned && strings.Contains(value, "=") && namesSecret([]string{value}): // --env=NAME=value
			return true
		case passwordOf(credentials(word, next)) != "":
			return true
		case next == "":
		case word == "login" && mayShowPassword(words[i+1:]) || word == "sshpass":
			return true
		}
	}
	return false
}

// loginWord matches an option without a value, and a variable.
var loginWord = lazyregexp.New(`^(?:-[A-Za-z]|--[a-z][a-z-]*|\$\w+|\$\{\w+\})$`)

// mayShowPassword reports whether a word behind login may be a password.
func mayShowPassword(words []string) bool {
	return !slices.Contains(words, "--password-stdin") && slices.ContainsFunc(words, func(w string) bool { return !loginWord().MatchString(w) })
}

// credentials returns the user and the password from an option of curl.
func credentials(option, next string) string {
	name, value, assigned := strings.Cut(option, "=")
	switch {
	case option == "-u" || option == "--user" || option == "--proxy-user":
		return next
	case assigned && (name == "--user" || name == "--proxy-user"):
		return value
	}
	if credentials, isUser := strings.CutPrefix(option, "-u"); isUser {
		return credentials
	}
	return ""
}

var userAndGroup = lazyregexp.New(`^\d+:\d+$`)

// passwordOf returns the password in user:password, or an empty string if it is not a secret.
func passwordOf(credentials string) string {
	_, password, _ := strings.Cut(credentials, ":")
	if publicValue().MatchString(password) || userAndGroup().MatchString(credentials) {
		return ""
	}
	return password
}

// assignsSecret reports whether a variable of the script is set to a secret, possibly through
// another variable.
func (r *reader) assignsSecret(a *syntax.Assign, value string, known bool) bool {
	if !known && a.Value != nil {
		if r.usesHiddenVariable(a.Value) {
			return true
		}
		value = sourceText(a.Value)
	}
	return isSecret(a.Name.Value, value) || known && r.hasSecretValue(value)
}

// hasSecretValue reports whether a text contains the value of a variable that holds a secret.
func (r *reader) hasSecretValue(text string) bool {
	return slices.ContainsFunc(r.secretValues, func(v string) bool { return strings.Contains(text, v) })
}

// plainInput matches commands that read a here-string and send it nowhere.
var plainInput = lazyregexp.New(`\b(?:read|mapfile|readarray|bc|awk|cut|tr|sed|grep|wc|sort|head|tail)\b([^|;&<\n]*)<<<`)

// hasSecretInput reports whether a command may read a secret from a here-string, such as a login.
func hasSecretInput(text string) bool {
	for _, m := range plainInput().FindAllStringSubmatch(text, -1) {
		if slices.ContainsFunc(splitFields(m[1]), isSecretName) {
			return true
		}
	}
	return strings.Count(text, "<<<") > len(plainInput().FindAllString(text, -1))
}

// isSuspicious reports whether a part of the script may contain a secret. Unlike hasSecret, it
// also detects text such as "password X", and logins with the secret at any position.
func (r *reader) isSuspicious(text string) bool {
	if hasSecret(text) || r.hasSecretValue(text) || hasSecretInput(text) || strings.Contains(text, "|") && strings.Contains(text, "--password-stdin") {
		return true
	}
	words := splitFields(unquote.Replace(text))
	for i, word := range words {
		last := i == len(words)-1
		if !last && len(word) > 4 && strings.ToLower(word) == word && isSecretName(word) && isSecret(word, words[i+1]) && !isProse(word, words[i+1]) {
			return true
		}
		if !last && (word == "login" && mayShowPassword(words[i+1:]) || word == "sshpass") {
			return true
		}
	}
	return false
}

// plainEnglish matches a short word, such as "not" in "token not found".
var plainEnglish = lazyregexp.New(`^[a-z]{1,12}[.:!]?$`)

// nextOption matches an option: a letter after a dash, or a name after two dashes.
var nextOption = lazyregexp.New(`^(?:-[A-Za-z]|--[a-z][a-z0-9_-]*(?:=.*)?)$`)

// isProse reports whether the word behind the name of a secret is certainly not its value: an option, punctuation, or
// a plain word behind "token" or "key", which are generated. A password or the key of a cipher may be a plain word.
func isProse(name, next string) bool {
	isGenerated := (strings.HasSuffix(name, "token") || strings.HasSuffix(name, "tokens") || strings.HasSuffix(name, "key")) &&
		!cryptographicKey().MatchString(strings.ToUpper(name))
	return nextOption().MatchString(next) || len(next) < 3 && strings.Trim(next, "/*+-=:.!?") == "" || isGenerated && plainEnglish().MatchString(next)
}

// redact returns a part of the script for a message. If the part may contain a secret,
// it returns only the first word and true.
func (r *reader) redact(s string) (string, bool) {
	if !r.isSuspicious(s) {
		return s, false
	}
	words := strings.Fields(s)
	shown := words[:1]
	if len(words) > 1 && strings.Trim(words[0], "|&") == "" {
		shown = words[:2]
	}
	first, _, _ := strings.Cut(strings.Join(shown, " "), "=")
	if r.isSuspicious(first) {
		first = ""
	}
	return strings.TrimSpace(first + " ..."), true
}

// minSecretValue is the minimum length of a secret value that is searched for elsewhere.
const minSecretValue = 6

// hideVariable removes the value of a variable that contains a secret. value is empty if unknown.
func (r *reader) hideVariable(name, value string) {
	delete(r.vars, name)
	delete(r.job.env, name)
	r.hidden[name] = true
	r.addSecretValue(value)
}

// moveToSecrets removes the value of a variable, and adds its name to [setup.secrets].
func (r *reader) moveToSecrets(line int, name, value string) {
	r.hideVariable(name, value)
	r.addSecretName(line, name)
}

// addSecretValue hides a value at all of its occurrences.
func (r *reader) addSecretValue(value string) {
	if len(value) >= minSecretValue && !slices.Contains(r.secretValues, value) {
		r.secretValues = append(r.secretValues, value)
	}
}

// hideEarlierUses hides secrets that the script had used under a harmless name before the reader
// recognized them.
func (r *reader) hideEarlierUses() {
	for _, name := range slices.Sorted(maps.Keys(r.job.env)) {
		if r.hasSecretValue(r.job.env[name]) {
			r.moveToSecrets(0, name, "")
		}
	}
	for i, n := range r.notes {
		r.notes[i].Text, _ = r.redact(n.Text)
	}
}

// addSecretName adds the name of a variable to [setup.secrets], without its value.
func (r *reader) addSecretName(line int, name string) {
	var n jobs.EnvName
	if n.UnmarshalTOML(name) != nil {
		return
	}
	if !slices.Contains(r.job.secrets, name) {
		r.job.secrets = append(r.job.secrets, name)
	}
	r.note(line, "the value of "+name, "it looks like a secret, so only its name is in setup.secrets.names: export it before ddpbatch submit, "+
		"or add it to the file in setup.secrets.file")
}

// hideArguments replaces secrets in the program's arguments with variables in [setup.secrets].
func (c *command) hideArguments() {
	c.hideArgumentsOnce()
	c.hideArgumentsOnce() // hides values that only a later argument revealed as secrets
}

func (c *command) hideArgumentsOnce() {
	before := ""
	for i, a := range c.args {
		value, known := a.source(), a.known
		option, prefix := before, ""
		if name, rest, assigned := strings.Cut(value, "="); assigned && !strings.ContainsAny(name, " /:") {
			option, prefix = name, name+"="
			value = rest
		}
		before = ""
		if strings.HasPrefix(value, "-") && prefix == "" {
			before = value
			if !hasSecret(value) && !(known && c.r.hasSecretValue(value)) {
				continue
			}
		}
		if !isSecret(option, value) && !(prefix != "" && hasSecret(prefix+value)) && !(known && c.r.hasSecretValue(value)) {
			continue
		}
		if strings.Trim(prefix, plainChars) != "" || hasSecret(prefix) {
			prefix = ""
		}
		name := c.r.secretVariableName(option)
		c.args[i] = arg{word: &syntax.Word{Parts: []syntax.WordPart{&syntax.Lit{Value: prefix}, &syntax.DblQuoted{
			Parts: []syntax.WordPart{&syntax.ParamExp{Short: true, Param: &syntax.Lit{Value: name}}}}}}}
		if !known {
			value = ""
		}
		c.r.moveToSecrets(c.line, name, value)
		c.r.note(c.line, "$"+name, "its value remains an argument, which every user of a node can read: let the program read the variable "+name+" instead")
	}
}

// unknownArgumentReason returns the fix for an argument of torchrun that only a shell can
// evaluate.
func (r *reader) unknownArgumentReason(a arg) string {
	if a.word != nil && r.usesHiddenVariable(a.word) {
		return "torchrun starts without a shell: remove this argument, and read the variable in your program"
	}
	return "the value is known only to a shell: write it in command.argv"
}

// usesHiddenVariable reports whether a word uses a variable that contained a secret.
func (r *reader) usesHiddenVariable(w *syntax.Word) bool {
	return hasNode(w, func(n syntax.Node) bool {
		e, ok := n.(*syntax.ParamExp)
		return ok && e.Param != nil && r.hidden[e.Param.Value]
	})
}

var notInName = lazyregexp.New(`[^A-Z0-9]+`)

// secretVariableName returns a variable name for an option's value, such as API_KEY for --api-key.
func (r *reader) secretVariableName(option string) string {
	name := strings.Trim(notInName().ReplaceAllString(strings.ToUpper(option), "_"), "_")
	var n jobs.EnvName
	if !isSecretName(name) || n.UnmarshalTOML(name) != nil {
		name = "SECRET"
	}
	unique := name
	for i := 2; r.scriptVars[unique] || slices.Contains(r.job.secrets, unique); i++ {
		unique = name + "_" + strconv.Itoa(i)
	}
	return unique
}
