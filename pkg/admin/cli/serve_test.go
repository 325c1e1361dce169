package cli_test

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/admin/cli"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestServeSaysWhatNstanceAdminSays: the sentences of the command line, and its JSON.
func TestServeSaysWhatNstanceAdminSays(t *testing.T) {
	c := newFixture(t).register()
	one, _ := c.twoShards()
	s := c.serve()
	const scale = "POST /group/scale"
	for _, tt := range []struct{ request, body, words string }{
		{scale, `{"group": "web", "size": 3}`, "shard: there are 2 shards: add shard=NAME or all_shards=true"},
		{scale + "?shard=x", `{"group": "web", "size": 3}`, `shard: no such shard "x" (have: one, two)`},
		{scale + "?shard=one&all_shards=true", `{"group": "web", "size": 3}`, "shard and all_shards are mutually exclusive"},
		{scale + "?shard=one", `{"group": "web", "size": 2000}`, "shard one: invalid group: size: too large: want at most 1000"},
		{scale + "?shard=one", `{"group": "web", "size": -1}`, "body.size: expected number >= 0"},
		{scale + "?shard=one", `{"group": "web", "size": 3, "sice": 1}`, "body.sice: unexpected property"},
		{scale + "?shard=one", `{`, "body: unexpected end of JSON input"},
		{scale + "?all_shards=true", `{"group": "web", "size": 3, "remove": ["i1"]}`, `"i1" is an instance of one shard: add shard=NAME`},
		{"POST /instances?all_shards=true", `{"group": "web", "key": "k"}`, "an instance is created in one shard: add shard=NAME"},
		{"GET /instances/knd", ``, `id: `},
		{"GET /groups/none", ``, `group "none": no such group (have: jobs, web)`},
		{"POST /config/refresh?shard=one", `{"accept_removals": ["web"]}`, "accept_removals: "},
	} {
		method, path, _ := strings.Cut(tt.request, " ")
		a := s.call(t, method, path, tt.body)
		wrong := a.status != http.StatusBadRequest && a.status != http.StatusNotFound
		if wrong || !strings.Contains(a.problemText(), tt.words) {
			t.Errorf("%s %s: %d: %q, want %q in it", tt.request, tt.body, a.status, a.problemText(), tt.words)
		}
	}
	if n := len(one.changes()); n != 0 {
		t.Errorf("%d changes, want none", n)
	}
	for path, args := range map[string][]string{
		"/shards": {"shard", "list"}, "/groups": {"group", "list"}, "/instances": {"instance", "list"}, "/config/status": {"config", "status"},
		"/groups/web": {"group", "status", "web"},
	} {
		plain := c.run(append(args, "-o", "json")...).want(t, cli.ExitOK)
		got := s.call(t, "GET", path, "").want(t, 200)
		if !reflect.DeepEqual(decode[any](t, string(got.body)), decode[any](t, plain.out)) {
			t.Errorf("%s: %s, want what nstance-admin prints: %s", path, got.body, plain.out)
		}
	}
}

// TestServeOmits: groups are listed without the parts that a request omits.
func TestServeOmits(t *testing.T) {
	c := newFixture(t).register()
	c.shard("dev-1").setGroups(web(3, 3))
	s := c.serve()
	for query, want := range map[string][2]bool{
		"": {true, true}, "?omit=vars": {true, false}, "?omit=instances": {false, true}, "?omit=instances,vars": {false, false},
	} {
		g := decode[[]group](t, string(s.call(t, "GET", "/groups"+query, "").want(t, 200).body))[0].Message
		if (len(g.GetInstances()) > 0) != want[0] || (g.GetVars() != nil) != want[1] {
			t.Errorf("%q: %v", query, g)
		}
	}
	s.call(t, "GET", "/groups?omit=size", "").want(t, http.StatusBadRequest, "omit")
}

// TestServeConfirms: no machine goes because of one wrong number.
func TestServeConfirms(t *testing.T) {
	c := newFixture(t).register()
	one, _ := c.twoShards()
	s := c.serve()
	words := "this removes machines: one/jobs: 1 instance: " + someInstance + "; nothing was changed; add yes=true"
	s.call(t, "POST", "/group/scale?shard=one", `{"group": "jobs", "size": 0}`).want(t, http.StatusConflict, words)
	s.call(t, "PUT", "/groups/jobs?shard=one", `{"size": 0}`).want(t, http.StatusConflict, words)
	s.call(t, "DELETE", "/groups/jobs?shard=one", ``).want(t, http.StatusConflict, words)
	if n := len(one.changes()); n != 0 {
		t.Fatalf("%d changes, want none", n)
	}
	s.call(t, "POST", "/group/scale?shard=one&yes=true", `{"group": "jobs", "size": 0}`).want(t, http.StatusOK, `"size":0`)
	s.call(t, "DELETE", "/groups/jobs?shard=one&yes=true", ``).want(t, http.StatusAccepted, `{"key":"jobs","deleting_in":["one"]}`)
}

// TestServeRefresh: each outcome has its status, and a shard that keeps its config has failed.
func TestServeRefresh(t *testing.T) {
	c := newFixture(t).register()
	one, two := c.twoShards()
	s := c.serve()
	unchanged := func() (*nstancev1.RefreshConfigResponse, error) {
		return &nstancev1.RefreshConfigResponse{Outcome: nstancev1.RefreshOutcome_REFRESH_OUTCOME_UNCHANGED}, nil
	}
	invalid := func() (*nstancev1.RefreshConfigResponse, error) {
		return nil, rpc.InvalidRequest(rpc.Violation{Field: "a.size", Description: "too large"},
			rpc.Violation{Field: "b", Description: "unknown"})
	}
	awaits := func() (*nstancev1.RefreshConfigResponse, error) {
		return nil, &rpc.PreconditionError{Message: "confirm", Failures: []rpc.Failure{
			{Type: rpc.GroupRemoved, Subject: "default/web", Description: "2 instances go"},
		}}
	}
	updated := one.refresh
	for _, tt := range []struct {
		one, two func() (*nstancev1.RefreshConfigResponse, error)
		status   int
		texts    []string
	}{
		{updated, updated, 200, []string{`"outcome":"updated"`}},
		{updated, unchanged, 200, []string{`"outcome":"updated"`, `"outcome":"unchanged"`}},
		{unchanged, unchanged, 304, nil},
		{invalid, invalid, 400, []string{`"field":"a.size"`, "invalid config; the previous one stays active", "b: unknown"}},
		{awaits, awaits, 409, []string{`"removals":[{"group":"default/web"`, "group default/web: 2 instances go"}},
		{invalid, awaits, 502, []string{`"shards":[{"shard":"one","status":400`, `{"shard":"two","status":409`}},
		{updated, invalid, 207, []string{`"failed":[{"shard":"two","status":400`, `"outcome":"invalid"`, `"outcome":"updated"`}},
	} {
		one.mu.Lock()
		one.refresh = tt.one
		one.mu.Unlock()
		two.mu.Lock()
		two.refresh = tt.two
		two.mu.Unlock()
		s.call(t, "POST", "/config/refresh?all_shards=true", `{}`).want(t, tt.status, tt.texts...)
	}
}

// TestServeIfMatch: a group changes only at the revision that the caller has seen.
func TestServeIfMatch(t *testing.T) {
	c := newFixture(t).register()
	c.twoShards()
	s := c.serve()
	etag := s.call(t, "GET", "/groups/web?shard=one", "").want(t, 200).header.Get("ETag")
	if etag != `"7-53b5a2b9e1f0"` {
		t.Fatalf("ETag %s, want the group's", etag)
	}
	if both := s.call(t, "GET", "/groups/web", "").want(t, 200).header.Get("ETag"); both != "" {
		t.Errorf("ETag %s of two groups", both)
	}
	scale := func(path, match string) answer {
		return s.do(t, httpRequest{method: "POST", path: path, body: `{"group": "web", "size": 3}`, header: header("If-Match", match)})
	}
	next := scale("/group/scale?shard=one", etag).want(t, 200).header.Get("ETag")
	scale("/group/scale?shard=one", etag).want(t, http.StatusPreconditionFailed, "has etag")
	scale("/group/scale?shard=one", next).want(t, 200)
	scale("/group/scale?all_shards=true", next).want(t, 400, "belongs to a group of one shard: add shard=NAME")
	for _, match := range []string{"*", `W/"7"`, `"7", "8"`, `7`, `""`} {
		scale("/group/scale?shard=one", match).want(t, 400, "want a group's etag in quotes")
	}
	put := func(path, body string) answer {
		return s.do(t, httpRequest{method: "PUT", path: path, body: body, header: header("If-None-Match", "*")})
	}
	put("/groups/web?shard=one", `{"template": "knd"}`).want(t, http.StatusConflict, "there is such a group already")
	whole := `{"template": "knd", "size": 1, "vars": {"n": 1}, "on_demand": {"namespaces": ["ci"]}}`
	put("/groups/new?shard=one", whole).want(t, 200, `"key":"new"`)
	paused := `{"rollout_paused": true}`
	s.call(t, "PUT", "/groups/new?shard=one", paused).want(t, 200, `"rollout_paused":true`)
}

// TestServeManagedGroup: changes of a group that something else manages need force=true.
func TestServeManagedGroup(t *testing.T) {
	c := newFixture(t).register()
	one := c.shard("one").setGroups(web(2, 2))
	s := c.serve()
	for _, change := range []struct{ method, path, body string }{
		{"POST", "/group/scale?shard=one", `{"group": "web", "size": 3}`}, {"PUT", "/groups/web?shard=one", `{"size": 3}`},
		{"DELETE", "/groups/web?shard=one&yes=true", ""},
	} {
		one.locked(func() { one.groups["web"].Manager = manager })
		s.call(t, "GET", "/groups/web?shard=one", "").want(t, 200, `"manager":"`+manager+`"`)
		s.call(t, change.method, change.path, change.body).want(t, http.StatusConflict, "managed by "+manager)
		forced := s.call(t, change.method, change.path+"&force=true", change.body)
		if change.method == "DELETE" {
			forced.want(t, http.StatusAccepted, "one")
		} else {
			forced.want(t, 200, `"managed_before":"`+manager+`"`)
		}
	}
}

// TestServeGuards: what no caller of this API sends is refused, and changes nothing.
func TestServeGuards(t *testing.T) {
	c := newFixture(t).register()
	one, _ := c.twoShards()
	s := c.serve("--host", "admin.example")
	port := s.url[strings.LastIndexByte(s.url, ':'):]
	scale := httpRequest{method: "POST", path: "/group/scale?shard=one", body: `{"group": "web", "size": 3}`}
	for _, tt := range []struct {
		host   string
		header http.Header
		status int
	}{
		{"evil.example" + port, header(), 421},
		{"127.0.0.1.evil.example", header(), 421},
		{"", header("Origin", "http://evil.example"), 403},
		{"", header("Origin", "null"), 403},
		{"", header("Sec-Fetch-Site", "cross-site"), 403},
		{"", header("Sec-Fetch-Site", "same-site"), 403},
		{"", header("Content-Type", "application/x-www-form-urlencoded"), 415},
		{"", header("Content-Type", ""), 415},
	} {
		r := scale
		r.host, r.header = tt.host, tt.header
		s.do(t, r).want(t, tt.status)
	}
	if n := len(one.changes()); n != 0 {
		t.Fatalf("%d changes, want none", n)
	}
	for _, host := range []string{"", "localhost" + port, "LOCALHOST", "admin.example", "[::1]:80"} {
		r := scale
		r.host, r.header = host, header("Origin", "http://"+host)
		if host == "" {
			r.header = header("Sec-Fetch-Site", "same-origin")
		}
		s.do(t, r).want(t, 200)
	}
	a := s.do(t, httpRequest{method: "OPTIONS", path: "/groups", header: header("Origin", "http://evil.example")})
	a.want(t, http.StatusMethodNotAllowed)
	if a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Error("another origin may read")
	}
	s.call(t, "GET", "/nothing", "").want(t, 404, "/docs lists what there is")
	s.call(t, "POST", "/groups", "{}").want(t, 405, "want GET")
}

// TestServeDocs: the page of the API needs nothing from elsewhere.
func TestServeDocs(t *testing.T) {
	c := newFixture(t).register()
	c.twoShards()
	s := c.serve(c.tokens()...)
	page := s.do(t, httpRequest{method: "GET", path: "/docs"}).want(t, 200, "POST /group/scale", "all_shards")
	if strings.Contains(string(page.body), "http://") || strings.Contains(string(page.body), "https://") {
		t.Error("the page refers to another place")
	}
	if csp := page.header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
		t.Errorf("Content-Security-Policy %q", csp)
	}
	for path, text := range map[string]string{
		"/docs.css": "color-scheme", "/openapi.yaml": "openapi: 3.1.0", "/openapi.json": `"openapi": "3.1.0"`,
	} {
		s.do(t, httpRequest{method: "GET", path: path}).want(t, 200, text)
	}
}

// TestServeTokens: files of tokens are read again when they change, and refused when others
// can read them.
func TestServeTokens(t *testing.T) {
	c := newFixture(t).register()
	c.twoShards()
	flags := c.tokens()
	s := c.serve(flags...)
	list := func(token string) int {
		return s.do(t, httpRequest{method: "GET", path: "/groups", header: header("Authorization", token)}).status
	}
	scale := func(token string) int {
		return s.do(t, httpRequest{
			method: "POST", path: "/group/scale?shard=one", body: `{"group": "web", "size": 3}`, header: header("Authorization", "Bearer "+token),
		}).status
	}
	for token, want := range map[string]int{
		"": 401, "Bearer": 401, "Bearer ": 401, "Bearer wrong": 401, "Basic " + fullToken: 401,
		"bearer " + fullToken: 200, "Bearer " + readToken: 200,
	} {
		if got := list(token); got != want {
			t.Errorf("token %q: status %d, want %d", token, got, want)
		}
	}
	if full, read := scale(fullToken), scale(readToken); full != 200 || read != 403 {
		t.Errorf("a change: %d and %d, want 200 and 403", full, read)
	}
	const next = "a-token-that-came-later-than-that"
	write := func(text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(flags[1]+".new", []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(flags[1]+".new", flags[1]); err != nil {
			t.Fatal(err)
		}
	}
	write(fullToken+"\n"+next+"\n", 0o600)
	if old, now := scale(fullToken), scale(next); old != 200 || now != 200 {
		t.Errorf("two tokens: %d and %d, want 200 for both", old, now)
	}
	write(next+"\n", 0o600)
	if old, now := scale(fullToken), scale(next); old != 401 || now != 200 {
		t.Errorf("the next token: %d and %d, want 401 and 200", old, now)
	}
	write(next+"\n \n", 0o644)
	if got := scale(next); got != 401 {
		t.Errorf("a file that others can read: %d, want 401", got)
	}
	write(readToken+"\n", 0o600) // in both files
	if got := scale(readToken); got != 403 {
		t.Errorf("a token in both files: %d, want 403", got)
	}
}

// TestServeRefuses: what would be unsafe, or can't work, is a mistake on the command line.
func TestServeRefuses(t *testing.T) {
	c := newFixture(t).register()
	c.twoShards()
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	open, short, empty := file("open", fullToken, 0o640), file("short", "secret", 0o600), file("empty", "\n", 0o600)
	for text, args := range map[string][]string{
		`--bind: other machines can reach ":0": add --token-file`:             {"--bind", ":0"},
		`--bind: other machines can reach "0.0.0.0:0"`:                        {"--bind", "0.0.0.0:0"},
		`--bind: "8080" is not valid: want host:port, such as 127.0.0.1:8080`: {"--bind", "8080"},
		"--token-file: " + open + ": its mode is 0640":                        {"--token-file", open},
		"--token-file: " + short + ": a token has 6 characters":               {"--token-file", short},
		"--read-only-token-file: " + empty + ": it has no token":              {"--read-only-token-file", empty},
		"--tls-cert: required with --tls-key and --client-ca":                 {"--client-ca", open},
		"--tls-key: required with --tls-cert":                                 {"--tls-cert", open},
		"--request-timeout: 0s is not valid":                                  {"--request-timeout", "0s"},
		`--log-format: "xml" is not a log format: want text or json`:          {"--log-format", "xml"},
		"--token-file: stat " + filepath.Join(dir, "none"):                    {"--token-file", filepath.Join(dir, "none")},
	} {
		c.run(append([]string{"serve"}, args...)...).want(t, cli.ExitUsage, text)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	c.run("serve", "--bind", taken.Addr().String()).
		want(t, cli.ExitFailed, "--bind: another process listens at "+taken.Addr().String()+": stop it, or choose another port")
}

// TestServeMutualTLS: with --client-ca, only clients with a certificate of it get in, and a
// renewed certificate is served without a restart.
func TestServeMutualTLS(t *testing.T) {
	c := newFixture(t).register()
	c.twoShards()
	dir := t.TempDir()
	serve := func(id string) tls.Certificate {
		t.Helper()
		key, err := pki.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := c.trust.CA.IssueServer(pki.ServerRequest{
			Shard: id, IPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, PublicKey: pki.PublicKey(key), Now: time.Now(), TTL: time.Hour,
		}, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
		certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
		for name, text := range map[string][]byte{"cert": certPEM, "key": keyPEM, "ca": c.trust.Bundle.PEM()} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		pair, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	first := serve("one")
	s := c.serve("--tls-cert", filepath.Join(dir, "cert"), "--tls-key", filepath.Join(dir, "key"), "--client-ca", filepath.Join(dir, "ca"))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.trust.Bundle.PEM())
	var served []byte
	client := func(certs ...tls.Certificate) *http.Client {
		config := &tls.Config{RootCAs: roots, Certificates: certs, InsecureSkipVerify: true} // its names are those of a shard's server
		config.VerifyConnection = func(state tls.ConnectionState) error {
			served = state.PeerCertificates[0].Raw
			return nil
		}
		return &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	}
	get := func(client *http.Client) error {
		resp, err := client.Get(s.url + "/groups")
		if err != nil {
			return err
		}
		resp.Body.Close()
		return nil
	}
	if get(client()) == nil {
		t.Error("a client without a certificate was served")
	}
	if err := get(client(first)); err != nil {
		t.Fatal(err)
	}
	if string(served) != string(first.Certificate[0]) {
		t.Error("another certificate was served")
	}
	second := serve("two")
	if err := get(client(second)); err != nil {
		t.Fatal(err)
	}
	if string(served) != string(second.Certificate[0]) {
		t.Error("the earlier certificate was served")
	}
	s.stop()
	for line := range s.log {
		t.Errorf("a handshake that failed, which any stranger can cause, is logged: %s", line)
	}
}

// TestServeLogsChanges: who changed what, and whether that worked, but no token.
func TestServeLogsChanges(t *testing.T) {
	c := newFixture(t).register()
	c.twoShards()
	s := c.serve(c.tokens()...)
	s.call(t, "GET", "/groups", "")
	s.call(t, "POST", "/group/scale?shard=one", `{"group": "web", "size": 3}`)
	s.stop()
	var lines []string
	for line := range s.log {
		lines = append(lines, line)
	}
	log := strings.Join(lines, "\n")
	want := `msg="accepted a change" audit=change caller="full token" method="POST /group/scale" from=127.0.0.1:`
	if len(lines) != 1 || !strings.Contains(log, want) {
		t.Errorf("log %s, want one line with %s", log, want)
	}
	if strings.Contains(log, fullToken) {
		t.Error("the log has a token")
	}
}
