package cli_test

import (
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/admin/cli"
	"github.com/nstance/nstance/pkg/admin/dashboard"
)

// TestServeDashboard: the page and its files need no token, are under their own policy, and what is
// below / stays unknown.
func TestServeDashboard(t *testing.T) {
	c := newFixture(t).register()
	c.twoShards()
	s := c.serve(c.tokens()...)
	files, err := dashboard.Files()
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, f := range files {
		a := s.do(t, httpRequest{method: "GET", path: f.Path}).want(t, 200)
		if string(a.body) != string(f.Body) || a.header.Get("Content-Type") != f.ContentType {
			t.Errorf("%s is not the file: %s", f.Path, a.body)
		}
		if got := a.header.Get("Content-Security-Policy"); got != dashboard.ContentSecurityPolicy || strings.Contains(got, "unsafe") {
			t.Errorf("%s has policy %q", f.Path, got)
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"} {
			if got := a.header.Get(name); got != want {
				t.Errorf("%s has %s %q, want %q", f.Path, name, got, want)
			}
		}
	}
	s.call(t, "GET", "/dashboard/", "").want(t, 404)
	s.call(t, "GET", "/dashboard/dashboard.go", "").want(t, 404)
	s.call(t, "POST", "/", "{}").want(t, 405)
	if policy := s.call(t, "GET", "/docs", "").want(t, 200).header.Get("Content-Security-Policy"); strings.Contains(policy, "script-src") {
		t.Errorf("/docs has no scripts, and policy %q", policy)
	}
}

// TestServeStatus: a page learns which shards there are, and whether its token may change anything.
func TestServeStatus(t *testing.T) {
	c := newFixture(t).register()
	c.twoShards()
	s := c.serve(c.tokens()...)
	const shards = `"shards":["one","two"],`
	s.do(t, httpRequest{method: "GET", path: "/status"}).want(t, 401, "a token is required")
	s.call(t, "GET", "/status", "").want(t, 200, `{"version":"v0-test",`+shards+`"may_change":true}`)
	read := httpRequest{method: "GET", path: "/status", header: header("Authorization", "Bearer "+readToken)}
	s.do(t, read).want(t, 200, shards+`"may_change":false}`)
	open := c.serve()
	open.do(t, httpRequest{method: "GET", path: "/status"}).want(t, 200, shards+`"may_change":true}`)
	if code := open.stop(); code != cli.ExitOK {
		t.Errorf("serve exited with %d", code)
	}
}
