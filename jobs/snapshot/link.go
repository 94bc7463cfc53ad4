package snapshot

import "path/filepath"

// links determines the target of each symbolic link in the copy. entries must be complete. It
// returns the links that lead outside the copy.
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

// lead returns the target of a link in folder for the copy, and whether the target is outside
// the copy. held contains the paths in the copy.
func (l *listing) lead(folder, text string, held map[string]bool) (link string, outside bool) {
	absolute := filepath.IsAbs(text)
	target := text
	if !absolute {
		// Do not clean the path: ".." after a symbolic link refers to the parent of the link's
		// target.
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
		// A dangling link, such as an editor's lock, is also dangling in the copy.
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
