// Package dashboard is the page at / of the HTTP API: the shards, groups, instances and events of a
// cluster as they change. It is made of plain files that are part of the binary, without a build
// step, and loads nothing from elsewhere.
//
// The page is a client of the API like others: it has the rights of the token that it is given.
package dashboard

import (
	"embed"
	"path"
	"strings"
)

// ContentSecurityPolicy is the policy that the files have to be served with: a browser runs no
// script and applies no style but those of Files, and connects to nothing but the API.
const ContentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

//go:embed index.html style.css icon.svg *.js
var files embed.FS

// File is a file as it is served.
type File struct {
	Path        string // such as /dashboard/app.js; the page itself is /
	ContentType string
	Body        []byte
}

// Files returns all files of the page, sorted by name.
func Files() ([]File, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var all []File
	for _, e := range entries {
		body, err := files.ReadFile(e.Name())
		if err != nil {
			return nil, err
		}
		f := File{Path: "/dashboard/" + e.Name(), ContentType: contentType(e.Name()), Body: body}
		if e.Name() == "index.html" {
			f.Path = "/"
		}
		all = append(all, f)
	}
	return all, nil
}

// contentType does not depend on the machine's own list of types.
func contentType(name string) string {
	switch ext := path.Ext(name); ext {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css", ".html":
		return "text/" + strings.TrimPrefix(ext, ".") + "; charset=utf-8"
	default:
		return "image/svg+xml"
	}
}
