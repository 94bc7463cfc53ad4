package report

import (
	"bytes"
	"context"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// framed is a report that is displayed at a width.
type framed struct {
	Name  string
	Width int
	Page  string
}

// frames displays reports at the widths of a phone and of a screen, with all sections open. It
// measures the width of each report and the height of its first chart, and lists tables that
// cannot be scrolled to their right edge. The image shows that the proxy sees requests of the
// page.
var frames = template.Must(template.New("frames").Parse(`<!DOCTYPE html><body>
<img src="http://control.example/seen.png">
{{range .}}<iframe id="{{.Name}}" style="width:{{.Width}}px;height:800px;border:0" srcdoc="{{.Page}}"></iframe>{{end}}
<script>onload = () => { for (const f of document.querySelectorAll("iframe")) {
	const e = f.contentDocument.documentElement
	e.querySelectorAll("details").forEach(d => d.open = true)
	const tables = [...e.querySelectorAll("table")], cut = []
	for (const t of tables) {
		const around = t.parentElement, before = around.getBoundingClientRect()
		around.scrollLeft = 1e6
		const scrolls = around.scrollWidth <= around.clientWidth || f.contentWindow.getComputedStyle(around).overflowX == "auto"
		const ends = t.getBoundingClientRect().right <= before.right + 1
		if (!scrolls || !ends || before.left < 0 || before.right > f.clientWidth || around.tabIndex != 0) cut.push(t.innerText.split("\n")[0])
		around.scrollLeft = 0
	}
	const o = document.createElement("output")
	o.textContent = f.id + " is " + e.scrollWidth + " wide, chart " + Math.round(e.querySelector(".chart").getBoundingClientRect().height) + " high, "
		+ tables.length + " tables, cut: [" + cut.join("; ") + "]"
	document.body.append(o)
} }</script></body>`))

// own matches hosts that the browser itself contacts, regardless of the page.
var own = regexp.MustCompile(`\.(google|googleapis)\.com(:443)?$`)

var measured = regexp.MustCompile(`>(\w+) is (\d+) wide, chart (\d+) high, (\d+) tables, cut: \[(.*?)\]`)

// TestInChromium checks that a report in a browser requests nothing, fits on a phone, and can
// be printed.
func TestInChromium(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	if err != nil && os.Getenv("CI") != "" {
		t.Fatal("no chromium, which CI needs: tests/setup.sh installs it")
	}
	if err != nil {
		t.Skip("no chromium: tests/setup.sh installs it")
	}
	var mu sync.Mutex
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if own.MatchString(r.Host) {
			return
		}
		asked = append(asked, r.Host+" "+r.URL.Path)
		w.WriteHeader(http.StatusNotFound)
	}))
	defer proxy.Close()
	dir := t.TempDir()
	run := func(args ...string) []byte {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		c := exec.CommandContext(ctx, chromium, slices.Concat([]string{"--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars", "--user-data-dir=" + filepath.Join(dir, "profile"),
			"--disable-background-networking", "--disable-component-update", "--disable-sync",
			"--proxy-server=" + proxy.URL, "--proxy-bypass-list=<-loopback>"}, args)...)
		// Files instead of pipes, because a process of chromium may hold a pipe open after the end.
		stdout, stderr := filepath.Join(dir, "stdout"), filepath.Join(dir, "stderr")
		for path, w := range map[string]*io.Writer{stdout: &c.Stdout, stderr: &c.Stderr} {
			f, err := os.Create(path)
			check(t, err)
			defer f.Close()
			*w = f
		}
		if err := c.Run(); err != nil {
			text, _ := os.ReadFile(stderr)
			t.Fatalf("chromium: %v\n%s", err, text)
		}
		out, err := os.ReadFile(stdout)
		check(t, err)
		return out
	}
	page := html(t, Collect(ran(t)))
	file := filepath.Join(dir, "page.html")
	check(t, os.WriteFile(file, []byte(page), 0o600))
	var wrapper bytes.Buffer
	sweep := sweepHTML(t, swept(t, 4))
	program := html(t, programRun(t))
	pages := []framed{{"phone", 390, page}, {"screen", 1280, page}, {"sweep", 390, sweep}, {"program", 390, program}, {"wideProgram", 1280, program}}
	check(t, frames.Execute(&wrapper, pages))
	check(t, os.WriteFile(filepath.Join(dir, "frames.html"), wrapper.Bytes(), 0o600))

	found := measured.FindAllStringSubmatch(string(run("--dump-dom", "file://"+filepath.Join(dir, "frames.html"))), -1)
	if len(found) != len(pages) {
		t.Fatalf("measured %q", found)
	}
	for i, m := range found {
		p := pages[i]
		high, _ := strconv.Atoi(m[3])
		if m[1] != p.Name || m[2] != fmt.Sprint(p.Width) || high < 150 {
			t.Errorf("%s: at %d px it is %s px wide, its chart %s px high", p.Name, p.Width, m[2], m[3])
		}
		if want := strings.Count(p.Page, "<table"); m[4] != fmt.Sprint(want) || m[5] != "" {
			t.Errorf("%s: at %d px %s of %d tables are there, and cannot be read to their end: %s", p.Name, p.Width, m[4], want, m[5])
		}
	}
	pdf := filepath.Join(dir, "page.pdf")
	run("--print-to-pdf="+pdf, "file://"+file)
	if text, err := os.ReadFile(pdf); err != nil || !bytes.HasPrefix(text, []byte("%PDF-")) || len(text) < 10_000 {
		t.Errorf("printed %d bytes, %v", len(text), err)
	}
	if want := []string{"control.example /seen.png"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q alone", asked, want)
	}
}
