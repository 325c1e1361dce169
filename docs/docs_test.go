// Package docs_test holds the documentation against the repository: what a page
// points to exists, and what can be set is described.
package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = ".."

// page is one Markdown file.
type page struct {
	path string // from the root, with slashes
	text string
}

func pages(t *testing.T) []page {
	t.Helper()
	var found []page
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "temp" || name == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".md") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		found = append(found, page{filepath.ToSlash(rel), string(text)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 10 {
		t.Fatalf("found %d pages: the walk looks in the wrong place", len(found))
	}
	return found
}

func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	fence      = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```[ \t]*$")
	inlineCode = regexp.MustCompile("`[^`\n]+`")
	link       = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading    = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	linkText   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	notInSlug  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// prose is a page without what code it shows.
func (p page) prose() string {
	return inlineCode.ReplaceAllString(fence.ReplaceAllString(p.text, ""), "")
}

// anchors are the names under which a page's headings can be linked to.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		words := strings.ToLower(linkText.ReplaceAllString(m[1], "$1"))
		found[strings.ReplaceAll(notInSlug.ReplaceAllString(words, ""), " ", "-")] = true
	}
	return found
}

// TestLinks follows every relative link, to a heading where it names one.
func TestLinks(t *testing.T) {
	links := 0
	for _, p := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(p.prose(), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			links++
			to := filepath.Join(root, p.path)
			if target != "" {
				to = filepath.Join(root, filepath.Dir(p.path), filepath.FromSlash(target))
			}
			text, err := os.ReadFile(to)
			if err != nil {
				if info, statErr := os.Stat(to); statErr != nil || !info.IsDir() {
					t.Errorf("%s: the link %s leads nowhere", p.path, m[1])
				}
				continue
			}
			if anchor != "" && !anchors(string(text))[anchor] {
				t.Errorf("%s: the link %s names a heading that is not there", p.path, m[1])
			}
		}
	}
	if links < 50 {
		t.Errorf("found %d links: the search misses them", links)
	}
}
