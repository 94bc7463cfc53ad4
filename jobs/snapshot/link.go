package snapshot

import "path/filepath"

// links finds out where the symbolic links lead in the copy, once all that is
// copied is known, and returns those that lead out of it.
func (l *listing) links(entries []*entry) (outside []string, err error) {
	held := map[string]bool{".": true}
	for _, e := range entries {
		for path := e.path; !held[path]; path = filepath.Dir(path) {
			held[path] = true
		}
	}
	for _, e := range entries {
		if e.info.Mode().IsRegular() {
			continue
		}
		text, err := l.root.Readlink(e.path)
		if err != nil {
			return nil, err
		}
		var out bool
		e.link, out = l.lead(filepath.Dir(e.path), text, held)
		if out {
			outside = append(outside, e.path)
		}
	}
	return outside, nil
}

// lead is what a link in a folder says in the copy, where held is what is there,
// and whether that is outside.
func (l *listing) lead(folder, text string, held map[string]bool) (link string, outside bool) {
	absolute := filepath.IsAbs(text)
	target := text
	if !absolute {
		// Not cleaned: after a link, .. is not what it looks like.
		target = l.base + "/" + folder + "/" + text
	}
	resolved, err := filepath.EvalSymlinks(target)
	dangling := err != nil
	if dangling {
		resolved = filepath.Clean(target)
	}
	rel, err := filepath.Rel(l.base, resolved)
	inside := err == nil && filepath.IsLocal(rel)
	switch {
	case inside && (held[rel] || dangling):
		// What leads nowhere, like an editor's lock, leads nowhere in the copy.
		if !absolute && filepath.Join(folder, text) == rel {
			return text, false
		}
		if short, err := filepath.Rel(folder, rel); err == nil {
			return short, false
		}
		return resolved, true
	case absolute:
		return text, true
	}
	return resolved, true
}
