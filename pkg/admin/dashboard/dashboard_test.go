package dashboard_test

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/admin/dashboard"
)

var (
	// inline is what a policy without 'unsafe-inline' forbids.
	inline = regexp.MustCompile(`(?i)<style|\sstyle=|\son[a-z]+=|javascript:|<script[^>]*>[^<]`)
	// outside is an address of another origin; the namespace of SVG is none that is loaded.
	outside = regexp.MustCompile(`(?:[a-z]+:)?//[a-zA-Z0-9][^\s'"]*`)
	asset   = regexp.MustCompile(`(?:src|href)="(/dashboard/[^"]+)"`)
	module  = regexp.MustCompile(`(?m)^import [^']*'\./([^']+)'`)
	comment = regexp.MustCompile(`(?m)(^|\s)// .*$`)
)

// TestFiles: the page is whole, and neither loads nor names anything of elsewhere.
func TestFiles(t *testing.T) {
	files, err := dashboard.Files()
	if err != nil {
		t.Fatal(err)
	}
	var paths, used []string
	for _, f := range files {
		paths = append(paths, f.Path)
		text := string(f.Body)
		for _, m := range asset.FindAllStringSubmatch(text, -1) {
			used = append(used, m[1])
		}
		for _, m := range module.FindAllStringSubmatch(text, -1) {
			used = append(used, "/dashboard/"+m[1])
		}
		for _, url := range outside.FindAllString(comment.ReplaceAllString(text, ""), -1) {
			if url != "http://www.w3.org/2000/svg" && url != "//www.w3.org/2000/svg" {
				t.Errorf("%s has the address %s", f.Path, url)
			}
		}
		if found := inline.FindString(text); f.Path == "/" && found != "" {
			t.Errorf("the page has %q, which its policy forbids", found)
		}
		if strings.Contains(text, "innerHTML") || strings.Contains(text, "eval(") || strings.Contains(text, "insertAdjacentHTML") {
			t.Errorf("%s makes elements or code of texts", f.Path)
		}
		want := map[string]string{".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", "": "text/html"}[path.Ext(f.Path)]
		if media, _, _ := strings.Cut(f.ContentType, ";"); want == "" || media != want {
			t.Errorf("%s is of type %s, want %s", f.Path, f.ContentType, want)
		}
	}
	slices.Sort(used)
	used = append(slices.Compact(used), "/")
	slices.Sort(used)
	slices.Sort(paths)
	if !slices.Equal(paths, used) {
		t.Errorf("there is %q, and used is %q", paths, used)
	}
}

// TestPolicy: a browser runs and loads only what this origin serves.
func TestPolicy(t *testing.T) {
	for directive := range strings.SplitSeq(dashboard.ContentSecurityPolicy, "; ") {
		name, source, _ := strings.Cut(directive, " ")
		if source != "'none'" && source != "'self'" || name == "default-src" && source != "'none'" {
			t.Errorf("the policy has %q", directive)
		}
	}
}
