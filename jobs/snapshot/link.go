package snapshot

import "path/filepath"

// resolveLinks determines the target of each symbolic link in the copy. entries must be complete. It
// returns the links that lead outside the copy.
func (l *listing) resolveLinks(entries []*entry) (outside []string, err error) {
	copied := map[string]bool{".": true}
	for _, e := range entries {
		for path := e.path; !copied[path]; path = filepath.Dir(path) {
			copied[path] = true
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
		e.link, out = l.resolveLink(filepath.Dir(e.path), text, copied)
		if out {
			outside = append(outside, e.path)
		}
	}
	return outside, nil
}

// resolveLink returns the target of a link in folder for the copy, and whether the target is outside
// the copy. held contains the paths in the copy.
func (l *listing) resolveLink(dir, text string, copied map[string]bool) (link string, outside bool) {
	absolute := filepath.IsAbs(text)
	target := text
	if !absolute {
		// Do not clean the path: ".." after a symbolic link refers to the parent of the link's
		// target.
		target = l.base + "/" + dir + "/" + text
	}
	resolved, err := filepath.EvalSymlinks(target)
	dangling := err != nil
	if dangling {
		resolved = filepath.Clean(target)
	}
	rel, err := filepath.Rel(l.base, resolved)
	inside := err == nil && filepath.IsLocal(rel)
	switch {
	case inside && (copied[rel] || dangling):
		// A dangling link, such as an editor's lock, is also dangling in the copy.
		if !absolute && filepath.Join(dir, text) == rel {
			return text, false
		}
		if relative, err := filepath.Rel(dir, rel); err == nil {
			return relative, false
		}
		return resolved, true
	case absolute:
		return text, true
	}
	return resolved, true
}
